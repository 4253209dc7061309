"""ASPIRE-ADP: how many workers to wait for, from the delays seen (Section VIII).

S = N while delays are even (waiting for all costs little and every step sees everyone); S = s as soon as
there is a straggler. The paper's formula prints the two cases the other way round; its text and figure agree
with this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting

RULES = ("mean", "median", "seconds")


@dataclass(frozen=True)
class Adaptive:
    """The rule that switches S between N and `few`.

    A worker j is a straggler when its delay T_j passes the threshold β₁; S goes back to N when the largest
    delay is below `hysteresis`·β₁. T_j is the time from sending a step to its reply. It does not grow while a
    reply waits at the master; it grows while no reply has come.

    Attributes:
        few: s, the number of active workers while there is a straggler, 1 <= s < N.
        rule: how β₁ is computed: "mean" or "median" is `threshold` times the mean or median of the T_j,
            "seconds" is `threshold` itself. The mean can never detect a straggler among 2 workers, and among
            3 only one slower than 2(T₁+T₂).
        threshold: see `rule`; the paper has 2 times the mean.
        hysteresis: in (0, 1]; 1 switches back at β₁ itself, and delays close to β₁ then make S alternate.

    >>> Adaptive(few=1).switch(np.array([1.0, 1.0, 9.0]), current=3)
    1
    >>> Adaptive(few=1).switch(np.array([1.0, 1.0, 1.2]), current=1)
    3
    """

    few: int = 1
    rule: str = "mean"
    threshold: float = 2.0
    hysteresis: float = 0.9

    def check(self, workers: int) -> None:
        """Raise `InvalidSetting` if the settings cannot work with that many workers."""
        if not 1 <= self.few < max(workers, 2):
            raise self._invalid("few", f"Adaptive.few (s) must be in 1..{workers - 1}")
        if self.rule not in RULES:
            raise self._invalid("rule", f"Adaptive.rule must be one of {', '.join(RULES)}")
        if not (np.isfinite(self.threshold) and self.threshold > 0):
            raise self._invalid("threshold", "Adaptive.threshold must be a number > 0")
        if not 0 < self.hysteresis <= 1:
            raise self._invalid("hysteresis", "Adaptive.hysteresis must be in (0, 1]")

    def _invalid(self, name: str, need: str) -> InvalidSetting:
        value = getattr(self, name)
        return InvalidSetting(f"{need}, got {value!r}", parameter=name, value=value)

    def limit(self, delays: NDArray[np.float64]) -> float:
        """β₁ for the delays given."""
        if self.rule == "mean":
            return self.threshold * float(np.mean(delays))
        if self.rule == "median":
            return self.threshold * float(np.median(delays))
        return self.threshold

    def switch(self, delays: NDArray[np.float64], current: int) -> int:
        """S for the delays of the live workers: `few`, their number, or `current` in between."""
        if delays.size == 0:
            return current
        longest, limit = float(np.max(delays)), self.limit(delays)
        if longest > limit:
            return min(self.few, delays.size)
        if longest <= self.hysteresis * limit:
            return delays.size
        return min(current, delays.size)
