"""The audit's answers, by hand and against the oracles; groups, covariates, comparisons, report."""

from __future__ import annotations

import numpy as np
import pytest

from uncertainty_sets import KL, ChiSquare, CVaR, EVaR, Mapped
from uncertainty_sets.audit import Audit, Holds, compare
from uncertainty_sets.audit.families import family_of
from uncertainty_sets.audit.groups import Groups
from uncertainty_sets.errors import InvalidInput

REGION = np.repeat(["north", "south"], [900, 100])
ERRORS = np.r_[np.arange(900) % 20 == 0, np.arange(100) % 4 == 0]  # 5 and 25 per cent


def two(p, q):
    return float(np.sum(np.array(p) * np.log(np.divide(p, q))))


def test_the_mix_that_fails_by_hand():
    found = Audit(ERRORS, groups=REGION).group_radius_to_failure(KL, 0.15)
    assert found.radius == pytest.approx(two([0.5, 0.5], [0.9, 0.1]))
    assert [(each.group, round(each.now, 9), round(each.then, 9)) for each in found.shares] == [
        ("north", 0.9, 0.5), ("south", 0.1, 0.5),
    ]  # fmt: skip
    assert found.at_least < found.radius
    assert found.interval[0] < found.radius < found.interval[1]
    assert [each.holds for each in found.statements()] == [Holds.SAMPLE, Holds.PROVED, Holds.ASYMPTOTIC]
    assert "south went from 10 % to 50 %" in " ".join(str(found).split())


def test_worst_mixes():
    audit = Audit(ERRORS, groups=REGION)
    worst = audit.worst_groups()
    assert worst.value == pytest.approx(0.25)
    assert worst.at_most > 0.25
    within = audit.worst_groups(ChiSquare, 0.04)  # deviation of the means 0.06, times √0.04
    assert within.value == pytest.approx(0.07 + 0.2 * 0.06)
    assert within.value < within.at_most
    north, south = audit.translate(KL, 0.0)
    assert north == ("north", pytest.approx(0.9), np.inf)
    assert south == ("south", pytest.approx(0.1), pytest.approx(two([0.8, 0.2], [0.9, 0.1])))
    assert [row.group for row in audit.group_table()] == ["south", "north"]


def test_over_the_rows_an_audit_is_an_oracle_call():
    losses = np.random.default_rng(0).beta(1, 4, 500)
    audit, q = Audit(losses), np.full(500, 0.002)
    assert audit.worst(KL, 0.1).value == KL(q, 0.1).worst_case(losses).value
    assert audit.radius_to_failure("kl", 0.3).radius == KL(q, 1.0).radius_for(losses, 0.3).radius
    tail = audit.radius_to_failure(CVaR, 0.4)
    assert audit.worst(CVaR, tail.tail).value == pytest.approx(0.4)
    assert audit.worst(EVaR, audit.radius_to_failure(EVaR, 0.4).tail).value == pytest.approx(0.4)
    none = audit.radius_to_failure(KL, 1.5)
    assert not none.reached
    assert none.at_least == np.inf
    assert audit.radius_to_failure(KL, 0.01).radius == 0.0
    with pytest.raises(InvalidInput, match="no groups"):
        audit.worst_groups(KL, 0.1)


def test_bounds_other_than_zero_and_one_only_scale():
    losses = np.random.default_rng(0).beta(1, 4, 500)
    one, other = Audit(losses), Audit(10.0 * losses - 3.0, bounds=(-3.0, 7.0))
    for kind, size in ((KL, 0.1), (ChiSquare, 0.2), (CVaR, 0.2), ("hellinger", 0.02)):
        a, b = one.worst(kind, size), other.worst(kind, size)
        assert b.at_most == pytest.approx(10.0 * a.at_most - 3.0, rel=1e-6)
        assert b.interval == pytest.approx([10.0 * each - 3.0 for each in a.interval], rel=1e-6)
    a, b = one.radius_to_failure(KL, 0.3), other.radius_to_failure(KL, 0.0)
    assert (b.radius, b.at_least) == pytest.approx((a.radius, a.at_least), rel=1e-5)


def test_the_order_of_the_rows_and_copies_of_groups_do_not_matter():
    rng = np.random.default_rng(0)
    losses, group = rng.beta(1, 4, 600), rng.choice(list("abc"), 600)
    turn = rng.permutation(600)
    a = Audit(losses, groups=group).worst_groups(KL, 0.1)
    b = Audit(losses[turn], groups=group[turn]).worst_groups(KL, 0.1)
    assert b.value == pytest.approx(a.value)
    assert b.interval == pytest.approx(a.interval)
    columns = {name: group == name for name in "abc"}
    c = Audit(losses, groups=columns).worst_groups(KL, 0.1)
    assert (c.value, c.at_most) == pytest.approx((a.value, a.at_most))
    assert c.interval == pytest.approx(a.interval)


def test_overlapping_groups_are_a_mapped_set():
    rng = np.random.default_rng(0)
    member = rng.random((400, 3)) < 0.5
    member[~member.any(axis=1), 0] = True
    losses = rng.random(400)
    audit = Audit(losses, groups=member)
    share = member.sum(axis=0) / member.sum()
    mix = member.T / member.sum(axis=0)[:, None]
    expected = Mapped(KL(share, 0.1), mix).worst_case(losses)
    assert audit.worst_groups(KL, 0.1).value == pytest.approx(expected.value)


def test_effects_on_overlapping_groups_by_finite_differences():
    rng = np.random.default_rng(0)
    losses, member = rng.random(60), rng.random((60, 3)) < 0.5
    member[~member.any(axis=1), 0] = True
    rows, family = [np.flatnonzero(each) for each in member.T], family_of(KL)

    def least(weight, target):
        groups = Groups(list("abc"), rows, False, losses, weight / weight.sum())
        return groups, family.around(groups.share, 1.0).radius_for(groups.means, target)

    even = np.full(60, 1 / 60)
    groups, _ = least(even, 0.0)
    target = 0.5 * (groups.share @ groups.means + groups.means.max())
    groups, found = least(even, target)
    effects = groups.effects(family, found)
    assert effects.sum() == pytest.approx(0.0, abs=1e-12)
    for i in range(0, 60, 11):
        step = np.zeros(60)
        step[i] = 1e-6
        slope = (least(even + step, target)[1].radius - least(even - step, target)[1].radius) / 2e-6
        assert slope == pytest.approx(-60 * effects[i], abs=1e-4)


def test_small_groups_are_merged():
    group = np.repeat(["big", "large", "tiny", "small"], [500, 400, 40, 30])
    rows = Audit(np.arange(970) % 7 == 0, groups=group).group_table()
    assert {row.group for row in rows} == {"big", "large", "other groups (2 under 50 rows)"}
    one = Audit(np.arange(940) % 7 == 0, groups=group[:940])
    assert {row.group for row in one.group_table()} == {"big", "large", "tiny"}
    assert "Under 50 rows: tiny." in str(one.report(0.2))


def test_a_mix_that_few_rows_carry_has_no_asymptotic_interval():
    group = np.repeat(["many", "few"], [1000, 20])
    errors = np.r_[np.arange(1000) % 20 == 0, np.arange(20) % 2 == 0]
    audit = Audit(errors, groups=group)
    assert audit.groups.rows_behind(np.array([0.0, 1.0])) == pytest.approx(1000)  # the labels are sorted
    assert audit.groups.rows_behind(np.array([1.0, 0.0])) == pytest.approx(20)
    assert audit.group_radius_to_failure(KL, 0.06).interval is not None
    assert audit.group_radius_to_failure(KL, 0.45).interval is None


def test_weights_are_those_of_the_sample():
    losses = np.array([0.0, 0.2, 1.0, 0.4])
    weight = np.array([1.0, 2.0, 1.0, 1.0])
    repeated = Audit(losses[[0, 1, 1, 2, 3]])
    assert Audit(losses, sample_weight=weight).worst(KL, 0.2).value == pytest.approx(
        repeated.worst(KL, 0.2).value
    )
    assert Audit(losses, sample_weight=weight).mean == pytest.approx(repeated.mean)


def planted(n=4000):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, 3))
    cell = (Z[:, 0] > 1.0) & (Z[:, 1] > 0.0)
    return (rng.random(n) < np.where(cell, 0.5, 0.08)).astype(float), Z


def test_covariates_find_a_planted_cell():
    pytest.importorskip("sklearn")
    losses, Z = planted()
    audit = Audit(losses, covariates=Z, names=["age", "bmi", "dose"])
    part = audit.worst_subpopulation(0.08)
    assert 0.25 < part.at_least < part.estimate < 0.6
    world = audit.world(KL, 0.1)
    assert "age" in world.cells[0].rule
    assert "bmi" in world.cells[0].rule
    assert world.cells[0].interval[0] < 0.5 < world.cells[0].interval[1]
    assert [name for name, _ in world.shifts][-1] == "dose"
    assert sum(cell.share for cell in world.cells) == pytest.approx(1.0)
    assert sum(cell.weight for cell in world.cells) == pytest.approx(1.0)
    assert {each.holds for each in world.statements()} == {Holds.DESCRIPTION}
    with pytest.raises(InvalidInput, match="no covariates"):
        Audit(losses).world(KL, 0.1)


def test_what_covariates_find_is_no_more_than_there_is():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(1)
    losses = rng.random(1000)  # the covariates tell nothing
    part = Audit(losses, covariates=rng.normal(size=(1000, 2))).worst_subpopulation(0.1)
    assert part.estimate < 0.6
    assert part.at_least < 0.55


def test_compared_models():
    even = np.arange(1000) % 12 == 0
    uneven = np.r_[np.arange(900) % 15 == 0, np.arange(100) % 5 == 0]
    found = compare({"even": even, "uneven": uneven}, groups=REGION)
    [pair] = found.pairs
    [radius] = pair.crossings
    means = {
        name: [losses[:900].mean(), losses[900:].mean()] for name, losses in (("e", even), ("u", uneven))
    }
    values = [KL([0.9, 0.1], radius).worst_case(each).value for each in means.values()]
    assert values[0] == pytest.approx(values[1], abs=1e-6)
    assert (pair.first_is_better & pair.second_is_better).sum() == 0
    assert pair.first_is_better[-1]
    same = compare({"a": even, "b": even}, radii=[0.1, 0.5])
    assert "same worst cases" in str(same)
    with pytest.raises(InvalidInput, match="two models"):
        compare({"a": even})
    with pytest.raises(InvalidInput, match="no radius"):
        compare({"a": even, "b": uneven}, "cvar")


def test_the_paired_error_is_that_of_many_samples():
    """The standard error of a difference of worst cases, against its spread over 400 samples."""
    rng = np.random.default_rng(0)
    differences, halves = [], []
    for _ in range(400):
        u = rng.random(800)
        found = compare({"a": u**3, "b": np.clip(u + 0.1 * rng.random(800) - 0.3, 0.0, 1.0)}, radii=[0.1])
        differences.append(found.pairs[0].difference[0])
        halves.append(found.pairs[0].interval[0])
    assert np.mean(halves) / 1.96 == pytest.approx(np.std(differences), rel=0.15)


def test_a_report_says_it_in_words_and_never_without_what_holds_it():
    report = Audit(ERRORS, groups=REGION).report(0.12, radius=0.05)
    text = " ".join(str(report).split())
    assert "The error rate is 7 % of 1,000 rows." in text
    assert "It reaches 12 % if south grew from 10 % to 35 % of the cases (KL 0.227)." in text
    assert "while south is below" in text
    assert text.count("[in this sample, proved]") == 2
    assert np.isclose(report.curve.values[0], 0.07)
    assert (np.diff(report.curve.values) >= -1e-12).all()
    assert (report.curve.at_most >= report.curve.values).all()
    plain = " ".join(str(Audit(ERRORS).report(0.12)).split())
    assert "give groups or covariates" in plain
    assert "It stays below 50 %" in str(Audit(ERRORS, groups=REGION).report(0.5))
    assert "no shift is needed" in str(Audit(ERRORS).report(0.05))
    tail = Audit(np.random.default_rng(0).random(500)).report(0.7, kind="cvar")
    assert "worst 10 % of the cases can" in " ".join(str(tail).split())
    assert "Nothing is proved" in str(Audit(np.arange(5.0), bounds=None).report(3.0))


def test_a_report_does_not_contradict_itself_where_groups_are_small():
    region = np.repeat(["a", "b", "c"], [400, 60, 60])
    errors = np.r_[np.arange(400) % 20 == 0, np.arange(120) % 3 == 0]
    audit = Audit(errors, groups=region)
    assert repr(audit) == f"Audit(520 rows, mean loss {errors.mean():.4g}, 3 groups; call .report(threshold))"
    limit = audit.mean_at_most() + 0.001
    assert audit.group_radius_to_failure(KL, limit).at_least == 0.0
    text = " ".join(str(audit.report(limit)).split()).lower()
    assert text.count("how small a shift may be enough is not bounded") == 2
    assert "not excluded" not in text
    with pytest.raises(InvalidInput, match=r"threshold 30 .* did you mean 0\.3\?"):
        audit.report(30.0)
