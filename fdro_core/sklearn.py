"""scikit-learn estimators that do well on their worst groups. Need ``pip install "fdro[sklearn]"``.

>>> import numpy as np
>>> from fdro_core.sklearn import RobustClassifier
>>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [0.5], [-0.5]])
>>> y = np.array(["no", "no", "yes", "yes", "no", "yes"])
>>> site = np.array(["a", "a", "a", "a", "b", "b"])
>>> model = RobustClassifier("kl", radius=0.1).fit(X, y, groups=site)
>>> model.predict([[-3.0], [3.0]])
array(['no', 'yes'], dtype='<U3')
>>> dict(zip(model.groups_.tolist(), model.worst_case_.p.round(2).tolist()))
{'a': 0.45, 'b': 0.55}
"""

from fdro_core.estimators.classifier import RobustClassifier, worst_group_accuracy
from fdro_core.estimators.conformal import RobustConformal
from fdro_core.estimators.regressor import RobustRegressor

__all__ = ["RobustClassifier", "RobustConformal", "RobustRegressor", "worst_group_accuracy"]
