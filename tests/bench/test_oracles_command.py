"""`python -m bench oracles` on tiny sizes, its certificates, and the models it races against."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.__main__ import commands, run
from bench.measuring import cases, models
from bench.oracles import __main__ as oracles
from bench.oracles import certificates
from bench.oracles import process as oracle_process
from uncertainty_sets import Polyhedron, available_sets, get_set


@pytest.mark.parametrize("size", [1, 2, 10, 300])
@pytest.mark.parametrize("level", cases.LEVELS)
@pytest.mark.parametrize("case", cases.ALL, ids=lambda case: case.label)
def test_certificates_hold_when_recomputed(case, level, size):
    rng = np.random.default_rng(size)
    q, f = cases.center(size, rng), cases.losses(size, rng)
    uncertainty_set = case.make(q, level, rng)
    answer = uncertainty_set.worst_case(f)
    assert abs(certificates.gap(uncertainty_set, f, answer)) <= certificates.allowed(f)


@pytest.mark.parametrize("case", cases.ALL, ids=lambda case: case.label)
def test_other_multipliers_prove_less(case):
    rng = np.random.default_rng(0)
    q, f = cases.center(30, rng), cases.losses(30, rng)
    uncertainty_set = case.make(q, "middle", rng)
    answer = uncertainty_set.worst_case(f)
    # The bound of a power divergence follows from the margin alone; eta is how fast it grows with the radius.
    first = "margin" if "margin" in answer.dual else next(iter(answer.dual))
    moved = answer.dual[first][::-1] if first == "order" else answer.dual[first] * 1.1 + 0.05
    answer.dual = {**answer.dual, first: moved}
    assert certificates.gap(uncertainty_set, f, answer) > certificates.allowed(f)


def test_every_closed_form_of_the_registry_has_a_case():
    rng = np.random.default_rng(0)
    found = {case.make(cases.center(6, rng), "middle", rng).name for case in cases.closed_forms()}
    assert found == {name for name in available_sets() if get_set(name).has_closed_form}


@pytest.mark.parametrize("case", cases.closed_forms(), ids=lambda case: case.label)
def test_models_have_the_same_optimum(case):
    rng = np.random.default_rng(1)
    q, f = cases.center(8, rng), cases.losses(8, rng)
    uncertainty_set = case.make(q, "middle", rng)
    theirs = models.model(uncertainty_set)
    assert theirs.solve(f) == pytest.approx(uncertainty_set.worst_case(f).value, abs=1e-4)
    assert (theirs.calls, theirs.failures) == (1, 0)


def test_the_polyhedron_model_has_the_same_optimum():
    rng = np.random.default_rng(2)
    D, f = rng.normal(size=(3, 8)), rng.normal(size=8)
    polyhedron = Polyhedron(D, D.mean(axis=1) + 0.05)
    theirs = models.model(polyhedron, "HIGHS")
    for warm in (True, False):
        assert theirs.solve(f, warm=warm) == pytest.approx(polyhedron.worst_case(f).value, abs=1e-6)


def test_a_failed_solve_is_counted():
    rng = np.random.default_rng(3)
    q = cases.center(5, rng)
    theirs = models.model(cases.BOX.make(q, "middle", rng), "NO SUCH SOLVER")
    assert np.isnan(theirs.solve(rng.normal(size=5)))
    assert theirs.failures == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_the_command_runs_and_writes_its_numbers(tmp_path, capsys):
    parts = ["exact", "argsort", "cd-norm", "small", "batch", "rows", "clarabel", "programs", "polyhedron"]
    parts += ["plugins", "ragged", "line", "radius-for"]
    file = tmp_path / "numbers.json"
    assert oracles.main(["--quick", "--scale", "1e-5", "--json", str(file), "--only", *parts]) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["command"] == "oracles"
    assert set(document["machine"]) >= {"date", "processor", "cores", "versions"}
    exact = [row for row in document["rows"] if row["group"].startswith("exactness")]
    assert len(exact) == 2 * len(cases.ALL)
    assert all(row["met"] for row in exact)
    for way in ("one thread", "all cores", "all cores, out="):
        assert sum(row["what"].endswith(f": {way}") for row in document["rows"]) == 3 * len(cases.ALL)
    assert "targets met" in capsys.readouterr().out


def test_a_process_of_its_own_can_be_asked():
    assert oracle_process.run("import json, sys; print(json.dumps(sys.argv[1:]))", "a", "b") == ["a", "b"]


def test_memory_is_a_number_or_said_to_be_unknown():
    rows = oracle_process.memory(1_000, lambda _: None)
    assert len(rows) == 3
    assert all(row.met or row.note for row in rows)


def test_every_command_is_found_and_says_what_it_does(capsys):
    assert {"oracles", "complexity", "compare"} <= set(commands())
    assert all(commands().values())
    assert run([]) == 0
    assert run(["no-such-command"]) == 2
    capsys.readouterr()
