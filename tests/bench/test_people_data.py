"""Adult, COMPAS and the made data: parsing on small files in the original's layout, groups and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.datasets import DataCorrupt, InvalidData, adult, compas, load
from bench.datasets.federation import columns
from bench.estimators import groups

ADULT = (
    "39, State-gov, 7, Bachelors, 13, Never-married, Adm-clerical, Unmarried, White, Male, 2174, 0, 40, "
    "United-States, <=50K",
    "31, Private, 45781, Masters, 14, Never-married, ?, Unmarried, Black, Female, 14084, 0, 50, Cuba, >50K",
)
HEAD = (
    "id,sex,age,race,juv_fel_count,decile_score,juv_misd_count,juv_other_count,priors_count,"
    "days_b_screening_arrest,c_charge_degree,is_recid,score_text,priors_count,two_year_recid"
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FDRO_DATA", str(tmp_path))
    monkeypatch.setenv("FDRO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "adult").mkdir()
    (tmp_path / "compas").mkdir()
    return tmp_path


def adult_files(folder: Path, rows: list[str]) -> None:
    (folder / "adult" / "adult.data").write_text("\n".join(rows) + "\n\n")
    marked = [f"{row}." for row in rows]  # labels of the test file end with a point
    (folder / "adult" / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(marked) + "\n\n")


def test_adult_reads_both_files_and_groups_by_sex_and_race(folder: Path) -> None:
    adult_files(folder, [*ADULT] * 5)
    found = adult.adult(verify=False)
    assert [client.name for client in found.clients] == ["Female, Black", "Male, White"]
    assert [len(c.y_train) + len(c.y_test) for c in found.clients] == [10, 10]
    assert [set(c.y_train) | set(c.y_test) for c in found.clients] == [{1}, {0}]
    kinds = 2 + 1 + 2 + 1 + 2 + 2 + 2  # workclass … native-country: "?" is an occupation of its own
    assert found.features == 5 + kinds


def test_adult_says_what_is_wrong(folder: Path) -> None:
    adult_files(folder, [*ADULT])
    with pytest.raises(DataCorrupt, match=r"adult\.data"):
        adult.adult()
    adult_files(folder, [*ADULT, "39, State-gov"])
    with pytest.raises(InvalidData, match="every line needs 15 values"):
        adult.adult(verify=False)


def compas_file(folder: Path, rows: list[str]) -> None:
    (folder / "compas" / "compas-scores-two-years.csv").write_text("\n".join([HEAD, *rows]) + "\n")


def test_compas_keeps_propublicas_rows_and_merges_small_races(folder: Path) -> None:
    good = [
        "1,Male,69,Asian,0,1,0,0,3,-1,F,0,Low,3,0",
        "2,Male,34,African-American,0,3,0,0,0,30,M,1,Low,0,1",
        "3,Female,24,Caucasian,0,4,0,1,4,-30,F,1,High,4,1",
    ]
    bad = [
        "4,Male,23,Hispanic,0,4,0,0,1,31,F,1,Low,1,1",  # screened too late
        "5,Male,23,Hispanic,0,4,0,0,1,,F,1,Low,1,1",
        "6,Male,23,Hispanic,0,4,0,0,1,0,O,1,Low,1,1",
        "7,Male,23,Hispanic,0,4,0,0,1,0,F,-1,Low,1,1",
        "8,Male,23,Hispanic,0,4,0,0,1,0,F,1,N/A,1,1",
    ]
    compas_file(folder, [*good * 4, *bad])
    found = compas.compas(verify=False)
    assert [c.name for c in found.clients] == ["Female, Caucasian", "Male, African-American", "Male, Other"]
    assert sum(len(c.y_train) + len(c.y_test) for c in found.clients) == 12
    assert [int(c.y_train[0]) for c in found.clients] == [1, 1, 0]
    compas_file(folder, [])
    with pytest.raises(InvalidData, match="with rows"):
        compas.compas(verify=False)
    (folder / "compas" / "compas-scores-two-years.csv").write_text("id,sex\n1,Male\n")
    with pytest.raises(InvalidData, match="no column age"):
        compas.compas(verify=False)


def test_columns_keep_numbers_and_split_kinds() -> None:
    table = {"n": np.array(["2", "-1"]), "k": np.array(["b", "a"])}
    np.testing.assert_array_equal(columns(table, ["n"], ["k"]), [[2.0, 0.0, 1.0], [-1.0, 1.0, 0.0]])


def test_rotated_digits_are_the_digits_turned() -> None:
    plain = {tuple(x) for c in load("digits").clients for X in (c.X_train, c.X_test) for x in X}
    found = load("digits-rotated", seed=3)
    for turn, client in enumerate(found.clients):
        back = np.rot90(client.X_train.reshape(-1, 8, 8), -turn, axes=(1, 2)).reshape(-1, 64)
        assert all(tuple(x) in plain for x in back[:20])
    shares = np.array([len(c.y_train) for c in found.clients]) / sum(len(c.y_train) for c in found.clients)
    np.testing.assert_allclose(shares, [0.7, 0.15, 0.1, 0.05], atol=0.03)


def test_hospitals_are_those_of_the_example() -> None:
    found = load("hospitals", seed=1)
    assert [c.name for c in found.clients] == list("ABCDEFGH")
    assert sum(len(c.y_train) + len(c.y_test) for c in found.clients) == 4400


# -- python -m bench groups -------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_command_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert groups.main(["--quick", "--out", str(tmp_path)]) == 0
    assert "too short to compare methods" in (tmp_path / "tables.md").read_text(encoding="utf-8")
    text = (tmp_path / "tables.md").read_text()
    assert "**digits-rotated (chosen on)**" in text
    for title in (
        "Worst group on test data",
        "Processor seconds of fit",
        'Worst group of interactions="groups"',
    ):
        assert f"**{title}" in text
    records = groups.measure("hospitals", 0)
    assert [r["method"] for r in records] == list(groups.METHODS)
    for record in records:
        assert record["worst"] == pytest.approx(min(record["groups"].values()), abs=1e-4)
    by_method = {r["method"]: r["worst"] for r in records}
    assert by_method["RobustClassifier()"] > by_method["LogisticRegression"] > by_method["constant"]
    assert by_method['interactions="groups"'] > by_method["RobustClassifier()"]


def test_a_resumed_benchmark_keeps_its_splits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = {name: groups.METHODS[name] for name in ("constant", groups.REFERENCE, groups.OURS)}
    monkeypatch.setattr(groups, "METHODS", few)
    monkeypatch.setattr(groups, "remedies", groups.times)
    options = ["--data", "hospitals", "--out", str(tmp_path), "--repeats"]
    assert groups.main([*options, "2"]) == 0
    first = (tmp_path / "runs.jsonl").read_text()
    assert first.count("\n") == 6
    assert groups.main([*options, "3", "--resume"]) == 0
    again = (tmp_path / "runs.jsonl").read_text()
    assert again.startswith(first), "seconds would differ if they had been measured again"
    assert again.count("\n") == 9
    assert groups.main([*options, "10", "--tables"]) == 0
    assert (tmp_path / "runs.jsonl").read_text() == again
    assert "| LogisticRegression | 3 |" in (tmp_path / "tables.md").read_text()


def test_the_island_is_reversed() -> None:
    found = load("island", seed=3, samples=8000)
    assert [client.name for client in found.clients] == [*"ABCDEF", "island"]
    slopes = [client.X_train.T @ (client.y_train - 0.5) / client.y_train.size for client in found.clients]
    assert slopes[0] @ slopes[1] > 0 > slopes[0] @ slopes[-1]


def test_data_that_is_not_there_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FDRO_DATA", raising=False)
    assert groups.main(["--data", "sc-ma", "--out", str(tmp_path)]) == 1
    assert "sc-ma is left out" in capsys.readouterr().out


def test_a_fixed_split_gives_other_training_samples_for_each_seed() -> None:
    assert groups.has_fixed_split("sc-ma")
    assert not groups.has_fixed_split("adult")
    federation = load("hospitals", seed=0)
    whole, _, _ = groups.training(federation, 0, fixed=False)
    first, _, group = groups.training(federation, 0, fixed=True)
    second, _, _ = groups.training(federation, 1, fixed=True)
    assert len(first) == pytest.approx(0.8 * len(whole), abs=8)
    assert not np.array_equal(first, second)
    assert np.unique(group).size == 8
