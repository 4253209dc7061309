"""What the estimators use of scikit-learn, or the error that names the extra."""

from uncertainty_sets.errors import BackendMissing

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise BackendMissing(
        'fdro_core.sklearn needs scikit-learn 1.6 or newer: pip install "fdro[sklearn]"'
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "accuracy_score",
    "check_classification_targets",
    "check_is_fitted",
    "validate_data",
]
