"""`fdro oracle`: every way to give losses and parameters, every way to get them wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import asked, fdro
from uncertainty_sets import KL, CDNorm, UncertaintySet, Wasserstein1
from uncertainty_sets.base import SETS

pytestmark = pytest.mark.usefixtures("place")


LOSSES = [0.9, 1.4, 0.3, 2.0]


def write_losses(kind):
    path = Path(f"losses.{kind}")
    if kind == "npy":
        np.save(path, LOSSES)
    elif kind == "json":
        path.write_text(json.dumps(LOSSES))
    elif kind == "csv":
        path.write_text("\n".join(map(str, LOSSES)))
    elif kind == "tsv":
        path.write_text("worker\tloss\n" + "\n".join(f"{j}\t{f}" for j, f in enumerate(LOSSES)))
    else:
        path.write_text(" ".join(map(str, LOSSES)))
    return path


@pytest.mark.parametrize("kind", ["npy", "json", "csv", "tsv", "txt"])
def test_oracle_reads_every_format(kind):
    answer = asked("oracle", "--set", "kl", "--losses", write_losses(kind), "--radius", 0.1)
    expected = KL(np.full(4, 0.25), 0.1).worst_case(LOSSES)
    assert answer["p"] == expected.p.tolist()
    assert answer["value"] == expected.value
    assert answer["upper_bound"] == expected.upper_bound
    assert answer["backend"] == "closed-form"


def test_oracle_reads_stdin_and_text():
    for arguments, given in (("-", "0.9,1.4,0.3,2"), ("-", json.dumps(LOSSES)), ("0.9,1.4,0.3,2", None)):
        answer = asked("oracle", "-s", "kl", "-l", arguments, "--param", "radius=0.1", given=given)
        assert answer["value"] == pytest.approx(1.4271292436914402, abs=1e-12)


def test_oracle_takes_parameters_from_files():
    center, cost = np.array([0.4, 0.3, 0.2, 0.1]), np.abs(np.subtract.outer(range(4), range(4))) ** 1.5
    np.save("q.npy", center)
    np.savetxt("cost.csv", cost, delimiter=",")
    common = ("oracle", "-s", "wasserstein-1", "-l", "0.9,1.4,0.3,2", "--radius", 0.3)
    answer = asked(*common, "--center", "@q.npy", "--cost=@cost.csv")
    expected = Wasserstein1(center, 0.3, cost).worst_case(LOSSES)
    np.testing.assert_allclose(answer["p"], expected.p, atol=1e-12)


def test_oracle_matrices_in_words():
    answer = asked("oracle", "-s", "polyhedron", "-l", "3,2,1", "--D", "1,0,0;0,1,1", "--c", "0.25,0.9")
    np.testing.assert_allclose(answer["p"], [0.25, 0.75, 0.0], atol=1e-12)


def test_oracle_repeats_a_number_where_a_vector_is_needed():
    answer = asked("oracle", "-s", "box", "-l", "3,1,2", "--lower", "0.1", "--upper", "0.6")
    np.testing.assert_allclose(answer["p"], [0.6, 0.1, 0.3], atol=1e-12)


def test_oracle_batch():
    np.save("batch.npy", [LOSSES, LOSSES[::-1]])
    answer = asked("oracle", "-s", "kl", "-l", "batch.npy", "--radius", 0.1)
    assert answer["p"][0] == pytest.approx(answer["p"][1][::-1])
    assert "2 rows" in fdro("oracle", "-s", "kl", "-l", "batch.npy", "--radius", 0.1).stdout
    csv = fdro("oracle", "-s", "kl", "-l", "batch.npy", "--radius", 0.1, "-f", "csv")
    rows = np.loadtxt(csv.stdout.splitlines(), delimiter=",", skiprows=1)
    np.testing.assert_array_equal(rows, answer["p"])


def test_oracle_csv_keeps_names_and_prints_the_certificate_apart():
    Path("f.csv").write_text("site;loss\nA;1.0\nB;0.9\nC;0.8\n")
    answer = fdro(
        "oracle", "-s", "cd-norm", "-l", "f.csv", "--spread", "0.3,0.05,0.3", "--budget", 1, "-f", "csv"
    )
    lines = answer.stdout.splitlines()
    assert lines[0] == "entry,loss,center,p"
    assert [line.split(",")[0] for line in lines[1:]] == ["A", "B", "C"]
    expected = CDNorm(np.full(3, 1 / 3), [0.3, 0.05, 0.3], 1.0).worst_case([1.0, 0.9, 0.8])
    assert [float(line.split(",")[3]) for line in lines[1:]] == expected.p.tolist()
    assert "value 0.93," in answer.stderr
    assert "upper bound 0.93," in answer.stderr


def test_oracle_table_shows_the_largest_of_many():
    np.save("many.npy", np.arange(1000.0))
    text = fdro("oracle", "-s", "kl", "-l", "many.npy", "--radius", 1).stdout
    assert "the 20 of 1000 entries" in text
    assert "999" in text


def test_oracle_quiet_prints_the_value_alone():
    assert fdro("oracle", "-s", "kl", "-l", "1,2", "--radius", 0, "-q").stdout == "1.5\n"


def test_oracle_finds_plug_in_sets():
    class Fixed(UncertaintySet):
        name = "test-cli-fixed"

        def __init__(self, center, half_width, side: str = "both"):
            self.center, self.half_width, self.side = np.asarray(center), half_width, side
            if side not in {"both", "none"}:
                raise TypeError("side is both or none")

        def constraints(self, p):
            import cvxpy

            return [cvxpy.abs(p - self.center) <= (self.half_width if self.side == "both" else 0.0)]

    try:
        answer = asked("oracle", "-s", "test-cli-fixed", "-l", "1,2", "--half-width", "0.1")
        np.testing.assert_allclose(answer["p"], [0.4, 0.6], atol=1e-7)
        still = asked("oracle", "-s", "test-cli-fixed", "-l", "1,2", "--half-width", "0.1", "--side", "none")
        np.testing.assert_allclose(still["p"], [0.5, 0.5], atol=1e-7)
        common = ("oracle", "-s", "test-cli-fixed", "-l", "1,2", "--half-width")
        assert "side is both or none" in fdro(*common, "0.1", "--side", "left", code=2).stderr
        assert "half_width must be numbers" in fdro(*common, "wide", code=2).stderr
        assert "half_width" in fdro("sets", "test-cli-fixed").stdout
    finally:
        SETS.forget("test-cli-fixed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-s", "klx", "-l", "1,2"), "did you mean 'kl'?"),
        (("-s", "kl", "-l", "1,2,nan", "--radius", "1"), "losses[2] = nan"),
        (("-s", "kl", "-l", "1,inf", "--radius", "1"), "losses[1] = inf"),
        (("-s", "kl", "-l", "1,2", "--radius", "-1"), "radius must not be negative, got -1.0"),
        (("-s", "kl", "-l", "1,2", "--radus", "1"), "did you mean 'radius'?"),
        (("-s", "kl", "-l", "1,2", "--radius"), "--radius needs a value"),
        (("-s", "kl", "-l", "1,2", "--param", "radius"), "--param needs NAME=VALUE"),
        (("-s", "kl", "-l", "1,2", "--param", "size=2"), "kl has no parameter 'size'"),
        (("-s", "kl", "-l", "nofile.csv", "--radius", "1"), "there is no file nofile.csv"),
        (("-s", "kl", "-l", "1,a,2", "--radius", "1"), "--losses: entry 2 of 3 is 'a', not a number"),
        (("-s", "kl", "-l", "1,2;3,", "--radius", "1"), "--losses: entry 4 of 4 is empty"),
        (("-s", "kl", "-l", "a,b", "--radius", "1"), "--losses must be numbers, a file or -"),
        (("-s", "kl", "-l", '[1, "a"]', "--radius", "1"), "--losses: a list of numbers"),
        (("-s", "kl", "-l", "[1, 2", "--radius", "1"), "--losses, line 1: this is not JSON"),
        (("-s", "kl", "-l", "1,2", "--center", "0.5,half", "--radius", "1"),
         "--center: entry 2 of 2 is 'half', not a number"),
        (("-s", "kl", "-l", "sample.csv", "--radius", "1"), "did you mean 'samples.csv'?"),
        (("-s", "kl", "-l", ".", "--radius", "1"), "is a folder"),
        (("-s", "kl", "-l", "empty.csv", "--radius", "1"), "empty.csv is empty"),
        (("-s", "kl", "-l", "bad.csv", "--radius", "1"),
         "bad.csv, line 3, column 'loss': 'oops' is not a number"),
        (("-s", "kl", "-l", "hole.csv", "--radius", "1"),
         "hole.csv, line 3, column 'loss': the cell is empty"),
        (("-s", "kl", "-l", "bad.csv", "--radius", "1", "--column", "los"), "did you mean 'loss'?"),
        (("-s", "kl", "-l", "ragged.csv", "--radius", "1"), "line 2 has 2 cells, and the first line has 3"),
        (("-s", "kl", "-l", "bad.json", "--radius", "1"), "bad.json, line 1: this is not JSON"),
        (("-s", "kl", "-l", "binary.npy", "--radius", "1"), "neither npy nor text"),
        (("-s", "kl", "-l", "words.npy", "--radius", "1"), "words.npy holds <U1, and real numbers"),
        (("-s", "kl", "-l", "1,2", "--center", "0.5,0.6", "--radius", "1"), "center must sum to 1"),
        (("-s", "kl", "-l", "1,2", "--center", "0.5,0.25,0.25", "--radius", "1"),
         "losses must have 3 entries"),
        (("-s", "kl", "-l", "1,2", "--center", "even", "--radius", "1"), "center must be uniform, a list"),
        (("-s", "kl", "-l", "1,2", "--radius", "small"), "radius must be numbers"),
        (("-s", "kl", "-l", "cut.npy", "--radius", "1"), "cut.npy is a damaged npy file"),
        (("-s", "kl", "-l", "none.json", "--radius", "1"), "none.json has no numbers in it"),
        (("-s", "kl", "-l", "lists.json", "--radius", "1"), "a number for each name"),
        (("-s", "kl", "-l", " ", "--radius", "1"), "--losses is empty"),
        (("-s", "cd-norm", "-l", "1,2"), "cd-norm needs spread and budget"),
        (("-s", "kl", "-l", "1,2", "--radius", "1", "--backend", "clarabell"), "did you mean 'clarabel'?"),
        (("-s", "kl", "-l", "1,2", "--radius", "1", "--backend", "highs"), "has no exp cone"),
    ],
)  # fmt: skip
def test_oracle_mistakes(arguments, words):
    Path("empty.csv").write_text("\n")
    Path("bad.csv").write_text("site,loss\nA,1\nB,oops\n")
    Path("hole.csv").write_text("site,loss\nA,1\nB,\n")
    Path("ragged.csv").write_text("1,2,3\n4,5\n")
    Path("bad.json").write_text("[1, 2")
    Path("none.json").write_text("[]")
    Path("lists.json").write_text('{"a": [1, 2], "b": [3, 4]}')
    Path("binary.npy").write_bytes(b"\xff\xfe\x00")
    np.save("words.npy", np.array(["a", "b"]))
    np.save("cut.npy", np.arange(9.0))
    Path("cut.npy").write_bytes(Path("cut.npy").read_bytes()[:-8])
    answer = fdro("oracle", *arguments, code=2)
    assert words in answer.stderr
    assert answer.stdout == ""
    told = json.loads(fdro("oracle", *arguments, "--json", code=2).stderr)  # the same for programs
    assert words in told["error"]
    assert told["exit_code"] == 2


def test_oracle_of_the_largest_numbers():
    """Their spread overflows, and the answer is proved all the same."""
    answer = asked("oracle", "-s", "kl", "-l", "1e308,-1e308", "--radius", 0.1)
    small = asked("oracle", "-s", "kl", "-l", "1,-1", "--radius", 0.1)
    assert answer["value"] == pytest.approx(1e308 * small["value"], rel=1e-12)


def test_oracle_empty_stdin():
    assert (
        "standard input is empty"
        in fdro("oracle", "-s", "kl", "-l", "-", "--radius", 1, given="", code=2).stderr
    )


def test_oracle_without_proof_fails(monkeypatch):
    from fdro_core.cli.commands import oracle

    monkeypatch.setattr(oracle, "PROVED", -1.0)  # no answer is good enough
    assert "too large for a proof" in fdro("oracle", "-s", "kl", "-l", "1,2", "--radius", 0.1, code=1).stderr


def test_many_losses_written_out():
    """More characters than a file name may have."""
    losses = ",".join(["0.25"] * 99 + ["2"])
    shown = fdro("oracle", "--set", "kl", "--losses", losses, "--radius", 0.0, "--quiet").stdout
    assert float(shown) == pytest.approx(0.2675, abs=1e-12)
    told = fdro("oracle", "--set", "kl", "--losses", "x" * 300, "--radius", 0.1, code=2).stderr
    assert "cannot be read: File name too long" in told
