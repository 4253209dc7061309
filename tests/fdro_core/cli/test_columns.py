"""A real CSV: gaps, categories, dates, identifiers; each mistake with its line and column, all at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fdro_core.cli.runs.run_file import load
from tests.fdro_core.command import asked, fdro

pytestmark = pytest.mark.usefixtures("place")

CSV = """site,age,ward,pressure,ill
north,61,ENT,152,yes
north,,ICU,121,no
north,58,ENT,NA,yes
north,39,surgery,118,no
south,47,ICU,141,yes
south,63,,126,no
south,36,ENT,139,yes
south,70,ICU,119,no
"""

RUN = """[data]
source = "ward.csv"
worker = "site"
label = "ill"
{more}

[set]
name = "kl"
radius = 0.3

[algorithm]
iterations = 50
"""


def prepare(more: str = "", csv: str = CSV) -> None:
    Path("ward.csv").write_text(csv)
    Path("ward.toml").write_text(RUN.format(more=more))


def complaint(more: str = "", csv: str = CSV) -> str:
    prepare(more, csv)
    return fdro("check", "ward.toml", code=2).stderr


def inputs(more: str, csv: str = CSV):
    """The training and the held-out inputs of both sites, with the names of the inputs."""
    prepare(more, csv)
    workers = load(Path("ward.toml")).workers
    return (
        workers,
        [  # without the intercept's column
            problem.X[:, :-1] for problem in workers.problems
        ],
    )


def test_gaps_get_the_mean_of_training_samples_and_words_become_columns():
    workers, (north, south) = inputs(
        'missing = "mean"\ncategorical = ["ward"]\nstandardise = false\ntest_fraction = 0.0'
    )
    assert workers.preparation.names() == [
        "age", "ward=(missing)", "ward=ENT", "ward=ICU", "ward=surgery", "pressure"
    ]  # fmt: skip
    mean_age, mean_pressure = (
        (61 + 58 + 39 + 47 + 63 + 36 + 70) / 7,
        (152 + 121 + 118 + 141 + 126 + 139 + 119) / 7,
    )
    np.testing.assert_allclose(north[1], [mean_age, 0, 0, 1, 0, 121])
    np.testing.assert_allclose(north[2], [58, 0, 1, 0, 0, mean_pressure])
    np.testing.assert_allclose(south[1], [63, 1, 0, 0, 0, 126])


def test_what_is_learnt_is_of_training_samples_only():
    """As scikit-learn's imputer, encoder and scaler, fitted on the training rows, do it."""
    compose = pytest.importorskip("sklearn.compose")
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(4)
    ages = rng.integers(20, 90, size=60).astype(float)
    ages[::7] = np.nan
    wards = rng.choice(["ENT", "ICU", "surgery"], size=60).astype(object)
    wards[30] = "only once"
    rows = [
        f"{'north' if row % 2 else 'south'},{'' if np.isnan(age) else age},{ward},{row % 3}"
        for row, (age, ward) in enumerate(zip(ages, wards, strict=True))
    ]
    for seed in range(6):  # in some of them the rare word is held out
        more = f'missing = "mean"\ncategorical = ["ward"]\ntest_fraction = 0.4\nseed = {seed}'
        prepare(more, "\n".join(["site,age,ward,ill", *rows]))
        setup = load(Path("ward.toml"))
        held, training = [], []
        for name in ("north", "south"):
            mine = np.flatnonzero([row.startswith(name) for row in rows])
            training.append(mine)
        order = np.random.default_rng(seed)
        for place, mine in enumerate(training):  # the split itself, as `split_by_worker` documents it
            mixed = order.permutation(mine)
            kept = round(0.4 * len(mine))
            held.append(np.sort(mixed[:kept]))
            training[place] = np.sort(mixed[kept:])
        table = np.column_stack([ages.astype(object), wards])
        model = compose.ColumnTransformer(
            [("n", make_pipeline(SimpleImputer(), StandardScaler()), [0]),
             ("c", OneHotEncoder(handle_unknown="ignore", sparse_output=False), [1])]
        )  # fmt: skip
        model.fit(table[np.concatenate(training)])
        for problem, mine in zip(setup.workers.problems, training, strict=True):
            np.testing.assert_allclose(problem.X[:, :-1], model.transform(table[mine]), atol=1e-12)


def test_drop_leaves_out_rows_and_says_which():
    csv = CSV + ",50,ENT,120,no\nsouth,50,ENT,120,\n"
    more = 'missing = "drop"\ncategorical = ["ward"]\ntest_fraction = 0.0'
    _, (north, south) = inputs(more, csv)
    assert (len(north), len(south)) == (2, 3)
    facts = asked("check", "ward.toml")
    assert facts["dropped"] == {"": 1, "north": 2, "south": 2}
    assert "left out for a gap: 5 rows (no worker 1, north 2, south 2)" in fdro("check", "ward.toml").stdout


def test_a_worker_without_whole_rows():
    csv = CSV + "west,,ICU,119,no\nwest,,ICU,119,yes\n"
    message = complaint('missing = "drop"\ncategorical = ["ward"]', csv)
    assert "ward.toml:5: data.missing: worker 'west' has no row without a gap" in message


def test_every_mistake_is_told_where_it_is():
    csv = CSV.replace("site,age", "site,admitted,age").replace("north,", "north,2024-01-31,")
    csv = csv.replace("south,", "south,1.2.2024,")
    message = complaint("test_fraction = 2", csv)
    assert message.splitlines()[0] == "error: ward.toml: 5 mistakes"
    assert "ward.toml:5: data.test_fraction: must be in [0, 1)" in message
    assert "ward.csv, line 2, column 'admitted': '2024-01-31' is a date" in message
    assert "ward.csv, line 3, column 'age': the cell is empty. In [data], missing = \"mean\"" in message
    assert (
        "ward.csv, line 2, column 'ward': 'ENT' is not a number. For words, write categorical = [\"ward\"]"
        in message
    )
    assert "ward.csv, line 4, column 'pressure': 'NA' is no number" in message


@pytest.mark.parametrize(
    ("more", "old", "new", "words"),
    [
        ("", "61", "1,5", "ward.csv, line 2 has 6 cells"),
        ('features = ["age"]', "61", '"61,5"', "'61,5' is not a number: write 61.5, with a point"),
        ('features = ["age"]', "61", "old", "line 2, column 'age': 'old' is not a number. For words"),
        ('features = ["age"]', "39", "old", "line 5, column 'age': 'old' is not a number. Correct it"),
        ('features = ["age"]\nmissing = "mean"', "39", "inf", "line 5, column 'age': infinity"),
        ('features = ["pressure"]', "152,yes", "152,", "column 'ill': the cell is empty; fill it"),
        ('features = ["pressure"]', "north,61", "?,61", "column 'site': '?' is no value"),
        ('categorical = ["wards"]', "61", "61", "ward.toml:5: data.categorical: "),
        ('categorical = ["ill"]', "61", "61", "data.categorical: column 'ill' is the label"),
        ('features = ["age"]\ncategorical = ["ward"]', "61", "61", "column 'ward' is not among `features`"),
        ('missing = "median"', "61", "61", "data.missing: there is no 'median'"),
        ("", "site,", ",", "has no column 'site'"),
        ("", "age", '""', "column 2 has no name, like the row numbers that pandas writes"),
    ],
)
def test_mistakes_in_columns(more, old, new, words):
    assert words in complaint(more, CSV.replace(old, new, 1))


def test_too_many_categories():
    rows = [f"{'north' if row % 2 else 'south'},p{row},{row % 2}" for row in range(120)]
    message = complaint('categorical = ["name"]', "\n".join(["site,name,ill", *rows]))
    assert "column 'name' has 120 different words, and at most 100 can be categories" in message


def test_numbers_of_rows_are_pointed_out():
    rows = [f"{row},{'north' if row % 2 else 'south'},{row**2 % 7},{row % 3}" for row in range(30)]
    prepare("", "\n".join(["id,site,size,ill", *rows]))
    told = fdro("check", "ward.toml").stdout
    assert told.count("which number the rows?") == 1
    assert "id" in next(line for line in told.splitlines() if "which number" in line)


def test_another_file_than_the_run_files():
    prepare('missing = "mean"\ncategorical = ["ward"]')
    Path("more.csv").write_text(CSV.replace("south", "west"))
    assert asked("check", "ward.toml", "more.csv")["workers"] == ["north", "west"]
    assert "no file" in fdro("check", "ward.toml", "mor.csv", code=2).stderr


def test_what_leaves_a_site_is_stated():
    prepare('missing = "mean"\ncategorical = ["ward"]')
    told = asked("check", "ward.toml")["leaves_each_site"]
    assert told == "number of values, sum and sum of squares of 2 columns; which categories occur in ward"
    prepare('features = ["pressure"]\nmissing = "drop"\nstandardise = false')
    assert asked("check", "ward.toml")["leaves_each_site"] == "nothing"


def test_the_result_has_what_a_new_sample_needs():
    prepare('missing = "mean"\ncategorical = ["ward"]\ntest_fraction = 0.0')
    fdro("train", "ward.toml")
    with np.load("run/result.npz") as file:
        run = dict(file)
    assert run["inputs"].tolist()[0] == "age"
    assert all(len(run[name]) == len(run["inputs"]) for name in ("mean", "scale", "fill"))
    new = np.array([61.0, 0, 1, 0, 0, 152.0])  # the first row, in the order of `inputs`
    scores = np.append((new - run["mean"]) / run["scale"], 1.0) @ run["w"].reshape(7, 2)
    assert run["classes"][scores.argmax()] == "yes"


def test_a_table_as_spreadsheets_write_it_elsewhere():
    """Semicolons, decimal commas, a byte-order mark, empty lines at the end."""
    csv = "\ufeffsite;size;ill\r\nnorth;1,5;0\r\nnorth;-2,25;1\r\nsouth;3;0\r\nsouth;4,0;1\r\n;;\r\n"
    workers, (north, _) = inputs("standardise = false\ntest_fraction = 0.0", csv)
    assert workers.names == ["north", "south"]
    np.testing.assert_array_equal(north[:, 0], [1.5, -2.25])


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("1.200", "'1.200' could be 1200 or 1.2: remove points between thousands (1200), or write 1,2"),
        ("-2.701", "'-2.701' could be -2701 or -2.701: remove points between thousands (-2701)"),
        ("1.234,5", "'1.234,5' has points between thousands: write 1234,5"),
        ("1.234.567", "'1.234.567' has points between thousands: write 1234567"),
        ("0.25", "'0.25' has a decimal point, and other cells of the column a comma: write 0,25"),
    ],
)
def test_points_between_thousands_are_never_read_as_decimal(cell, told):
    rows = "site;size;ill\nnorth;1,5;0\nnorth;{};1\nsouth;3;0\nsouth;4,125;1\n"
    words = " ".join(complaint(csv=rows.format(cell)).split())
    assert told in words
    assert "line 3, column 'size'" in words
    by_label = rows.replace("ill", "SIZE").replace("size", "ill").replace("SIZE", "size")
    if cell != "0.25":
        assert told in " ".join(complaint(csv=by_label.format(cell)).split())


def test_points_are_decimal_where_no_comma_is():
    csv = "site;size;ill\nnorth;1.200;0\nnorth;2.5;1\nsouth;3;0\nsouth;4;1\n"
    _, (north, _) = inputs("standardise = false\ntest_fraction = 0.0", csv)
    np.testing.assert_array_equal(north[:, 0], [1.2, 2.5])


def test_classes_are_counted_and_doubtful_names_are_told():
    prepare('missing = "mean"\ncategorical = ["ward"]')
    answer = fdro("check", "ward.toml")
    assert "2 classes: no 4, yes 4" in answer.stdout
    assert answer.stderr == ""
    more = "South,50,ENT,130,Yes\nwest,50,ENT,130,yes\nwest,51,ENT,131,no\n"
    prepare('missing = "mean"\ncategorical = ["ward"]\ntest_fraction = 0.2', CSV + more)
    assert asked("check", "ward.toml")["classes"] == {"Yes": 1, "no": 5, "yes": 5}
    told = fdro("check", "ward.toml").stderr
    assert "sites that differ in capitals only: 'South' and 'south'. Are they the same?" in told
    assert "classes that differ in capitals only: 'Yes' and 'yes'" in told
    assert "sites with one sample: South\n" in told
    assert "sites with no sample held out, so without a test: west\n" in told


def test_files_of_the_wrong_kind():
    prepare()
    Path("ward.csv").write_bytes(CSV.encode("utf-8") + "Süd,1,a,1,no\n".encode("cp1252"))
    assert "ward.csv is not a text file (UTF-8)" in fdro("check", "ward.toml", code=2).stderr
    assert "ward.csv holds samples, and a run file" in fdro("check", "ward.csv", code=2).stderr
    Path("ward.xlsx").write_bytes(b"PK")
    message = fdro("check", "ward.toml", "ward.xlsx", code=2).stderr
    assert "got 'ward.xlsx': save that as CSV UTF-8" in message
