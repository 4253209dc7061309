"""The loaders: what is known of each data set, splits without leaks, and what is said when files are wrong.

Tests on real files need FDRO_DATA and are skipped without it.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import lzma
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.datasets import (
    DataCorrupt,
    DataMissing,
    Federation,
    InvalidData,
    fashion_mnist,
    files,
    heart_disease,
    load,
    mnist,
    names,
    person_activity,
    registry,
    sc_ma,
    windows,
)
from bench.datasets import __main__ as page
from bench.datasets.federation import Client, standardised, stratified
from uncertainty_sets.errors import UnknownName

needs_data = pytest.mark.skipif(not os.environ.get("FDRO_DATA"), reason="FDRO_DATA is not set")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache folder of the test's own: every parse is a parse."""
    monkeypatch.setenv("FDRO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No FDRO_DATA; the folder given is empty."""
    monkeypatch.delenv("FDRO_DATA", raising=False)
    return tmp_path


def rows(federation: Federation) -> tuple[list[int], list[int]]:
    return [len(c.y_train) for c in federation.clients], [len(c.y_test) for c in federation.clients]


# -- the registry ---------------------------------------------------------------------------------------


def test_every_data_set_of_the_paper_is_there() -> None:
    assert set(names()) >= {
        *("digits", "fashion-mnist", "fashion-mnist-10", "heart-disease", "mnist-1000"),
        *("mnist-writers", "person-activity", "sc-ma", "shl"),
    }


def test_the_page_shows_what_the_loaders_say() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text, "python -m bench datasets writes the table into the page"


def test_data_sets_are_sorted_by_their_order_then_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    for name, order in (("zebra", 1), ("ant", registry.LAST), ("bee", registry.LAST)):
        registry.dataset(name, order=order)(lambda: load("digits"))
    assert names()[0] == "zebra"
    assert names()[-2:] == ["ant", "bee"]


def test_a_wrong_name_or_option_is_explained() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fashion-mnist'"):
        load("fashion_mnist")
    with pytest.raises(InvalidData, match="test_share"):
        load("digits", share=0.1)


def test_every_loader_says_what_it_is() -> None:
    for name in names():
        module = __import__(registry.get(name).loader.__module__, fromlist=["about"])
        terms = "For research only" if name == "shl" else "icence"
        for word in ("Source", terms, "Features", "Split", "Differs"):
            assert word in module.__doc__, f"{name}: nothing about {word}"


# -- digits, which are always there ---------------------------------------------------------------------


def test_digits() -> None:
    federation = load("digits")
    assert federation.classes == len(federation.clients) == 10
    assert federation.labels == tuple("0123456789")
    assert sum(map(sum, rows(federation))) == 1797
    for number, client in enumerate(federation.clients):
        assert set(client.y_train) == set(client.y_test) == {number}
        assert client.X_train.dtype == np.float64
        assert client.y_train.dtype == np.int64
        assert 0 <= client.X_train.min() <= client.X_train.max() == 1


def test_digits_are_the_same_every_time_and_chosen_ones_are_renumbered() -> None:
    one, two = load("digits", digits=(8, 3)), load("digits", digits=(8, 3))
    assert np.array_equal(one.clients[1].X_test, two.clients[1].X_test)
    assert one.labels == ("8", "3")
    assert set(one.clients[0].y_train) == {0}
    assert not np.array_equal(one.clients[0].X_test, load("digits", digits=(8, 3), seed=1).clients[0].X_test)
    with pytest.raises(InvalidData, match="different"):
        load("digits", digits=(3, 3))
    with pytest.raises(InvalidData, match="different"):
        load("digits", digits=())


# -- real files -----------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    "file",
    [*fashion_mnist.FILES, *mnist.FILES, *sc_ma.FILES, person_activity.FILE, *heart_disease.FILES],
    ids=lambda file: file.path,
)
def test_the_files_at_hand_are_the_known_ones(file: files.File) -> None:
    assert files.locate(file).is_file()


@needs_data
def test_fashion_mnist() -> None:
    federation = load("fashion-mnist", pool=4)
    assert federation.labels == ("T-shirt/top", "pullover", "shirt")
    assert rows(federation) == ([6000] * 3, [1000] * 3)
    assert federation.features == 49
    ten = load("fashion-mnist-10", pool=14)
    assert rows(ten) == ([6000] * 10, [1000] * 10)
    # the mean of all training pixels is known: 0.2860
    assert np.mean([client.X_train.mean() for client in ten.clients]) == pytest.approx(0.2860, abs=5e-5)


@needs_data
def test_mnist_in_equal_parts() -> None:
    federation = load("mnist-1000", pool=4)
    assert rows(federation) == ([60] * 1000, [10] * 1000)
    digits = np.bincount(np.concatenate([client.y_test for client in federation.clients]))
    assert digits.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    sorted_ = load("mnist-1000", pool=14, by="label", parts=100)
    assert sum(len(set(client.y_train)) == 1 for client in sorted_.clients) == 91
    with pytest.raises(InvalidData, match="divide"):
        load("mnist-1000", parts=7)


@needs_data
def test_mnist_by_writer() -> None:
    federation = load("mnist-writers", pool=14)
    train, test = rows(federation)
    assert len(train) == 539
    assert sum(train) + sum(test) == 60_000
    assert min(a + b for a, b in zip(train, test, strict=True)) == 19
    assert max(a + b for a, b in zip(train, test, strict=True)) == 131
    assert 0.19 < sum(test) / 60_000 < 0.23
    with pytest.raises(InvalidData, match=r"1\.\.539"):
        load("mnist-writers", writers=540)


@needs_data
def test_sc_ma() -> None:
    federation = load("sc-ma")
    assert len(federation.clients) == 15
    assert federation.classes == 7
    assert federation.features == 39
    # 162,501 readings of participant 1 in nine stretches, the last reading labelled 0
    stretches = (33677, 928, 3883, 26860, 4247, 3191, 3049, 2917, 83748)
    first = federation.clients[0]
    assert len(first.y_train) + len(first.y_test) == sum(n // 104 for n in stretches)
    for client in federation.clients:
        assert len(set(client.y_train)) == len(set(client.y_test)) == 7
    X = np.concatenate([client.X_train for client in federation.clients])
    assert np.allclose(X.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(X.std(axis=0), 1)


@needs_data
def test_person_activity() -> None:
    federation = load("person-activity")
    assert [client.name[-1] for client in federation.clients] == list("ABCDE")
    assert federation.classes == 11
    # recordings A05 and E05 have 5,224 and 8,893 readings: a window of 40, then one sample in 10
    assert abs(len(federation.clients[0].y_test) - (5224 - 39) // 10) <= 1
    assert abs(len(federation.clients[4].y_test) - (8893 - 39) // 10) <= 1
    three = load("person-activity", persons="CAB")
    assert [client.name[-1] for client in three.clients] == list("CAB")
    with pytest.raises(InvalidData, match="letters"):
        load("person-activity", persons="AX")
    with pytest.raises(InvalidData, match="without training"):
        load("person-activity", test_recordings=("07",))


@needs_data
def test_heart_disease() -> None:
    federation = load("heart-disease")
    train, test = rows(federation)
    assert [a + b for a, b in zip(train, test, strict=True)] == [303, 294, 123, 200]
    ill = [int(client.y_train.sum() + client.y_test.sum()) for client in federation.clients]
    assert ill == [139, 106, 115, 149]


# -- files that are not there, or not right -------------------------------------------------------------


@pytest.mark.parametrize("name", ["sc-ma", "person-activity", "heart-disease", "shl"])
def test_missing_data_says_where_to_get_it(name: str, no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataMissing, match=r"FDRO_DATA is not set.*https?://"):
        load(name)
    monkeypatch.setenv("FDRO_DATA", str(no_data))
    with pytest.raises(DataMissing, match=r"(does not exist|no USER/DATE).*https?://.*FDRO_DATA"):
        load(name)


def test_a_wrong_checksum_is_refused(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDRO_DATA", str(no_data))
    for file in heart_disease.FILES:
        path = no_data / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_text("63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n63,1,1,0,?,,2,150,0,2.3,3,0,6,4\n" * 3)
    with pytest.raises(DataCorrupt, match=r"sha256.*verify=False"):
        load("heart-disease")
    federation = load("heart-disease", verify=False)
    assert rows(federation) == ([4] * 4, [2] * 4)


def test_an_unpacked_file_is_taken_too(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"0,1,2\n"
    packed = lzma.compress(content)
    file = files.File(
        "folder/a.csv.xz",
        f"sha256:{hashlib.sha256(packed).hexdigest()}",
        "Ask.",
        plain=f"sha256:{hashlib.sha256(content).hexdigest()}",
    )
    monkeypatch.setenv("FDRO_DATA", str(no_data))
    (no_data / "folder").mkdir()
    (no_data / "folder" / "a.csv").write_bytes(content)
    assert files.read_bytes(files.locate(file)) == content
    (no_data / "folder" / "a.csv.xz").write_bytes(packed)
    assert files.locate(file).name == "a.csv.xz"
    assert files.read_bytes(files.locate(file)) == content


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """A web server on this machine with one file."""
    content = b"something to download"
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file.bin").write_bytes(content)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/file.bin", content
        running.shutdown()
        thread.join()


def test_download(server: tuple[str, bytes], no_data: Path) -> None:
    url, content = server
    checksum = f"md5:{hashlib.md5(content).hexdigest()}"
    absent = url.replace("file.bin", "absent.bin")
    path = files.locate(files.File("some/file.bin", checksum, "Ask.", (absent, url)))
    assert path.read_bytes() == content
    assert path.is_relative_to(no_data / "cache")
    with pytest.raises(DataCorrupt, match="another file"):
        files.locate(files.File("other/file.bin", "md5:0123", "Ask.", (url,)))
    with pytest.raises(DataMissing, match=r"no download worked.*Ask"):
        files.locate(files.File("third/file.bin", checksum, "Ask.", (absent,)))


def test_parsed_arrays_are_kept_and_made_anew_when_something_changed(no_data: Path) -> None:
    source = no_data / "source.txt"
    source.write_text("1")
    calls = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"a": np.arange(3.0)}

    for settings, expected in (({"k": 1}, 1), ({"k": 1}, 1), ({"k": 2}, 2)):
        arrays = files.cached("thing", [source], settings, make)
        assert arrays["a"].tolist() == [0, 1, 2]
        assert len(calls) == expected
    source.write_text("2")
    files.cached("thing", [source], {"k": 1}, make)
    assert len(calls) == 3
    for kept in (no_data / "cache" / "parsed").iterdir():
        kept.write_bytes(b"PK not an archive")
    files.cached("thing", [source], {"k": 1}, make)
    assert len(calls) == 4


def test_without_pooch_files_at_hand_are_still_read(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FDRO_CACHE")
    monkeypatch.setitem(sys.modules, "pooch", None)  # what an import of a missing package finds
    source = no_data / "source.txt"
    source.write_text("1")
    assert files.cached("thing", [source], {}, lambda: {"a": np.ones(2)})["a"].tolist() == [1, 1]
    with pytest.raises(DataMissing, match=r"fdro\[data\]"):
        files.locate(files.File("a", "md5:0", "Ask.", ("http://127.0.0.1:9/a",)))


def test_a_broken_idx_file_is_refused(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "x.gz"
    path.write_bytes(b"no")
    with pytest.raises(InvalidData, match="gzip"):
        files.read_idx(path)
    path.write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"))
    with pytest.raises(InvalidData, match="3 numbers"):
        files.read_idx(path)
    path.write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x03abc"))
    assert files.read_idx(path).tolist() == [97, 98, 99]
    with pytest.raises(InvalidData, match="pool"):
        files.pixels(np.zeros((1, 4, 4), dtype=np.uint8), pool=3)


# -- windows --------------------------------------------------------------------------------------------


def test_windows_do_not_overlap_and_the_test_comes_later() -> None:
    labels = np.repeat([1, 0, 2, 1], [43, 20, 9, 40]).astype(np.int64)
    times = np.arange(labels.size, dtype=float)[:, None]
    pieces, own, test = windows.cut(times, labels, 4, 0.3)
    assert own.tolist() == [0] * 10 + [1] * 2 + [0] * 10
    assert np.unique(pieces).size == pieces.size  # no reading twice
    assert test.sum() == 3 + 1 + 3
    for start, end in ((0, 10), (10, 12), (12, 22)):
        stretch = test[start:end]
        assert pieces[start:end][~stretch].max() < pieces[start:end][stretch].min()
    times[5] = np.nan
    assert len(windows.cut(times, labels, 4, 0.3)[0]) == 21
    with pytest.raises(InvalidData, match="as long as"):
        windows.cut(times, labels, 100, 0.3)


def test_statistics_of_a_wave() -> None:
    seconds = np.arange(200) / 100.0
    wave = np.stack([3 + np.sin(2 * np.pi * 2 * seconds), np.zeros(200), np.zeros(200)], axis=1)
    found = windows.statistics(wave[None], hertz=100.0)[0]
    assert found[:4] == pytest.approx([3, 0, 0, 3], abs=1e-9)  # means of x, y, z and the magnitude
    assert found[4] == pytest.approx(np.sqrt(0.5), rel=1e-6)
    assert found[-3] > 10 * found[[-4, -2, -1]].max()  # 2 Hz lies in the second band
    assert np.isfinite(windows.statistics(np.zeros((1, 200, 3)), 100.0)).all()


def test_person_activity_holds_a_tag_at_its_last_place() -> None:
    tags = np.array([0, 1, 2, 3, 0, 0], dtype=np.int64)
    places = np.arange(18.0).reshape(6, 3)
    labels = np.arange(6, dtype=np.int64)
    X, y = person_activity._features(tags, places, labels, window=2, stride=1)
    assert y.tolist() == [4, 5]  # every tag is known from reading 3 on
    assert X[0, :3].tolist() == [6.0, 7.0, 8.0]  # the mean of tag 0 at readings 3 (held) and 4
    assert X[0, 3:6].tolist() == [3.0, 4.0, 5.0]
    assert X[0, 24:27].tolist() == [12.0, 12.0, 12.0]  # and its change


def test_standardising_uses_training_data_alone() -> None:
    y = np.zeros(2, dtype=np.int64)
    one = Client("one", np.array([[0.0, 5.0], [2.0, 5.0]]), y, np.array([[100.0, 5.0], [0.0, 7.0]]), y)
    (found,) = standardised([one])
    assert found.X_train.tolist() == [[-1, 0], [1, 0]]
    assert found.X_test.tolist() == [[99, 0], [-1, 0]]


def test_a_stratified_split_keeps_lonely_labels_in_training() -> None:
    train, test = stratified(np.array([0, 1, 1, 2, 2, 2]), 0.01, np.random.default_rng(0))
    assert 0 in train
    assert len(test) == 2
    with pytest.raises(InvalidData, match="test_share"):
        stratified(np.zeros(3), 1.0, np.random.default_rng(0))


# -- SHL on a sample made in its layout -----------------------------------------------------------------


def write_shl(root: Path, seconds: int = 20) -> None:
    """Two users, one day each: still and walking, with a null label between and one NaN."""
    rng = np.random.default_rng(0)
    for user in ("User1", "User2"):
        day = root / "release" / user / "220617"
        day.mkdir(parents=True)
        times = 1498120000000 + 10 * np.arange(100 * seconds)
        labels = np.repeat([1, 0, 2], [40 * seconds, 20 * seconds, 40 * seconds])
        marks = np.column_stack([times, labels, np.zeros((times.size, 6), dtype=np.int64)])
        np.savetxt(day / "Label.txt", marks, fmt="%d")
        for position in ("Bag", "Hand", "Hips", "Torso"):
            motion = rng.normal(size=(times.size, 22)) * (1 + 3 * (labels == 2))[:, None]
            motion[7, 1] = np.nan
            table = np.column_stack([times, motion])
            np.savetxt(day / f"{position}_Motion.txt", table, fmt=["%d", *["%.5f"] * 22])


def test_shl_in_the_public_layout(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shl(no_data / "shl")
    monkeypatch.setenv("FDRO_DATA", str(no_data))
    federation = load("shl", window=100)
    assert [client.name for client in federation.clients] == ["Bag", "Hand", "Hips", "Torso"]
    assert federation.classes == 8
    assert federation.features == 78
    # 8 s of each activity and user; the window with NaN is left out; the last 30 % (2 of 8) are for test
    assert rows(federation) == ([22] * 4, [8] * 4)
    again = load("shl", window=100)
    assert np.array_equal(again.clients[0].X_train, federation.clients[0].X_train)
    assert set(load("shl", positions=("Hips",), window=100).clients[0].y_test) == {0, 1}
    with pytest.raises(InvalidData, match="positions"):
        load("shl", positions=("Knee",))
    with pytest.raises(InvalidData, match="no window"):
        load("shl", window=1000)
