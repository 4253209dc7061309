"""All data in one place: the robust problem by itself, and the scikit-learn estimators."""
