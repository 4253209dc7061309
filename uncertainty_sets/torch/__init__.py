"""Robust losses for PyTorch. Needs ``pip install "fdro[torch]"``.

`robust_loss` is the worst expected loss as a differentiable function and `worst_case_weights` its gradient
(`oracle`); `GroupRobustLoss` is a loss module for mini-batches with groups (`groups`).
"""

from uncertainty_sets.torch.groups import GroupRobustLoss
from uncertainty_sets.torch.oracle import robust_loss, worst_case_weights

__all__ = ["GroupRobustLoss", "robust_loss", "worst_case_weights"]
