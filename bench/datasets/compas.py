"""COMPAS: who is charged again within two years, Broward County 2013-2014; one client per sex and race.

- Source: Angwin, Larson, Mattu and Kirchner, "Machine bias", ProPublica 2016, compas-scores-two-years.csv of
  their repository compas-analysis. No licence is given; the records are public.
- Labels: 0 not charged again within two years, 1 charged again.
- Features: age, prior charges, juvenile felonies, misdemeanours and others as numbers; degree of the charge,
  sex and race as one 0/1 column per value. 13 columns, standardised with the mean and deviation of all
  clients' training data.
- Split: seeded and by label in every client, 70 % for training.
- Differs from the original: the rows that ProPublica's analysis uses (screened within 30 days of the arrest,
  a known outcome, a charge that is a felony or misdemeanour), 6,172 of 7,214; Asians and Native Americans, 42
  persons, are counted as "Other"; the COMPAS scores themselves are not features.
"""

from __future__ import annotations

import csv

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Federation, federation
from bench.datasets.files import File, locate
from bench.datasets.registry import dataset
from fdro_core.errors import InvalidData

NUMBERS = ("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count")
KINDS = ("c_charge_degree", "sex", "race")
USED = (*NUMBERS, *KINDS, "days_b_screening_arrest", "is_recid", "score_text", "two_year_recid")
LARGE = ("African-American", "Caucasian", "Hispanic")
LABELS = ("not charged again", "charged again")
FILE = File(
    "compas/compas-scores-two-years.csv",
    "md5:9165d40c400bba93a8cffece2b74622b",
    "Get it from https://github.com/propublica/compas-analysis.",
    ("https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",),
)


@dataset(
    "compas",
    clients="8, by sex and race",
    features="13 columns",
    split="seeded, by label, 30 % test",
    files=[FILE],
    order=56,
)
def compas(test_share: float = 0.3, seed: int = 0, verify: bool = True) -> Federation:
    """Load one client per sex and race.

    Args:
        test_share: of every client's persons, by label.
        seed: of the split.
        verify: refuse a file with another checksum than the known one.
    """
    table = _read(locate(FILE, verify=verify).read_text(encoding="utf-8"))
    table["race"] = np.where(np.isin(table["race"], LARGE), table["race"], "Other")
    y = (table["two_year_recid"] == "1").astype(np.int64)
    group = np.char.add(np.char.add(table["sex"], ", "), table["race"])
    return federation("compas", table, NUMBERS, KINDS, y, group, LABELS, test_share, seed, __doc__ or "")


def _read(text: str) -> dict[str, NDArray[np.str_]]:
    """The columns in use of the rows that ProPublica's analysis keeps."""
    head, *rows = csv.reader(text.splitlines())
    missing = [name for name in USED if name not in head]
    if missing or not rows:
        raise InvalidData(f"{FILE.path}: there is no column {', '.join(missing) or 'with rows'}")
    place = {name: head.index(name) for name in USED}  # two names stand twice, with the same content

    def kept(row: list[str]) -> bool:
        days = row[place["days_b_screening_arrest"]]
        return (
            days != ""
            and abs(float(days)) <= 30
            and row[place["is_recid"]] != "-1"
            and row[place["c_charge_degree"]] != "O"
            and row[place["score_text"]] != "N/A"
        )

    chosen = [row for row in rows if kept(row)]
    return {name: np.array([row[column] for row in chosen]) for name, column in place.items()}
