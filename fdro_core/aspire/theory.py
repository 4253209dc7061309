"""The paper's bounds and counts as functions.

They say how costs grow, not how long a run takes: the constants d̄, k_d and d₅ of Theorems 1 and 3 are
defined in the paper's supplement (Eq. (95), (96)) and are arguments here. `docs/theory.md` lists the
corrections. Where a count is an O(·) it is evaluated with constant 1, natural logarithms and no lower-order
terms, so only ratios between its values mean something.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cbrt, inf, log, sqrt

from fdro_core.aspire.admm.adversary import setting_2
from fdro_core.errors import InvalidSetting
from uncertainty_sets.errors import UnknownName

BITS = 32  # a number, in Theorem 2

SETS = ("box", "ellipsoid", "polyhedron", "kl", "wasserstein-1", "cd-norm")


def gamma(
    *, L: float, rho1: float, rho2: float, c1: float, c2: float, N: int, S: int, tau: int, k1: float
) -> float:
    """The least γ that Theorem 1 allows; c1 and c2 are c₁⁰ and c₂⁰.

    γ >= max{2, 2 + ρ₁ρ₂(c₁⁰c₂⁰)²·(max{½, 3τk₁NL²/2} - ρ₂(N-S)L²/2) / (4L²ρ₂(c₂⁰)² + 4NL²ρ₁(c₁⁰)²)}.
    """
    top = rho1 * rho2 * (c1 * c2) ** 2
    top *= max(0.5, 1.5 * tau * k1 * N * L**2) - 0.5 * rho2 * (N - S) * L**2
    return max(2.0, 2.0 + top / (4 * L**2 * rho2 * c2**2 + 4 * N * L**2 * rho1 * c1**2))


def d6(*, gamma_: float, L: float, M: int, N: int, rho1: float, rho2: float) -> float:
    """d₆ = 4(γ-2)L²(Mρ₁ + Nρ₂).

    >>> d6(gamma_=3.0, L=1.0, M=2, N=3, rho1=0.5, rho2=1.0)
    16.0
    """
    return 4 * (gamma_ - 2) * L**2 * (M * rho1 + N * rho2)


def step_size(
    *, L: float, rho1: float, rho2: float, planes: int, N: int, gamma_: float, c1: float, c2: float
) -> float:
    """η_w = η_z = η_h of Theorem 1; with planes = M and the floors c̲₁, c̲₂ it is the η_w used after T₁.

    2 / (L + ρ₁|A|L² + ρ₂NL² + 8(|A|γL²/(ρ₁c₁²) + NγL²/(ρ₂c₂²))).
    """
    damping = planes * gamma_ * L**2 / (rho1 * c1**2) + N * gamma_ * L**2 / (rho2 * c2**2)
    return 2 / (L + rho1 * planes * L**2 + rho2 * N * L**2 + 8 * damping)


@dataclass(frozen=True)
class Theorem1:
    """η_w = η_z = η_h of Theorem 1 at every iteration, with Setting 2: a function of t and |A|.

    From T₁ on, η_w takes its last value, that of M planes and the floors; T₁ is `horizon`. Give it as
    `worker_step`, `consensus_step` and `value_step`, and the same ρ, floors and M to `AspireEase.paper`.

    >>> steps = Theorem1(L=1.0, rho1=0.1, rho2=0.1, N=4, floor1=1.0, floor2=1.0, M=20, horizon=100)
    >>> round(steps(0, 1), 4), round(steps(99, 1), 4), steps(100, 1) == steps(200, 5)
    (0.2105, 0.0518, True)
    """

    L: float
    rho1: float
    rho2: float
    N: int
    floor1: float
    floor2: float
    M: int = 20
    horizon: float = inf
    gamma: float = 2.0

    def __call__(self, t: int, planes: int) -> float:
        """The step at iteration t with that many planes."""
        if t >= self.horizon:
            return self._step(self.M, self.floor1, self.floor2)
        c1 = setting_2(self.rho1, t, self.floor1)
        return self._step(planes, c1, setting_2(self.rho2, t, self.floor2))

    def _step(self, planes: int, c1: float, c2: float) -> float:
        return step_size(
            L=self.L, rho1=self.rho1, rho2=self.rho2, planes=planes, N=self.N, gamma_=self.gamma, c1=c1, c2=c2
        )


def plane_dual_step_limit(*, L: float, c1: float, tau: int, k1: float, N: int) -> float:
    """The ρ₁ that Theorem 1 asks to stay below: min{2/(L + 2c₁⁰), 1/(15τk₁NL²)}.

    With Setting 2, c₁⁰ = 1/ρ₁, the first term asks for ρ₁L < 0: no ρ₁ meets it. Give c₁⁰ on its own.
    """
    return min(2 / (L + 2 * c1), 1 / (15 * tau * k1 * N * L**2))


def setting_2_is_possible(*, L: float, rho: float) -> bool:
    """Whether ρ < 2/(L + 2c⁰) holds with Setting 2's c⁰ = 1/ρ: never for L > 0.

    >>> setting_2_is_possible(L=1.0, rho=1e-9)
    False
    """
    return rho < 2 / (L + 2 / rho)


def iterations(
    epsilon: float,
    *,
    M: int,
    N: int,
    S: int,
    tau: int,
    T1: int,
    L: float,
    rho1: float,
    rho2: float,
    sigma1: float,
    sigma2: float,
    d_bar: float,
    k_d: float,
    d5: float,
    d6_: float,
) -> float:
    """Theorem 1: T(ε) up to a constant, the larger of a dual and a primal term; it grows as 1/ε³.

    max{(4Mσ₁²/ρ₁² + 4Nσ₂²/ρ₂²)³/ε³, (4(d₆ + ρ₂(N-S)L²/2)²(d̄ + k_d(τ-1))d₅/ε + (T₁+τ)^⅓)³}.
    """
    work = (d6_ + 0.5 * rho2 * (N - S) * L**2) ** 2
    return max(
        _dual_term(epsilon, M, N, rho1, rho2, sigma1, sigma2),
        (4 * work * (d_bar + k_d * (tau - 1)) * d5 / epsilon + cbrt(T1 + tau)) ** 3,
    )


def iterations_adaptive(
    epsilon: float,
    *,
    share_few: float,
    M: int,
    N: int,
    s: int,
    tau: int,
    T1: int,
    L: float,
    rho1: float,
    rho2: float,
    sigma1: float,
    sigma2: float,
    d_bar: float,
    k_d: float,
    d5: float,
    d6_: float,
) -> float:
    """Theorem 3: T(ε) of ASPIRE-ADP; share_few is β₂, the share of iterations with S = s.

    Theorem 1 with (d₆ + ρ₂(N-S)L²/2)² replaced by the harmonic mean 1/(β₂/(d₆ + ρ₂(N-s)L²/2)² + (1-β₂)/d₆²).
    share_few = 1 is Theorem 1 with S = s, share_few = 0 with S = N.
    """
    if not 0 <= share_few <= 1:
        raise InvalidSetting(f"share_few (β₂) must be in [0, 1], got {share_few}")
    few = (d6_ + 0.5 * rho2 * (N - s) * L**2) ** 2
    rate = share_few / few if few else (inf if share_few else 0.0)
    rate += (1 - share_few) / d6_**2 if d6_ else (inf if share_few < 1 else 0.0)
    work = 0.0 if rate == inf else 1 / rate
    return max(
        _dual_term(epsilon, M, N, rho1, rho2, sigma1, sigma2),
        (4 * work * (d_bar + k_d * (tau - 1)) * d5 / epsilon + cbrt(T1 + tau)) ** 3,
    )


def _dual_term(
    epsilon: float, M: int, N: int, rho1: float, rho2: float, sigma1: float, sigma2: float
) -> float:
    if not epsilon > 0:
        raise InvalidSetting(f"epsilon must be > 0, got {epsilon}")
    return ((4 * M * sigma1**2 / rho1**2 + 4 * N * sigma2**2 / rho2**2) / epsilon) ** 3


def bits_theorem_2(*, S: int, p: int, planes: int, N: int, iterations: int, plane_updates: int) -> int:
    """Theorem 2's count with |A| constant: 32S(2p+1+|A|) an iteration and 32N²|A| a plane update.

    >>> bits_theorem_2(S=1, p=7850, planes=10, N=1000, iterations=10, plane_updates=1)
    325027520
    """
    return BITS * (iterations * S * (2 * p + 1 + planes) + plane_updates * N**2 * planes)


def bits_sent(*, S: int, p: int, iterations: int) -> int:
    """What this driver sends: one vector and three scalars down, w and four scalars up, no planes.

    >>> bits_theorem_2(S=1, p=7850, planes=10, N=1000, iterations=10, plane_updates=1) / bits_sent(
    ...     S=1, p=7850, iterations=10
    ... )
    64.6...
    """
    return BITS * iterations * S * (2 * p + 7)


def oracle_operations(name: str, N: int, *, m: int | None = None, accuracy: float = 1e-6) -> float:
    """Table II: arithmetic operations of one oracle call, as a function of (N, m, ε′).

    m is the number of inequality constraints; where the set itself fixes it (ellipsoid 1, Wasserstein-1 1)
    it may be left out, and the polyhedron's is its number of rows. n is N, and N + N² for Wasserstein-1,
    which has the transport plan among its variables. The second-order cone of the ellipsoid has k_i = N.
    The paper's count for CD-norm assumes a sort of spread·loss, which is optimal only for equal spreads;
    this package's oracle has the same O(N log N) by another way.

    >>> oracle_operations("box", 100) == oracle_operations("cd-norm", 100)
    True
    """
    if N < 1 or not 0 < accuracy < 1:
        raise InvalidSetting(f"N must be >= 1 and accuracy (ε′) in (0, 1), got {N} and {accuracy}")
    digits = log(1 / accuracy)
    if name in {"box", "cd-norm"}:
        return N * log(N)
    if name == "ellipsoid":
        rows = 1 if m is None else m
        return sqrt(rows + 1) * N * (N**2 + rows + rows * N**2) * digits
    if name == "kl":
        return N**3 * sqrt(N) * digits
    if name == "wasserstein-1":
        n = N + N**2
        return _power_1_5((1 if m is None else m) + n) * n**2 * digits
    if name == "polyhedron":
        if m is None:
            raise InvalidSetting("the polyhedron's count needs m, its number of rows")
        return _power_1_5(m + N) * N**2 * digits
    raise UnknownName(f"Table II has no set called {name!r}; it has {', '.join(SETS)}")


def _power_1_5(x: int) -> float:
    return x * sqrt(x)


def total_operations(
    name: str,
    N: int,
    *,
    epsilon: float,
    T1: int,
    k: int,
    K1: float,
    m: int | None = None,
    accuracy: float = 1e-6,
) -> float:
    """Table IV: K₁/ε³ + ⌊T₁/k⌋ oracle calls; K₁ is the cost of one iteration's gradient projections.

    >>> total_operations("box", 100, epsilon=1.0, T1=0, k=10, K1=5.0)
    5.0
    """
    if not epsilon > 0 or k < 1:
        raise InvalidSetting(f"epsilon must be > 0 and k >= 1, got {epsilon} and {k}")
    return K1 / epsilon**3 + (T1 // k) * oracle_operations(name, N, m=m, accuracy=accuracy)
