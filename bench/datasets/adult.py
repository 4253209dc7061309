"""Adult: who earned more than 50,000 dollars in the US census of 1994; one client per sex and race.

- Source: Becker and Kohavi 1996, UCI 2, "Adult" (adult.data and adult.test). Licence CC BY 4.0.
- Labels: 0 up to 50,000 dollars a year, 1 more.
- Features: age, years of education, capital gain and loss, hours per week as numbers; class of work, marital
  status, occupation, relationship, race, sex, born in the United States as one 0/1 column per value
  ("?" is a value). 51 columns, standardised with the mean and deviation of all clients' training data.
- Split: seeded and by label in every client, 70 % for training; both files together.
- Differs from the original: the weight of the survey (fnlwgt) and the name of the education, whose number is
  there, are left out; countries are merged to two; the original split is not used, so that the split can
  be repeated.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Federation, federation
from bench.datasets.files import listed, locate
from bench.datasets.registry import dataset
from fdro_core.errors import InvalidData

NAMES = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    "income",
)
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
KINDS = ("workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country")
LABELS = ("up to 50,000", "more")
WHERE = "Get it from https://archive.ics.uci.edu/dataset/2."
FILES = listed(
    "adult",
    {
        "adult.data": "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    WHERE,
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",),
)


@dataset(
    "adult",
    clients="10, by sex and race",
    features="51 columns",
    split="seeded, by label, 30 % test",
    files=FILES,
    order=54,
)
def adult(test_share: float = 0.3, seed: int = 0, verify: bool = True) -> Federation:
    """Load one client per sex and race.

    Args:
        test_share: of every client's persons, by label.
        seed: of the split.
        verify: refuse files with other checksums than the known ones.
    """
    rows: list[list[str]] = []
    for file in FILES:
        rows += _read(locate(file, verify=verify).read_text(encoding="ascii"), file.path)
    table = dict(zip(NAMES, np.array(rows).T, strict=True))
    home = table["native-country"] == "United-States"
    table["native-country"] = np.where(home, "United States", "elsewhere")
    y = np.char.startswith(table["income"], ">").astype(np.int64)
    group = np.char.add(np.char.add(table["sex"], ", "), table["race"])
    return federation("adult", table, NUMBERS, KINDS, y, group, LABELS, test_share, seed, __doc__ or "")


def _read(text: str, path: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("|")]
    rows = [line.rstrip(".").split(", ") for line in lines]
    if not rows or any(len(row) != len(NAMES) for row in rows):
        raise InvalidData(f"{path}: every line needs {len(NAMES)} values with a comma and a blank between")
    return rows
