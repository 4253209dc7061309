"""The paper's formulas, by hand."""

from __future__ import annotations

import math
from functools import partial

import pytest

from fdro_core.aspire import theory
from fdro_core.errors import InvalidSetting
from uncertainty_sets.errors import UnknownName

COMMON = {
    "M": 2,
    "N": 4,
    "tau": 3,
    "T1": 24,
    "L": 1.0,
    "rho1": 0.5,
    "rho2": 0.5,
    "sigma1": 0.1,
    "sigma2": 0.1,
    "d_bar": 2.0,
    "k_d": 0.5,
    "d5": 1.0,
    "d6_": 3.0,
}


def test_theorem_1_by_hand():
    # dual: (4·2·.01/.25 + 4·4·.01/.25)/.1 = 9.6; primal: 4·(3 + .5)²·(2 + .5·2)·1/.1 + 27^(1/3) at S = 2
    assert theory.iterations(0.1, S=2, **COMMON) == pytest.approx((4 * 3.5**2 * 3 / 0.1 + 3.0) ** 3)
    small = COMMON | {"d_bar": 0.0, "k_d": 0.0, "T1": 0, "tau": 1}
    assert theory.iterations(0.1, S=2, **small) == pytest.approx(9.6**3)


def test_the_rate_is_one_over_epsilon_cubed():
    small, smaller = (theory.iterations(eps, S=1, **COMMON) for eps in (1e-6, 1e-7))
    assert smaller / small == pytest.approx(1e3, rel=1e-3)


def test_theorem_3_lies_between_its_ends():
    ends = [theory.iterations(0.1, S=S, **COMMON) for S in (1, 4)]
    mixed = [theory.iterations_adaptive(0.1, s=1, share_few=share, **COMMON) for share in (1.0, 0.5, 0.0)]
    assert mixed[0] == pytest.approx(ends[0])
    assert mixed[2] == pytest.approx(ends[1])
    assert mixed[2] < mixed[1] < mixed[0]
    with pytest.raises(InvalidSetting):
        theory.iterations_adaptive(0.1, s=1, share_few=1.1, **COMMON)


def test_theorem_1_step_sizes_cannot_be_met_with_setting_2():
    assert not any(
        theory.setting_2_is_possible(L=L, rho=rho) for L in (0.1, 1.0, 9.0) for rho in (1e-6, 1.0, 1e6)
    )
    assert theory.plane_dual_step_limit(L=1.0, c1=0.5, tau=1, k1=1e-3, N=2) == pytest.approx(1.0)
    assert theory.plane_dual_step_limit(L=1.0, c1=0.5, tau=2, k1=1.0, N=2) == pytest.approx(1 / 60)


def test_gamma_and_step_size():
    kw = {"L": 1.0, "rho1": 1.0, "rho2": 1.0, "c1": 1.0, "c2": 1.0}
    # 2 + (3·1·2/2 - (2-1)/2)/(4 + 8) = 2 + 2.5/12
    assert theory.gamma(**kw, N=2, S=1, tau=1, k1=1.0) == pytest.approx(2 + 2.5 / 12)
    assert theory.step_size(**kw, planes=1, N=2, gamma_=2.0) == pytest.approx(2 / (1 + 1 + 2 + 8 * (2 + 4)))


def test_traffic():
    count = theory.bits_theorem_2(S=2, p=10, planes=3, N=5, iterations=7, plane_updates=2)
    assert count == 32 * (7 * 2 * 24 + 2 * 25 * 3)
    assert theory.bits_sent(S=2, p=10, iterations=7) == 32 * 7 * 2 * 27


def test_table_2():
    d = math.log(10)
    ops = partial(theory.oracle_operations, N=10, accuracy=0.1)
    assert ops("box") == ops("cd-norm") == pytest.approx(10 * d)
    assert ops("ellipsoid") == pytest.approx(2**0.5 * 10 * (100 + 1 + 100) * d)
    assert ops("polyhedron", m=5) == pytest.approx(15**1.5 * 100 * d)
    assert ops("kl") == pytest.approx(10**3.5 * d)
    assert ops("wasserstein-1") == pytest.approx(111**1.5 * 110**2 * d)
    for bad in (lambda: ops("polyhedron"), lambda: theory.oracle_operations("box", 0)):
        with pytest.raises(InvalidSetting):
            bad()
    with pytest.raises(UnknownName, match="box, ellipsoid"):
        ops("ball")


def test_table_4():
    total = theory.total_operations("kl", 10, epsilon=0.1, T1=25, k=10, K1=3.0, accuracy=0.1)
    assert total == pytest.approx(3000 + 2 * 10**3.5 * math.log(10))
    with pytest.raises(InvalidSetting):
        theory.total_operations("kl", 10, epsilon=0.0, T1=1, k=1, K1=1.0)
