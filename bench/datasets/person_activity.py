"""Person Activity: five persons with four position tags each, eleven activities; one client a person.

- Source: Kaluža et al., "An agent-based approach to care in independent living", 2010; UCI 196,
  "Localization Data for Person Activity". Licence CC BY 4.0 at UCI.
- Recordings: five of each person, 164,860 readings in all; a reading is one tag's x, y, z in metres. Tags:
  left ankle, right ankle, chest, belt.
- Features: at every 10th reading, from the last 40 readings (about 1.4 s) with each tag held at its last
  known place: mean, deviation and change of its x, y, z; 36 numbers, standardised with the mean and
  deviation of all clients' training data. The label is that of the last reading.
- Split: by recording. 01 to 04 of each person are for training and 05 for test, so no window is in both.
- Differs from the original: the file read here comes from github.com/abigaile-d/activity-recognition-crf and
  has coordinates CUT TO 0.1 m and no times; its recordings were put back in order, and 131 values of z that
  were artefacts of the cutting set to 0. Results on the original may be better.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Client, Federation, Labels, standardised
from bench.datasets.files import File, locate, read_bytes
from bench.datasets.registry import dataset
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

LABELS = (
    "walking",
    "falling",
    "lying down",
    "lying",
    "sitting down",
    "sitting",
    "standing up from lying",
    "on all fours",
    "sitting on the ground",
    "standing up from sitting",
    "standing up from sitting on the ground",
)
TAGS = ("010-000-024-033", "010-000-030-096", "020-000-033-111", "020-000-032-221")
PERSONS = "ABCDE"
HEADER = "sequence,person,tag,x,y,z,activity"
FILE = File(
    "person_activity_trunc/ldpa_164860_0p1m.csv.xz",
    "sha256:de1c69b95c2e86e18b765d9d1fed23d9206255e59fe80204fe9c33b47d9e9bcc",
    "The original is https://archive.ics.uci.edu/dataset/196; the file read here is a CSV with the columns "
    f"{HEADER}, recordings in order, made from trainSet.txt and testSet.txt of "
    "https://github.com/abigaile-d/activity-recognition-crf.",
    plain="sha256:9d1d506daa1948980d9f4d3a496ffb14c7176b44370dd04b9b02475633eab794",
)


@dataset(
    "person-activity",
    clients="5 persons",
    features="36 statistics of the last 40 readings",
    split="by recording, 05 for test",
    files=[FILE],
    order=41,
)
def person_activity(
    persons: str = PERSONS,
    window: int = 40,
    stride: int = 10,
    test_recordings: tuple[str, ...] = ("05",),
    verify: bool = True,
) -> Federation:
    """Load one client per person.

    Args:
        persons: which, some of "ABCDE".
        window: readings that a sample looks back on.
        stride: readings between two samples.
        test_recordings: of every person, "01" to "05".
        verify: refuse a file with another checksum than the known one.
    """
    if not persons or not set(persons) <= set(PERSONS) or len(set(persons)) != len(persons):
        raise InvalidData(f"person-activity: persons must be different letters of {PERSONS}, got {persons!r}")
    if window < 2 or stride < 1:
        raise InvalidData(
            f"person-activity: window >= 2 and stride >= 1 are needed, got {window} and {stride}"
        )
    recordings = _read(read_bytes(locate(FILE, verify=verify)).decode())
    clients = []
    for person in persons:
        parts: dict[bool, list[tuple[Array, Labels]]] = {False: [], True: []}
        for name, (tags, places, labels) in recordings.items():
            if name[0] == person:
                parts[name[1:] in test_recordings].append(_features(tags, places, labels, window, stride))
        if not parts[False] or not parts[True]:
            raise InvalidData(
                f"person-activity: test_recordings {test_recordings} leave person {person} without training "
                'or test data; the recordings are "01" to "05"'
            )
        (X_train, y_train), (X_test, y_test) = (
            (np.concatenate([X for X, _ in part]), np.concatenate([y for _, y in part]))
            for part in (parts[False], parts[True])
        )
        clients.append(Client(f"person {person}", X_train, y_train, X_test, y_test))
    return Federation("person-activity", standardised(clients), len(LABELS), LABELS, about=__doc__ or "")


def _read(text: str) -> dict[str, tuple[Labels, Array, Labels]]:
    """Tags, places and labels of every recording, in the order of the file."""
    lines = text.splitlines()
    if lines[0] != HEADER:
        raise InvalidData(f"{FILE.path}: the first line must be {HEADER!r}, it is {lines[0]!r}")
    columns = list(zip(*(line.split(",") for line in lines[1:]), strict=True))
    names, tags, activities = np.array(columns[0]), np.array(columns[2]), np.array(columns[6])
    places = np.array(columns[3:6], dtype=np.float64).T
    tag = np.array([TAGS.index(value) for value in tags.tolist()], dtype=np.int64)
    label = np.array([LABELS.index(value) for value in activities.tolist()], dtype=np.int64)
    return {
        str(name): (tag[names == name], places[names == name], label[names == name])
        for name in np.unique(names)
    }


def _features(tags: Labels, places: Array, labels: Labels, window: int, stride: int) -> tuple[Array, Labels]:
    """Samples of one recording; the first ones are skipped until every tag was seen."""
    held = np.empty((len(tags), len(TAGS), 3))
    first = 0
    for tag in range(len(TAGS)):
        seen = np.flatnonzero(tags == tag)
        if seen.size == 0:
            raise InvalidData(f"person-activity: a recording has no reading of tag {TAGS[tag]}")
        latest = np.searchsorted(seen, np.arange(len(tags)), side="right") - 1
        held[:, tag] = places[seen[np.maximum(latest, 0)]]
        first = max(first, int(seen[0]))
    flat = held[first:].reshape(len(tags) - first, -1)
    views = np.lib.stride_tricks.sliding_window_view(flat, window, axis=0)[::stride]
    change = views[:, :, -1] - views[:, :, 0]
    X = np.concatenate([views.mean(axis=2), views.std(axis=2), change], axis=1)
    return X, labels[first + window - 1 :: stride]
