"""The engine on Flower, beyond the shared suite: forgetful nodes, strangers, nodes that leave and return."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest

from fdro_core import AspireModels, FlowerEngine, NamedProblem, ProblemFrom, VirtualEngine, solve
from fdro_core.baselines import DRFAProx, FedAvg
from fdro_core.engines.flower_ import package, wire
from fdro_core.engines.flower_.client import Node, client_app, which_worker
from fdro_core.engines.flower_.mailbox import Nodes
from fdro_core.engines.flower_.problem import Allowed, describe, factory_of
from fdro_core.errors import (
    ClusterUnreachable,
    InvalidProblem,
    InvalidSetting,
    MalformedMessage,
    WorkerWarning,
)
from tests.fdro_core.engine_kinds import N, StopWhen, happened, needs_flower, quadratics
from tests.fdro_core.flower_loopback import LocalNodes
from tests.fdro_core.flower_nodes import FORGETFUL, flower_engine
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems
from uncertainty_sets.errors import BackendMissing

HERE = __name__


def quadratic(centre, node_config, scale=1.0):
    """A problem by name; the node's own config moves it."""
    return Quadratic([centre + node_config.get("shift", 0.0), 1.0], scale)


def other_factory(centre):
    return Quadratic([centre, 1.0])


def named_app():
    return client_app([quadratic])


def evil_app():
    """Worker 1 answers with an array that is not what it says; the others are honest."""
    app, honest = package.load(), Node(lambda *_: None, details=True, keep=1, largest=2**20)
    node = client_app([quadratic])

    def reply(message, context):
        answer = node(message, context)
        header = answer.content["fdro"]
        if which_worker(context.node_config) == 1 and "reply.arrays" in answer.content:
            for array in answer.content["reply.arrays"].values():
                array.shape = (10**9,)
        assert header["version"] == wire.VERSION
        return app.Message(answer.content, reply_to=message)

    made = honest.app()
    made._registered_funcs = dict.fromkeys(made._registered_funcs, reply)
    return made


@pytest.fixture
def local():
    """Makes nodes of an app, and closes them."""
    made = []

    def nodes(count, app="named_app"):
        made.append(LocalNodes(count, f"{HERE}:{app}", [HERE]))
        return made[-1]

    yield nodes
    for each in made:
        each.close()


def engine(local_nodes, **settings):
    return FlowerEngine(
        local_nodes.grid, **{"poll": 0.002, "restart_after": 0.01, "patience": 60.0} | settings
    )


PROBLEMS = [NamedProblem(f"{HERE}:quadratic", centre=float(j)) for j in range(3)]
SAME = [Quadratic([float(j), 1.0]) for j in range(3)]

# -- state at the master ------------------------------------------------------------------------------


@needs_flower
@pytest.mark.parametrize("settings", [{}, {"batch_size": 4}, {"local_steps": 3}], ids=str)
def test_a_client_app_that_is_started_anew_for_every_message(settings, aspire, tmp_path_factory):
    problems, box = softmax_problems(N), middle_box(N)
    config = aspire(active_workers=N, iterations=25, **settings)
    forgetful = flower_engine(tmp_path_factory, FORGETFUL)(patience=60.0)
    one = solve(problems, box, algorithm=config, engine=VirtualEngine())
    other = solve(problems, box, algorithm=config, engine=forgetful)
    assert np.abs(one.w - other.w).max() <= 1e-12
    assert np.abs(one.losses - other.losses).max() <= 1e-12
    assert not [entry for entry in other.history if entry["event"] != "report"]


@needs_flower
@pytest.mark.parametrize(
    "config", [FedAvg(iterations=12), DRFAProx(iterations=12)], ids=lambda c: type(c).__name__
)
def test_baselines_on_forgetful_nodes(config, tmp_path_factory):
    problems, box = softmax_problems(N), middle_box(N)
    forgetful = flower_engine(tmp_path_factory, FORGETFUL)(patience=60.0)
    one = solve(problems, box, algorithm=config, engine=VirtualEngine())
    other = solve(problems, box, algorithm=config, engine=forgetful)
    assert np.abs(one.w - other.w).max() <= 1e-12


# -- problems by name ---------------------------------------------------------------------------------


@needs_flower
def test_problems_by_name_are_made_at_the_nodes(local):
    config = AspireModels(active_workers=3, iterations=40)
    result = solve(PROBLEMS, middle_box(3), algorithm=config, engine=engine(local(3)))
    here = solve(SAME, middle_box(3), algorithm=config)
    assert np.abs(result.w - here.w).max() <= 1e-12
    same = [ProblemFrom(quadratic, centre=float(j)) for j in range(3)]
    again = solve(same, middle_box(3), algorithm=config, engine=engine(local(3)))
    assert np.abs(again.w - here.w).max() <= 1e-12
    virtual = solve(PROBLEMS, middle_box(3), algorithm=config)  # the same names on another engine
    assert np.abs(virtual.w - here.w).max() <= 1e-12


@needs_flower
def test_a_node_makes_no_other_problem_than_its_app_allows(local):
    wrong = [*PROBLEMS[:2], NamedProblem(f"{HERE}:other_factory", centre=2.0)]
    with pytest.raises(InvalidProblem, match=r"makes no problems with .*other_factory.*allows .*:quadratic"):
        solve(wrong, middle_box(3), engine=engine(local(3)))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Quadratic([0.0]), "Flower carries no pickles"),
        (lambda: Quadratic([0.0]), "Flower carries no pickles"),
        (ProblemFrom(quadratic, 0.0), "arguments by name"),
        (ProblemFrom(lambda: Quadratic([0.0])), "no function of a module"),
    ],
)
def test_problems_that_only_a_pickle_could_carry(source, words):
    with pytest.raises(InvalidProblem, match=words):
        describe(0, AspireModels().worker(0, source))


@pytest.mark.parametrize("name", ["", "load", "a b:load", "module:", ":load", 3])
def test_names_of_problems_are_checked(name):
    with pytest.raises(InvalidProblem, match=r'like "package\.module:function"'):
        NamedProblem(name)
    with pytest.raises(InvalidProblem, match="a set among its arguments"):
        NamedProblem("a:b", rows={1, 2})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "os:system"}, "is not from fdro_core"),
        ({"algorithm": "fdro_core.files:write"}, "no algorithm"),
        ({"algorithm": "fdro_core.aspire.models.algorithm:make_worker"}, "is no dataclass"),
        ({"algorithm": "fdro_core.nowhere:Thing"}, "no algorithm"),
        (
            {"algorithm": "fdro_core.engines.delays:Constant", "settings": '{"dict": [["seconds", 1.0]]}'},
            "is no algorithm",
        ),
        ({"settings": '{"dict": [["nonsense", 1]]}'}, "does not take these settings"),
        ({"settings": "["}, "cannot be read"),
        ({"settings": '{"list": []}'}, "no dict"),
        ({"problem": 3}, "incomplete"),
    ],
)
def test_a_node_runs_algorithms_of_fdro_only(changes, words):
    description = describe(0, AspireModels().worker(0, PROBLEMS[0])) | changes
    with pytest.raises(MalformedMessage, match=words):
        factory_of(description, 0, Allowed([quadratic]), {})


def test_the_node_config_is_the_nodes_own():
    described = describe(
        1, AspireModels().worker(1, NamedProblem(f"{HERE}:quadratic", centre=1.0, node_config={"shift": 9.0}))
    )
    worker = factory_of(described, 1, Allowed([f"{HERE}:quadratic"]), {"shift": 2.0})()
    assert worker.problem.centre[0] == 3.0
    assert worker.index == 1


def test_algorithms_that_cannot_be_described():
    for factory in (partial(Quadratic, [0.0]), lambda: None):
        with pytest.raises(InvalidSetting, match="describes a worker by its algorithm"):
            describe(0, factory)


# -- nodes ----------------------------------------------------------------------------------------------


@needs_flower
def test_a_node_that_leaves_loses_its_worker_until_another_takes_its_place(local):
    nodes = local(3)
    config = AspireModels(active_workers=1, iterations=10**6, tolerance=0.0, report_interval=4)
    seen = []

    def leave_and_join(run, entry):
        seen.append(entry["event"])
        if len(seen) == 5:
            nodes.leave(nodes.ids[2])
        if entry["event"] == "worker-lost":
            assert "away" in entry["reason"]
            nodes.join({"worker": 2})

    stop = StopWhen("worker-lost", "worker-back", after=300)
    result = solve(
        PROBLEMS, middle_box(3), algorithm=config, engine=engine(nodes), observers=[leave_and_join, stop]
    )
    assert [entry["worker"] for entry in happened(result, "worker-back")] == [2]
    best = solve(SAME, middle_box(3)).objective
    assert result.objective == pytest.approx(best, rel=1e-3)


@needs_flower
def test_the_run_goes_on_without_a_node_that_stays_away(local):
    nodes = local(3)

    def leave(run, entry):
        if entry["iteration"] >= 8:
            nodes.leave(nodes.ids[2])

    config = AspireModels(active_workers=1, iterations=200, tolerance=0.0, report_interval=4)
    short = engine(nodes, patience=5.0, restarts=1)
    result = solve(PROBLEMS, middle_box(3), algorithm=config, engine=short, observers=[leave])
    assert result.iterations == 200
    assert {entry["worker"] for entry in happened(result, "worker-lost")} == {2}
    assert happened(result, "report")[-1]["live_workers"] == 2


@needs_flower
def test_a_malformed_reply_is_its_workers_failure_and_not_the_masters(local):
    config = AspireModels(active_workers=1, iterations=60, tolerance=0.0, on_failed_start="warn")
    with pytest.warns(WorkerWarning, match="MalformedMessage"):
        result = solve(PROBLEMS, middle_box(3), algorithm=config, engine=engine(local(3, "evil_app")))
    assert {entry["worker"] for entry in happened(result, "worker-dropped")} == {1}
    assert result.iterations == 60


@needs_flower
def test_a_reply_that_flower_itself_cannot_read_is_its_senders_failure(local):
    """Flower reads replies together: the others are lost once, and never again."""
    nodes = local(3)
    pull, broken = nodes.grid.pull_messages, []

    def pull_or_raise(names):
        replies = pull(names)
        bad = [r for r in replies if r.metadata.src_node_id == nodes.ids[1] and r.has_content()]
        if bad and "reply.arrays" in bad[0].content and len(broken) < 40:
            broken.append(len(names))
            raise ValueError("Mismatch in children object IDs")
        return replies

    nodes.grid.pull_messages = pull_or_raise
    config = AspireModels(active_workers=1, iterations=150, tolerance=0.0, on_failed_start="warn")
    with pytest.warns(WorkerWarning, match=r"MalformedMessage.*cannot read"):
        result = solve(PROBLEMS, middle_box(3), algorithm=config, engine=engine(nodes))
    assert result.iterations == 150
    assert set(broken[1:]) <= {1}  # one by one, after the first
    assert {entry["worker"] for entry in result.history if "MalformedMessage" in entry.get("reason", "")} == {
        1
    }
    assert happened(result, "report")[-1]["live_workers"] == 2


@needs_flower
def test_waiting_for_nodes_ends_with_who_is_missing(local, caplog):
    with pytest.raises(
        ClusterUnreachable, match=r"1 worker of 3 had no node within 0.3 s .*: 2\. Start a SuperNode"
    ):
        solve(PROBLEMS, middle_box(3), engine=engine(local(2), join_timeout=0.3))


@needs_flower
def test_nodes_can_be_named_by_their_ids(local):
    nodes = local(3)
    config = AspireModels(active_workers=3, iterations=30)
    ids = nodes.ids[::-1]
    result = solve(PROBLEMS, middle_box(3), algorithm=config, engine=engine(nodes, nodes=ids))
    assert np.abs(result.w - solve(SAME, middle_box(3), algorithm=config).w).max() <= 1e-12
    with pytest.raises(InvalidSetting, match="another node for each of 3 workers"):
        solve(PROBLEMS, middle_box(3), engine=engine(nodes, nodes=ids[:2]))


def test_places_are_given_by_number_then_in_order():
    nodes = Nodes(3)
    assert nodes.seen([5, 3]) == [3, 5]
    assert nodes.introduced(3, -1) == ""
    assert nodes.introduced(5, 2) == ""
    assert nodes.of_worker == [None, None, 5]  # one with a number may still join
    assert nodes.seen([3, 5, 8]) == [8]
    assert nodes.introduced(8, -1) == ""
    assert nodes.of_worker == [3, 8, 5]
    assert nodes.complete
    assert "there are workers 0..2" in nodes.introduced(9, 3)
    nodes.gone(5)
    assert nodes.missing == [2]
    assert nodes.seen([3, 8, 11]) == [11]
    assert nodes.introduced(11, 2) == ""
    assert nodes.of_worker == [3, 8, 11]
    assert nodes.complete


def test_a_node_that_did_not_answer_is_asked_again():
    nodes = Nodes(1)
    assert nodes.seen([4]) == [4]
    assert nodes.seen([4]) == []
    nodes.unheard(4)
    assert nodes.seen([4]) == [4]
    nodes.introduced(4, 0)
    nodes.unheard(4)
    assert nodes.seen([4]) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"poll": 0.0}, "poll must be a finite number of seconds > 0"),
        ({"ttl": -1.0}, "ttl"),
        ({"join_timeout": "long"}, "join_timeout"),
        ({"message_mb": 0}, "message_mb"),
        ({"restarts": -1}, "restarts"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(InvalidSetting, match=words):
        FlowerEngine(**settings)


def test_without_a_grid_the_error_says_where_it_comes_from():
    with pytest.raises(InvalidSetting, match=r"the grid that Flower passes to a ServerApp.*fdro flower new"):
        solve(quadratics(), middle_box(3), engine=FlowerEngine())


def test_without_flower_the_error_names_the_extra(monkeypatch):
    package.load.cache_clear()
    for name in ("flwr", "flwr.app"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendMissing, match=r"fdro\[flower\]"):
        client_app([quadratic])


# -- two nodes with one number ------------------------------------------------------------------------


def test_who_claims_the_same_worker():
    nodes = Nodes(2)
    nodes.seen([3, 5, 8, 9])
    assert nodes.unanswered
    for node, says in ((3, 0), (5, 1), (8, 7), (9, -1)):
        nodes.introduced(node, says)
    assert not nodes.unanswered
    assert nodes.rivals() is None
    nodes.seen([3, 5, 8, 9, 11])
    assert nodes.unanswered
    assert "it is left out" in nodes.introduced(11, 1)
    assert nodes.rivals() == (1, [5, 11])
    nodes.gone(5)
    assert nodes.rivals() is None
    fixed = Nodes(2, [3, 5])
    fixed.seen([3, 5, 8])
    assert not fixed.unanswered


@needs_flower
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_two_live_nodes_with_one_number_end_the_run_before_the_first_step(first, local):
    """Whichever of them answers first: the genuine one must not be left out by chance."""
    nodes = local(0)
    genuine = [] if first else [nodes.join({"worker": j}) for j in range(3)]
    other = nodes.join({"worker": 0})
    genuine += [nodes.join({"worker": j}) for j in range(3)] if first else []
    with pytest.raises(InvalidSetting, match="both say that they are worker 0") as caught:
        solve(PROBLEMS, middle_box(3), algorithm=AspireModels(iterations=5), engine=engine(nodes))
    assert str(other) in str(caught.value)
    assert str(genuine[0]) in str(caught.value)
    named = engine(nodes, nodes=genuine)
    result = solve(PROBLEMS, middle_box(3), algorithm=AspireModels(iterations=5), engine=named)
    assert not [entry for entry in result.history if entry["event"] != "report"]
