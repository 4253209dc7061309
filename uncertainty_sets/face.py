"""The active face of a worst case: how p and the value move with losses and parameters.

Around a worst case some entries of p are free; a bound holds the others. With the constraint
D(p, θ) = unit·radius and its multiplier η, the free entries F solve

    f - ν - η·g(p, θ) = 0 on F,      Σ p = 1,      g = ∂D/∂p.

Let S be (η·∂²D/∂p²)⁻¹ on F and 0 elsewhere, w = S1/1ᵀS1, g̃ = g - wᵀg and V = g̃ᵀS g̃. A parameter θ has a
raw move m of p (at fixed ν, η), a slope k = ∂D/∂θ (at fixed p), and the force λ = f - ν - η·g of the bounds,
which is 0 on F. Then

    e  = S(df - wᵀdf) + m·dθ,       dη = (g̃ᵀe - unit·dradius + kᵀdθ)/V,       y = e - dη·S g̃,
    dp = y - w·Σy,                  dvalue = pᵀdf + η·unit·dradius + (λm - ηk)ᵀdθ,

and backwards, from u on p, ω on η and v on the value, with ũ = u - wᵀu, β = (g̃ᵀSũ - ω)/V and r = ũ - β·g̃,

    losses: (I - w1ᵀ)S r + v·p,     θ: m·r - β·k + v·(λm - ηk),     radius: unit·(β + v·η).

For the losses alone the map is J = S - S1 1ᵀS/1ᵀS1 - S g̃ g̃ᵀS/V: symmetric, positive semidefinite, J1 = 0.

A polyhedral set has no S: p does not move with the losses. Its face is *stiff*: the parameters' moves are
shared out by weights on the basic entries, which take the place of S in w, g̃, V and S g̃; and η moves with the
losses, and with g: dη = (S g̃)ᵀ(df - η·∂g/∂θ·dθ)/V.

The interface, for code that builds second-order models (derivatives.face_of(answer) makes one):

| attribute | shape | is |
|---|---|---|
| `S` | (…, N) | the diagonal of S, 0 off F and on a stiff face; for a dense Q the function x ↦ S x |
| `S1` | (…, N) | S·1 |
| `w` | (…, N) | S1/ΣS1; on a face without S any weights with sum 1 that share out Σ dp = 0 |
| `g` | (…, N) | g̃, 0 if the radius does not bind |
| `Sg` | (…, N) | S g̃ |
| `V` | (…, 1) | g̃ᵀS g̃, 1 if the radius does not bind |
| `apply(x)` | (…, N) | J x = S x - (1ᵀSx/1ᵀS1)·S1 - (g̃ᵀSx/V)·S g̃; 0 on a stiff face |

Everything works on rows along leading axes, of NumPy arrays, torch tensors, or ragged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

LOST = 1e-13
"""V below this part of Σ S g² is rounding: all free entries then have one loss, and the radius moves none."""


FAR = 1e300
"""η beyond is that of a radius of 0."""


class Rows:
    """Sums over entries of rows along the last axis, for NumPy or torch (`xp`)."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.where, self.exp, self.log = xp.where, xp.exp, xp.log

    def sum(self, x: Any) -> Any:
        """Σ over each row, to combine with entries."""
        return x.sum(-1)[..., None]

    def most(self, x: Any) -> Any:
        """The largest of each row, to combine with entries."""
        return self.xp.amax(x, -1)[..., None]

    def each(self, numbers: Any) -> Any:
        """A number per row, to combine with entries."""
        return numbers[..., None]

    def numbers(self, x: Any) -> Any:
        """A number per row, from what combines with entries."""
        return x[..., 0]


class RaggedRows(Rows):
    """The same for ragged rows, whose entries lie one row after the other."""

    def __init__(self, indptr: Any) -> None:
        super().__init__(np)
        self._starts, self._lengths = indptr[:-1], np.diff(indptr)

    def sum(self, x: Any) -> Any:
        """Σ over each row, repeated for its entries."""
        return np.repeat(np.add.reduceat(x, self._starts), self._lengths)

    def most(self, x: Any) -> Any:
        """The largest of each row, repeated."""
        return np.repeat(np.maximum.reduceat(x, self._starts), self._lengths)

    def each(self, numbers: Any) -> Any:
        """A number per row, repeated."""
        return np.repeat(np.broadcast_to(numbers, self._lengths.shape), self._lengths)

    def numbers(self, x: Any) -> Any:
        """Back to a number per row."""
        return x[self._starts]


class Effect(NamedTuple):
    """What a parameter does, per entry; one number per row acts on every entry of the row.

    Attributes:
        raw: m, the move of p at fixed ν and η. Of a matrix, here and in the next two: the pair of a linear
            function and its transpose.
        slope: k, the rise of D at fixed p.
        value: the rise of the value.
        bend: the rise of g at fixed p, which moves η on a stiff face.
        room: by how much the right-hand side of D grows, if it is one number per row.
        per_row: whether the parameter is one number per row.
        center: the parameter itself if it is a distribution: derivatives are then those of it divided by its
            sum, so that moves which change the sum have an effect too, and pulls have a mean of 0 under it.
    """

    raw: Any = 0.0
    slope: Any = 0.0
    value: Any = 0.0
    bend: Any = 0.0
    room: Any = 0.0
    per_row: bool = False
    center: Any = None

    def added_to(self, other: Effect) -> Effect:
        """The effect of a parameter that acts in two ways."""
        both = (self.raw + other.raw, self.slope + other.slope, self.value + other.value)
        return other._replace(raw=both[0], slope=both[1], value=both[2])


class Face:
    """The map of the module's docstring.

    Args:
        rows: what sums over rows.
        p: the worst case.
        eta: η, to combine with entries.
        S: its diagonal, or the product with a matrix; on a stiff face the weights of the basic entries.
        w: weights with sum 1 that share out Σ dp = 0.
        g: ∂D/∂p.
        active: where the radius binds.
        effects: what each parameter does.
        stiff: whether p does not move with the losses.
    """

    def __init__(
        self,
        rows: Rows,
        p: Any,
        eta: Any,
        S: Any,
        w: Any,
        g: Any,
        active: Any,
        effects: dict[str, Effect],
        *,
        stiff: bool = False,
    ) -> None:
        self.rows, self.p, self.eta, self.effects, self.stiff, self.w = rows, p, eta, effects, stiff, w
        self.S = 0.0 * p if stiff else S
        self._product: Callable[[Any], Any] = S if callable(S) else S.__mul__
        centred = rows.where(active, g - rows.sum(w * g), 0.0 * g)
        moved = self._product(centred)
        V = rows.sum(moved * centred)
        self._steer(centred, moved, V, rows.sum(abs(self._product(g) * g)) * LOST < V)

    def _steer(self, g: Any, Sg: Any, V: Any, live: Any) -> None:
        """Keep how the radius moves p, where it does."""
        self._live = live
        self.g, self.Sg = (self.rows.where(live, each, 0.0 * each) for each in (g, Sg))
        self.V = self.rows.where(live, V, 1.0 + 0.0 * V)

    @classmethod
    def along(cls, rows: Rows, p: Any, eta: Any, direction: Any, V: Any, effects: dict[str, Effect]) -> Face:
        """A stiff face on which the radius moves p along one direction, of which a whole step costs V."""
        zero = 0.0 * p
        face = cls(rows, p, eta, zero, zero, zero, zero > 0.0, effects, stiff=True)
        face._steer(zero, direction, V, V > 0.0)
        return face

    @property
    def S1(self) -> Any:  # noqa: N802 - the letter of the formula
        """S·1."""
        return 0.0 * self.p if self.stiff else self._product(1.0 + 0.0 * self.p)

    def apply(self, x: Any) -> Any:
        """J x: the move of p, or the pull on the losses."""
        return self.jvp(x, {})[0]

    def _worth(self, number: Any) -> Any:
        """η times a number; 0 times an infinite η, which is that of a radius of 0, is 0."""
        none = number + 0.0 * self.V == 0.0
        return self.rows.where(none, 0.0 * self.V, number * self.rows.where(none, 0.0 * self.V, self.eta))

    def _total(self, coefficients: Any, move: Any) -> Any:
        """Σ coefficients·move per row."""
        if isinstance(coefficients, tuple):
            return coefficients[0](move)
        return self.rows.sum(coefficients * move + 0.0 * self.p)

    def _of(self, coefficients: Any, number: Any) -> Any:
        """A number per row times the coefficients."""
        return coefficients[1](number) if isinstance(coefficients, tuple) else number * coefficients

    def jvp(self, losses: Any | None, parameters: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """The moves of p, η and the value (the last two per row) for moves of the losses and parameters."""
        sum_, zero = self.rows.sum, 0.0 * self.p
        e, room, from_losses, value = zero, 0.0 * self.V, 0.0 * self.V, 0.0 * self.V
        if losses is not None:
            value = value + sum_(self.p * losses)
            if self.stiff:
                from_losses = sum_(self.Sg * losses) / self.V
            else:
                e = self._product(losses - sum_(self.w * losses))
        for name, given in parameters.items():
            effect = self.effects[name]
            move = self.rows.each(given) if effect.per_row else given
            if effect.center is not None:
                move = move - effect.center * sum_(move)
            e = e + (effect.raw[0](move) if isinstance(effect.raw, tuple) else effect.raw * move)
            if self.stiff and not isinstance(effect.raw, tuple):
                from_losses = from_losses - self.eta * sum_(self.Sg * effect.bend * move) / self.V
            room = room - self._total(effect.slope, move)
            value = value + self._total(effect.value, move)
            if effect.per_row:
                room = room + effect.room * move
                value = value + effect.room * self._worth(move)
        slide = self.rows.where(self._live, (sum_(self.g * e) - room) / self.V, 0.0 * room)
        y = e - slide * self.Sg
        dp = y - self.w * sum_(y)
        eta = from_losses if self.stiff else slide
        return dp, self.rows.numbers(eta + 0.0 * self.V), self.rows.numbers(value)

    def vjp(self, p: Any | None, eta: Any | None, value: Any | None, names: Any) -> dict[str, Any]:
        """The pulls on the losses and on these parameters, from those on p, η and the value."""
        sum_, zero = self.rows.sum, 0.0 * self.p
        u = zero if p is None else p
        omega = 0.0 * self.V if eta is None else self.rows.each(eta)
        v = 0.0 * self.V if value is None else self.rows.each(value)
        centred = u - sum_(self.w * u)
        if self.stiff:
            beta = sum_(self.Sg * centred) / self.V
            losses = self.rows.where(self._live, omega / self.V, 0.0 * omega) * self.Sg
            turned = -self.eta * losses
            r = centred - beta * self.g
        else:
            pull = self.rows.where(self._live, omega, 0.0 * omega)
            beta = (sum_(self.Sg * centred) - pull) / self.V
            r = centred - beta * self.g
            losses = self._product(r)
            losses = losses - self.w * sum_(losses)
        found = {"losses": losses + v * self.p}
        for name in names:
            effect = self.effects[name]
            back = effect.raw[1](r) if isinstance(effect.raw, tuple) else effect.raw * r
            each = back - self._of(effect.slope, beta) + self._of(effect.value, v)
            if self.stiff and not isinstance(effect.raw, tuple):
                each = each + turned * effect.bend
            if effect.per_row:
                each = sum_(each + zero) + effect.room * (beta + self._worth(v))
                found[name] = self.rows.numbers(each)
            elif effect.center is not None:
                found[name] = each - sum_(effect.center * each)
            else:
                found[name] = each if isinstance(effect.raw, tuple) else each + zero
        return found
