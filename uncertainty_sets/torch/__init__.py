"""Robust losses for PyTorch. Needs ``pip install "fdro[torch]"``.

`robust_loss` is the worst expected loss as a differentiable function, `worst_case_weights` its gradient, and
`GroupRobustLoss` a loss module for mini-batches with groups.
"""

from uncertainty_sets.torch.groups import GroupRobustLoss
from uncertainty_sets.torch.oracle import robust_loss, worst_case_weights

__all__ = ["GroupRobustLoss", "robust_loss", "worst_case_weights"]
