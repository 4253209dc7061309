"""SC-MA: activities of 15 participants from one chest-mounted accelerometer, 52 Hz; one client each.

- Source: Casale, Pujol and Radeva, "Personalization and user verification in wearable systems using
  biometric walking patterns", 2012; UCI 287, "Activity Recognition from Single Chest-Mounted
  Accelerometer". Licence CC BY 4.0 at UCI; the paper also calls it SM-AC.
- Features: windows of 104 readings (2 s) of uncalibrated x, y, z without overlap, inside stretches of one
  label; 39 statistics of each (`windows.statistics`), standardised with the mean and deviation of all
  clients' training data. `features="raw"` gives the 312 readings themselves, standardised.
- Split: by time. In every stretch of one activity the last 30 % of the windows are for test.
- Differs from the original: readings labelled 0 (no activity) are dropped, as is what is left of a stretch
  after its last whole window. Label k of the files is label k-1 here.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Federation, standardised
from bench.datasets.files import File, cached, locate, read_bytes
from bench.datasets.registry import dataset
from bench.datasets.windows import as_client, cut, statistics
from fdro_core.errors import InvalidData

LABELS = (
    "working at computer",
    "standing up, walking and stairs",
    "standing",
    "walking",
    "stairs",
    "walking and talking",
    "talking while standing",
)
HERTZ = 52.0
PARSER = 1  # raised when the same file would be parsed into something else
WHERE = "Get it from https://archive.ics.uci.edu/dataset/287 (the archive's files 1.csv to 15.csv)."
SUMS = (  # of N.csv.xz and of N.csv
    (
        "1a3ef1e307aae3d247c8b9e0ceaf78f1804be042e21d8a11a1f811b7112826c7",
        "517c3182b69294e9d5b402b47fa27baa7d912e1f55063c12e2fe866895d4dc29",
    ),
    (
        "6a05ac850bf6b6d0cdb6ec334601be77ee813216b1fb41d9f0f178517c765f0b",
        "94282f1b10cc77f85cae2ae9da5a644791505c63d861978f526368adc700d4a5",
    ),
    (
        "72315014404a5ff214134b190f5d2dd9fc6002d0838ba207f4722b70c1dfae28",
        "1caa47a160e33b24728c64fadfc6d807fbc83e1f6ecd0326c15d9f2f08e85bbc",
    ),
    (
        "e260f010cb46e4361c15dfc942ff2d65002d595877e034536cd454f3dfed5bbb",
        "d8ffa611da84fc99c0f53d75fb700f1e5cb9263fbca17be81a6e690be6055963",
    ),
    (
        "174691a6603cfb3a1d313eeabfb623ba5110b0ceceffe1f1cb21f30e46f2fdab",
        "f7900e7ed9bfbaaa488514acafd96a09e5d8e13b04b066425c3cfbb3ec125784",
    ),
    (
        "e751aa38ec4fcb0fe1e3aadc66ad803fdcc2411773552b181a3291f33fa45ce0",
        "e75c295681b5d73088709408421db4827fef53508529bfd239f2e132ada5aa91",
    ),
    (
        "49f5272b3b60db339456825b78b5866c03ae013238293c0c13f8eb94ffcb3d02",
        "08eb87b81d7d26c69730b25d86d301e0f4dae22028508009770d1840b1602d5b",
    ),
    (
        "1d94d5252e163a7cff774507de5ac508559b9a20d4da2662c8a5b0ad4c511438",
        "5cb33776f413c4518cbd728483e5f1c093f086023c573817ee9f6214c510f961",
    ),
    (
        "3373b9c76f54e40b4b3138764473b7408165841ffb5224c0713a66cc102bde3e",
        "81237118f445b68eb68aa9576a39282f4820a00d4efb627a48fa90faf88d7715",
    ),
    (
        "b09faa81569ed8c388c83cd8c5fb2161c44c822b87579688228b9106d3e9d514",
        "9c2be46118cbdd3fced0210e26f553ea2061cb4421887297c1d1f80ac50652dd",
    ),
    (
        "f2b6a6f209877537ab7dadee08fc91f7efee96169e5da4e9b601ea3ba1893df8",
        "d154a2d59c2a3ccfa91efcd3de23fe7e7e94789fdc9ef49957e723dbcfe18201",
    ),
    (
        "49517aa8eb32a8d7b818de6ec26716879dbccf95bf022a2a3edbe563febd399b",
        "c960a3770c6f047634f1bec1555f46f1ef3882a0446ecb4fec4801f18f79bc73",
    ),
    (
        "36551597ca935dabbc081eaec8bf0a071e3d09ae80f3b802af15bf8565e53518",
        "d4fae870eb1fcd482a521448f6276853e8dcf7634febdb2ffeaac4a032b28222",
    ),
    (
        "98fd0baca276cbb81a79721fba7c1242b76fdb31dce056c79b617fa344495c9d",
        "38afc987ff34d2a79717d0ac6ab891a3a34babb26c7e8e12ff6180c90cf0091e",
    ),
    (
        "3336bd526296cb5282ae92a037926a73cc7457e6bf175d98433414dc2f5fcc29",
        "dd33fa778fff54a6cc58d2f1ae5ae8de30f50d83dd826ea924ecab5ee4750e3c",
    ),
)
FILES = tuple(
    File(f"chest_accelerometer/{number}.csv.xz", f"sha256:{packed}", WHERE, plain=f"sha256:{plain}")
    for number, (packed, plain) in enumerate(SUMS, start=1)
)


@dataset(
    "sc-ma",
    clients="15 participants",
    features="39 statistics of 2 s windows",
    split="by time, last 30 % of every stretch",
    files=FILES,
    order=40,
)
def sc_ma(
    window: int = 104, features: str = "statistics", test_share: float = 0.3, verify: bool = True
) -> Federation:
    """Load one client per participant.

    Args:
        window: readings in a window; 52 per second.
        features: "statistics" or "raw".
        test_share: of the windows of every stretch of one activity, its last.
        verify: refuse files with other checksums than the known ones.
    """
    if features not in {"statistics", "raw"}:
        raise InvalidData(f'sc-ma: features must be "statistics" or "raw", got {features!r}')
    paths = [locate(file, verify=verify) for file in FILES]
    settings = {"parser": PARSER, "window": window, "features": features, "test_share": test_share}

    def parse() -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for number, path in enumerate(paths, start=1):
            table = np.loadtxt(io.BytesIO(read_bytes(path)), delimiter=",", usecols=(1, 2, 3, 4))
            pieces, own, test = cut(table[:, :3], table[:, 3].astype(np.int64), window, test_share)
            X = statistics(pieces, HERTZ) if features == "statistics" else pieces.reshape(len(own), -1)
            arrays |= {f"X{number}": X, f"y{number}": own, f"test{number}": test}
        return arrays

    arrays = cached("sc-ma", paths, settings, parse)
    clients = [
        as_client(f"participant {k}", arrays[f"X{k}"], arrays[f"y{k}"], arrays[f"test{k}"])
        for k in range(1, len(FILES) + 1)
    ]
    return Federation("sc-ma", standardised(clients), len(LABELS), LABELS, about=__doc__ or "")
