"""Any `torch.nn.Module` as a local problem. Needs the extra: ``pip install "fdro[torch]"``.

The only file of the package that imports torch, and only when a problem is made.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems.shared import draw
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing

if TYPE_CHECKING:
    import torch

__all__ = ["TorchProblem"]


class TorchProblem:
    """f_j(w) = loss(module(inputs), targets), where w is all parameters of the module in one flat vector.

    The module is copied, so one module can be given to every worker; its parameters are the starting point.
    Its mode is kept: in training mode the step's `rng` seeds dropout, so runs are reproducible. Buffers
    (batch-norm means) stay with the worker and are not part of w.

    Args:
        module: any module; its dtype is the arithmetic's (float64 converges furthest).
        inputs, targets: tensors or arrays, samples first; inputs are cast to the module's dtype.
        loss: a function of (outputs, targets) that returns the mean over samples; cross-entropy by default.
        l2: adds l2/2·‖w‖².
    """

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: Any,
        targets: Any,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        l2: float = 0.0,
    ) -> None:
        try:
            import torch
        except ImportError as error:
            raise BackendMissing('TorchProblem needs torch: pip install "fdro[torch]"') from error
        self._torch = torch
        self._module = copy.deepcopy(module)
        self._parameters = [p for p in self._module.parameters() if p.requires_grad]
        if not self._parameters:
            raise InvalidProblem("TorchProblem: the module has no parameters to train")
        self._dtype = self._parameters[0].dtype
        self._device = self._parameters[0].device
        self._inputs = torch.as_tensor(inputs, device=self._device)
        if self._inputs.is_floating_point():
            self._inputs = self._inputs.to(self._dtype)
        self._targets = torch.as_tensor(targets, device=self._device)
        if len(self._inputs) != len(self._targets) or len(self._inputs) == 0:
            raise InvalidProblem(
                "TorchProblem: inputs and targets need the same number of samples, at least 1, got "
                f"{len(self._inputs)} and {len(self._targets)}"
            )
        self._loss = torch.nn.functional.cross_entropy if loss is None else loss
        self._l2 = float(l2)
        start = torch.nn.utils.parameters_to_vector(self._parameters)
        self._start: Array = start.detach().cpu().numpy().astype(np.float64)
        self.dimension = self._start.size
        self.samples = len(self._inputs)

    def initial_point(self, rng: np.random.Generator) -> Array:
        """The parameters of the module as given."""
        return self._start.copy()

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f_j(w) and its gradient, on a mini-batch if `rng` and `batch_size` are given."""
        torch = self._torch
        inputs, targets = self._inputs, self._targets
        drawn = draw(rng, batch_size, len(inputs))
        if drawn is not None:
            rows = torch.as_tensor(drawn, device=self._device)
            inputs, targets = inputs[rows], targets[rows]
        flat = torch.tensor(w, dtype=self._dtype, device=self._device)  # a copy: w is read-only
        torch.nn.utils.vector_to_parameters(flat, self._parameters)
        with torch.random.fork_rng(devices=[], enabled=self._module.training):
            if self._module.training:
                seed = 0 if rng is None else int(rng.integers(2**63))
                # torch.manual_seed also queues a seeding of every accelerator, with a traceback: 1 ms.
                cpu = self._device.type == "cpu"
                (torch.default_generator.manual_seed if cpu else torch.manual_seed)(seed)
            value = self._loss(self._module(inputs), targets)
            parts = torch.autograd.grad(value, self._parameters)
        loss = float(value.detach())
        gradient: Array = torch.cat([part.reshape(-1) for part in parts]).cpu().numpy().astype(np.float64)
        if self._l2:
            loss += 0.5 * self._l2 * float(w @ w)
            gradient += self._l2 * w
        return loss, gradient

    def fingerprint(self) -> str:
        """A digest of samples, targets, loss, l2, the module's structure and its frozen parameters.

        It leaves out the starting point, and the buffers, which training changes.
        """
        layers = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self._module))  # addresses differ from run to run
        shapes = [(name, tuple(p.shape)) for name, p in self._module.named_parameters()]
        kept = {
            f"kept {name}": _bytes(p) for name, p in self._module.named_parameters() if not p.requires_grad
        }
        return digests.short(
            inputs=_bytes(self._inputs),
            targets=_bytes(self._targets),
            loss=getattr(self._loss, "__qualname__", type(self._loss).__name__),
            module=f"{layers} {shapes} {self._dtype} {self._module.training}",
            l2=self._l2,
            **kept,
        )

    def module(self, w: Array) -> torch.nn.Module:
        """Return a copy of the module with the parameters w, as in `problem.module(result.w)`.

        It is in evaluation mode, in the dtype and on the device of the module that was given. Buffers are
        those of this problem; batch-norm means stay untrained if the workers run in other processes.
        """
        torch = self._torch
        flat = torch.tensor(np.asarray(w), dtype=self._dtype, device=self._device)
        if flat.shape != (self.dimension,):
            raise InvalidProblem(
                f"w must have {self.dimension} entries, one per trainable parameter of the module, got shape "
                f"{tuple(flat.shape)}"
            )
        twin = copy.deepcopy(self._module).eval()
        own = [p for p in twin.parameters() if p.requires_grad]
        with torch.no_grad():
            for parameter, part in zip(own, flat.split([p.numel() for p in own]), strict=True):
                parameter.copy_(part.view_as(parameter))
        return twin

    def predict(self, w: Array, inputs: Any) -> Array:
        """The module's outputs at w, in evaluation mode."""
        torch = self._torch
        flat = torch.as_tensor(w, dtype=self._dtype, device=self._device)
        torch.nn.utils.vector_to_parameters(flat, self._parameters)
        mode = self._module.training
        self._module.eval()
        with torch.no_grad():
            x = torch.as_tensor(inputs, device=self._device)
            outputs = self._module(x.to(self._dtype) if x.is_floating_point() else x)
        self._module.train(mode)
        answer: Array = outputs.cpu().numpy().astype(np.float64)
        return answer


def _bytes(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor's content as bytes: NumPy lacks some of torch's types."""
    import torch

    flat: NDArray[Any] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.reshape(*tensor.shape, -1)
