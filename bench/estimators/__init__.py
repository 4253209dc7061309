"""What the scikit-learn estimators gain for the worst group, and cost on the mean."""
