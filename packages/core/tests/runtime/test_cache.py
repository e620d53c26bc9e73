"""The compile cache: what comes back, what is not believed, who shares it, how it is bounded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from pathlib import Path

import pytest

from opgraft import settings
from opgraft.runtime.cache import CompileCache, compile_cache, default_folder

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded, use of fork:DeprecationWarning"  # other tests start threads
)
FORK = multiprocessing.get_context("fork")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.entry"))


def test_what_is_kept_comes_back_with_its_file(cache_folder: Path) -> None:
    cache = CompileCache(cache_folder)
    assert cache.get("key") is None
    put = cache.put("key", b"\x7fELF data")
    assert put.data == b"\x7fELF data"
    found = CompileCache(cache_folder).get("key")
    assert found == put
    # what was stored comes first in the file: a loader takes it as it is
    assert Path(put.path).read_bytes().startswith(b"\x7fELF data")
    assert cache.get_or_make("key", lambda: b"other").data == b"\x7fELF data"
    assert cache.get_or_make("new", lambda: b"made").data == b"made"


def test_statistics_count_hits_misses_and_bytes(cache_folder: Path) -> None:
    cache = CompileCache(cache_folder)
    cache.get_or_make("a", lambda: bytes(100))
    cache.get_or_make("a", lambda: bytes(100))
    statistics = cache.statistics
    assert (statistics.hits, statistics.misses, statistics.bad) == (1, 1, 0)
    assert statistics.bytes_read == statistics.bytes_written > 100
    contents = cache.contents()
    assert (contents.entries, contents.bytes) == (1, statistics.bytes_written)
    assert cache.clear() == 1
    assert cache.get("a") is None
    assert cache.contents().entries == 0


def test_hits_are_added_up_over_processes(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opgraft.runtime.cache._LINES", 5)
    for _ in range(12):
        cache = CompileCache(cache_folder)
        cache.get_or_make("a", lambda: b"")
        cache.get("b")
        cache.note_uses()
        cache.note_uses()
    assert cache.contents()[-2:] == (11, 13)
    assert len((cache_folder / "uses.txt").read_text().splitlines()) <= 6
    (cache_folder / "uses.txt").write_text("1 2\nrubbish\n3 4\n")
    assert cache.contents()[-2:] == (4, 6)
    cache.clear()
    assert cache.contents()[-2:] == (0, 0)
    CompileCache(None).note_uses()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"X" + data[1:],
        lambda data: data[:-1] + b"!",
        lambda data: data + b"more",
    ],
    ids=["cut by one", "empty", "cut in half", "first byte", "last byte", "longer"],
)
def test_a_damaged_entry_is_made_anew(cache_folder: Path, damage: object) -> None:
    cache = CompileCache(cache_folder)
    path = Path(cache.put("key", bytes(range(200))).path)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert cache.get("key") is None
    assert not path.exists()
    assert cache.get_or_make("key", lambda: b"again").data == b"again"
    assert cache.statistics.bad == 1


def test_an_entry_under_another_keys_name_is_not_believed(cache_folder: Path) -> None:
    cache = CompileCache(cache_folder)
    right, wrong = cache.put("right", b"1"), cache.put("wrong", b"2")
    os.replace(wrong.path, right.path)
    assert cache.get("right") is None


def test_code_of_another_user_is_not_run(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CompileCache(cache_folder)
    path = cache.put("key", b"data").path
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    owner = os.stat(path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache.get("key") is None
    assert os.path.exists(path)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert cache.get("key") is not None


def test_keys_of_any_length_have_short_distinct_file_names(cache_folder: Path) -> None:
    # E08: names of fusions that differ at their very end only, and characters no file may have
    cache = CompileCache(cache_folder)
    long = "add_mul_exp2_" * 400
    keys = [long + "sin", long + "cos", "a/b:c\0d\n", "ä" * 300, "", "../../x", "CON"]
    for number, key in enumerate(keys):
        cache.put(key, bytes([number]))
    assert [cache.get(key) for key in keys] == [
        cache.put(k, bytes([n])) for n, k in enumerate(keys)
    ]
    files = list(cache_folder.iterdir())
    assert len(files) == len(keys)
    assert all(len(file.name.encode()) <= 143 for file in files)


def test_over_the_limit_the_least_recently_used_go_first(cache_folder: Path) -> None:
    cache = CompileCache(cache_folder, limit=10_000)
    now = time.time()
    for number in range(9):
        path = cache.put(f"key {number}", bytes(1000)).path
        os.utime(path, (now - 9000 + number, now - 9000 + number))
    assert cache.get("key 0") is not None  # now the most recently used
    cache.put("straw", bytes(1000))
    kept = {key for key in [*(f"key {n}" for n in range(9)), "straw"] if cache.get(key)}
    assert {"key 0", "straw"} <= kept
    assert "key 1" not in kept
    assert cache.contents().bytes <= 10_000


def test_an_entry_larger_than_the_limit_still_gives_its_result(cache_folder: Path) -> None:
    cache = CompileCache(cache_folder, limit=100)
    assert cache.get_or_make("big", lambda: bytes(1000)).data == bytes(1000)


def test_what_dead_writers_left_is_swept_and_living_ones_are_let_be(cache_folder: Path) -> None:
    cache_folder.mkdir()
    old, young, foreign = (
        cache_folder / name for name in ("dead.1-1.tmp", "alive.2-1.tmp", "notes.txt")
    )
    for file in (old, young, foreign):
        file.write_bytes(b"half")
    os.utime(old, (1, 1))
    os.utime(foreign, (1, 1))
    CompileCache(cache_folder).put("key", b"data")
    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


def test_a_folder_that_cannot_be_written_warns_once_and_everything_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CompileCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="cache.*OPGRAFT_CACHE") as caught:
        entry = cache.put("key", b"data")
    assert len(str(caught[0].message).splitlines()) == 1
    assert (entry.data, entry.path) == (b"data", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.put("other", b"more").data == b"more"
        assert cache.get("key") is None
    assert cache.contents().entries == 0


def test_the_settings_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.using(CACHE=str(tmp_path / "one"), CACHE_SIZE="1M"):
        assert compile_cache().folder == str(tmp_path / "one")
        assert compile_cache().limit == 1 << 20
        assert compile_cache() is compile_cache()
    with settings.using(CACHE="off"):
        assert compile_cache().folder is None
        assert compile_cache().put("key", b"data").path == ""
        assert compile_cache().get("key") is None
    monkeypatch.delenv("OPGRAFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_cache().folder == default_folder() == str(tmp_path / "opgraft")


def _use(folder: str, results: object) -> None:
    cache = CompileCache(Path(folder))
    right = 0
    for number in range(30):
        data = bytes([number]) * (5000 + number)
        right += cache.get_or_make(f"kernel {number}", lambda data=data: data).data == data  # type: ignore[misc]
    results.put(right)  # type: ignore[attr-defined]


def test_sixteen_processes_share_an_empty_folder(cache_folder: Path) -> None:
    # F06
    results = FORK.SimpleQueue()
    workers = [FORK.Process(target=_use, args=(str(cache_folder), results)) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 16
    assert [results.get() for _ in workers] == [30] * 16
    assert len(entries(cache_folder)) == 30
    assert len(list(cache_folder.iterdir())) == 30


def _write_for_ever(folder: str) -> None:
    cache = CompileCache(Path(folder))
    while True:
        for number in range(5):
            cache.put(f"kernel {number}", bytes([number]) * 3_000_000)


def test_a_writer_that_is_killed_leaves_whole_entries_or_none(cache_folder: Path) -> None:
    # F06, second part
    for round_ in range(4):
        writer = FORK.Process(target=_write_for_ever, args=(str(cache_folder),))
        writer.start()
        while not entries(cache_folder):
            time.sleep(0.001)
        time.sleep(0.003 * round_)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        cache = CompileCache(cache_folder)
        for number in range(5):
            found = cache.get(f"kernel {number}")
            assert found is None or found.data == bytes([number]) * 3_000_000
        assert cache.statistics.bad == 0
        cache.put("after", b"works")  # nobody holds a lock
