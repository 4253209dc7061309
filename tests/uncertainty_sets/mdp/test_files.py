"""Problems as CSV: they come back unchanged, and a bad line is named."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp import MDP, files, problems
from uncertainty_sets.mdp.files import read_csv, write_csv, write_policy, write_values

HEADER = "idstatefrom,idaction,idstateto,probability,reward"
GOOD = ["0,0,0,0.25,1", "0,0,1,0.75,-2", "1,3,1,1,0"]


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes((end.join(lines) + end).encode())
    return path


def assert_same(first: MDP, second: MDP) -> None:
    """Bit by bit; rewards may be stored per row in one and per successor in the other."""
    for name in ("state_rows", "actions", "indptr", "indices", "probabilities"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(rewards_of(first), rewards_of(second))
    assert first.discount == second.discount


def rewards_of(model: MDP) -> np.ndarray:
    by_row = np.repeat(model.row_rewards, np.diff(model.indptr))
    return by_row if model.entry_rewards is None else by_row + model.entry_rewards


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "problem.csv"


def test_a_problem_is_read(path: Path) -> None:
    model = read_csv(write(path, HEADER, *GOOD), discount=0.9)
    assert model.state_rows.tolist() == [0, 1, 2]
    assert model.actions.tolist() == [0, 3]
    assert model.indices.tolist() == [0, 1, 1]
    assert model.probabilities.tolist() == [0.25, 0.75, 1.0]
    assert rewards_of(model).tolist() == [1.0, -2.0, 0.0]
    assert model.discount == 0.9


@pytest.mark.parametrize(
    "lines",
    [
        ("reward,probability,idstateto,idaction,idstatefrom", "1,.25,0,0,0", "-2,.75,1,0,0", "0,1,1,3,1"),
        (f"note,{HEADER},more", "a b,0,0,0,0.25,1,x", ",0,0,1,0.75,-2,", "n,1,3,1,1,0,1"),
        (HEADER.upper().replace(",", " , "), " 0, 0, 0, 2.5e-1, 1", "0,0,1,0.75,-2", "1,3,1,1,0"),
        ('"' + HEADER.replace(",", '","') + '"', '"0","0","0","0.25","1"', "0,0,1,0.75,-2", "1,3,1,1,0"),
        ("\ufeff" + HEADER, *GOOD),
        (HEADER, "", GOOD[2], "", GOOD[1], GOOD[0], ""),
        (HEADER, "0,0,0,0.125,1", "0,0,0,0.125,1", *GOOD[1:]),
        (f"{HEADER},idoutcome", *(f"{line},4" for line in GOOD)),
        (HEADER, "0.0,0,0,0.25,1", "0,0e0,1,0.75,-2", "1,3,1,1,0"),
    ],
    ids=["order", "extra", "spaces", "quotes", "mark", "blank", "twice", "outcome", "floats"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_files_may_look_like(path: Path, lines: tuple[str, ...], end: str) -> None:
    expected = MDP.from_table([0, 0, 1], [0, 0, 3], [0, 1, 1], [0.25, 0.75, 1.0], [1.0, -2.0, 0.0], 0.5)
    assert_same(read_csv(str(write(path, *lines, end=end)), 0.5), expected)


@pytest.mark.parametrize(
    "model",
    [
        problems.garnet(60, 4, 7, seed=0),
        problems.inventory(40, 6, demand=3.3),
        problems.gridworld(),
        problems.machine_replacement(),
        MDP(np.random.default_rng(1).dirichlet(np.ones(9), (9, 4)), np.ones((9, 4)) / 3, 0.7),
        MDP([[[1.0, 0.0]], [[1e-300, 1.0]]], [[1e-310], [-1e300]], 0.0),
        MDP.from_table([0, 0, 1], [5, 5, 2], [1, 0, 0], [1.0, 0.0, 1.0], [0.1, 0.7, 1e-17], 0.3),
    ],
    ids=repr,
)
def test_problems_come_back_unchanged(path: Path, model: MDP) -> None:
    write_csv(model, path)
    again = read_csv(path, model.discount)
    assert_same(again, model)
    write_csv(again, path.with_suffix(".again"))
    assert path.read_bytes() == path.with_suffix(".again").read_bytes()


def test_probabilities_of_a_model_make_the_same_model() -> None:
    """Rows whose sum is 1 but for rounding are not divided again."""
    rng = np.random.default_rng(7)
    for size in (2, 3, 10, 100, 1000):
        model = MDP(rng.dirichlet(np.full(size, 0.3), (size, 2)), rng.normal(size=(size, 2)), 0.9)
        again = MDP(model.probabilities.reshape(size, 2, size), model.per_state(model.row_rewards), 0.9)
        assert_same(again, model)


def test_more_lines_than_are_written_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LINES_AT_ONCE", 7)
    model = problems.garnet(10, 2, 3, seed=0)
    write_csv(model, path)
    assert_same(read_csv(path, 0.95), model)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no column idstatefrom, idaction, .*: line 1 must be a header with .*; it is empty"),
        ([GOOD[0]], "has no column idstatefrom, .*; it is 0,0,0,0.25,1"),
        (["idstatefrom,idaction,probability,reward"], "has no column idstateto: line 1 must be a header"),
        ([HEADER.replace(",", ";")], "has no column idstatefrom, .*; it is idstatefrom;idaction"),
        ([f"{HEADER},reward"], "has the column reward twice in its header"),
        ([HEADER], "has a header and no line below it"),
        ([HEADER, GOOD[0], "0,0,1,many,0"], "line 3: probability must be a number, got 'many'"),
        ([HEADER, "0,0,1,,0"], "line 2: probability must be a number, got ''"),
        ([HEADER, "", GOOD[0], "", "0,0,1,0.75"], "line 5: reward is missing: '0,0,1,0.75' has 4 fields"),
        ([HEADER, GOOD[0], "-1,0,1,1,0"], "line 3: idstatefrom must be a whole number from 0 .*, got '-1'"),
        ([HEADER, GOOD[0], "1,-2,1,1,0"], "line 3: idaction must be a whole number from 0 .*, got '-2'"),
        ([HEADER, GOOD[0], "1,0,1.5,1,0"], "line 3: idstateto must be a whole number .*, got '1.5'"),
        ([HEADER, "9007199254740992,0,0,1,0"], r"line 2: idstatefrom must be .* to 2\*\*53 - 1, got '9007"),
        ([HEADER, "inf,0,0,1,0"], "line 2: idstatefrom must be finite, got 'inf'"),
        ([HEADER, GOOD[0], GOOD[1], "1,0,1,nan,0"], "line 4: probability must be finite, got 'nan'"),
        ([HEADER, "0,0,0,1,-inf"], "line 2: reward must be finite, got '-inf'"),
        ([HEADER, "0,0,0,1_0,0"], "is not a table of numbers separated by commas"),
        ([f"{HEADER},idoutcome", "0,0,0,1,0,0", "0,0,0,1,0,1"], r"several outcomes .*\(column idoutcome\)"),
        ([f"{HEADER},idoutcome", "0,0,0,1,0,x"], "line 2: idoutcome must be a number, got 'x'"),
        ([HEADER, *GOOD[1:]], "the probabilities of state 0, action 0 sum to 0.75, not to 1"),
        ([HEADER, *GOOD[:2]], "no line begins in state 1: every state from 0 to 1 needs an action"),
        ([HEADER, "0,0,0,1.5,0", "0,0,0,-0.5,0"], r"must be between 0 and 1, got 1.5 for next state 0"),
        (
            [HEADER, "0,0,0,1,0", "999999999999999,0,0,1,0"],
            r"no line begins in state 1, 2, …: every .* 9{15}",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told(path: Path, lines: list[str], message: str) -> None:
    write(path, *lines)
    with pytest.raises(InvalidParameter, match=message) as caught:
        read_csv(path, 0.9)
    assert str(caught.value).startswith(str(path))


def test_files_that_are_not_text(path: Path) -> None:
    for content in (b"\x1f\x8b\x08\x00\xff\xfe", HEADER.encode() + b"\n0,0,0,1,\xff\n"):
        path.write_bytes(content)
        with pytest.raises(InvalidParameter, match=r"is not a text in UTF-8 \(.*\); unpack compressed files"):
            read_csv(path, 0.9)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_csv(path.with_name("nowhere.csv"), 0.9)


def test_a_bad_discount_is_not_blamed_on_the_file(path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"^discount must be"):
        read_csv(write(path, HEADER, *GOOD), 1.0)


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_policy_is_written(path: Path) -> None:
    model = read_csv(write(path, HEADER, *GOOD, "0,7,1,1,0"), 0.9)
    write_policy(path, model, [1 / 3, 2 / 3, 1.0])
    assert rows_of(path) == [
        ["idstatefrom", "idaction", "probability"],
        ["0", "0", repr(1 / 3)],
        ["0", "7", repr(2 / 3)],
        ["1", "3", "1.0"],
    ]
    write_policy(path, model, np.array([0.0, 1.0, 1.0]))
    assert rows_of(path)[1:] == [["0", "7", "1.0"], ["1", "3", "1.0"]]


def test_a_policy_as_a_table_is_written(path: Path) -> None:
    write_policy(path, problems.forest(), [[0, 1], [1, 0], [0.5, 0.5]])
    assert [line[:2] for line in rows_of(path)[1:]] == [["0", "1"], ["1", "0"], ["2", "0"], ["2", "1"]]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1, 0], r"each of the 6 state-actions, \(6,\) or \(3, 2\); got shape \(3,\)"),
        ([1, 0, 1, 0, 1, 1], r"must sum to 1; got \[1. 1.\] for state 2"),
        ([1, 0, 2, -1, 1, 0], r"must not be negative .* got \[ 2. -1.\] for state 1"),
        ([float("nan"), 0, 1, 0, 1, 0], r"got \[nan  0.\] for state 0"),
    ],
)
def test_a_bad_policy_is_refused(path: Path, policy: list[float], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        write_policy(path, problems.forest(), policy)
    assert not path.exists()


def test_a_bad_policy_of_states_with_different_actions(path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"each of the 3 state-actions, \(3,\); got shape \(2,\)"):
        write_policy(path, problems.inventory(2), [1.0, 1.0])


def test_values_are_written(path: Path) -> None:
    write_values(path, [0.1, 2.0], lower=[0.0, 1.9], upper=np.array([1e-20, 2.5]))
    assert path.read_text() == "idstate,value,lower,upper\n0,0.1,0.0,1e-20\n1,2.0,1.9,2.5\n"
    with pytest.raises(InvalidParameter, match=r"got value \(1,\), lower \(2,\), upper \(1,\)"):
        write_values(path, [1.0], [1.0, 2.0], [1.0])
    with pytest.raises(InvalidParameter, match="must be vectors with a number per state"):
        write_values(path, 1.0, 1.0, 1.0)


def test_a_file_is_replaced_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("old")
    monkeypatch.setattr(files, "LINES_AT_ONCE", 1)

    class Failing:
        size = 3

        def __getitem__(self, part: slice) -> np.ndarray:
            if part.start:
                raise KeyboardInterrupt
            return np.zeros(1)

    with pytest.raises(KeyboardInterrupt):
        files._write(path, ["a"], (Failing(),))
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    write_values(path, [1.0], [1.0], [1.0])
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
def test_links_and_pipes_stay(path: Path) -> None:
    link = path.with_name("link.csv")
    link.symlink_to(path)
    write_values(link, [1.0], [1.0], [1.0])
    assert link.is_symlink()
    assert path.read_text().startswith("idstate")
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_values(pipe, [1.0], [1.0], [1.0])
        assert os.read(reader, 100).startswith(b"idstate")
    finally:
        os.close(reader)
    assert pipe.is_fifo()
