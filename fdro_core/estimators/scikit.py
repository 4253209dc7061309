"""What the estimators use of scikit-learn, or the error that names the extra."""

from uncertainty_sets.errors import BackendMissing

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise BackendMissing(
        'fdro_core.sklearn needs scikit-learn 1.6 or newer: pip install "fdro[sklearn]"'
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "_check_sample_weight",
    "accuracy_score",
    "check_classification_targets",
    "check_is_fitted",
    "clone",
    "compute_sample_weight",
    "validate_data",
]
