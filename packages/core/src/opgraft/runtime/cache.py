"""The compile cache: a folder with one file per entry, shared by processes.

An entry is what was stored, then a mark: the digest of key and content, the content's length
and a magic word. What comes first is what was stored, so a system's loader takes the file of a
shared library as it is. Entries are written under a temporary name and renamed, so that a reader
sees a whole file or none; what a killed writer leaves is swept later. A file that does not match
its mark is removed and made anew; one of another user is not believed. There are no locks.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from opgraft import settings
from opgraft.digest import blake2b
from opgraft.forking import ForkLock, renewed_in_children

_MAGIC: Final = b"opgraft1"
_MARK: Final = 32 + 8 + len(_MAGIC)
_SUFFIX: Final = ".entry"
_TEMPORARY: Final = ".tmp"
_USES: Final = "uses.txt"
_LINES: Final = 1000
"""Lines of the list of uses from which it is added up to one."""
_STALE: Final = 3600.0
"""Seconds after which a temporary file must be a dead writer's."""
_FRESH: Final = 600.0
"""Seconds for which a use is not noted again in the file's time."""


class Entry(NamedTuple):
    """What the cache holds under a key."""

    data: bytes
    path: str = ""
    """The file, whose first bytes are `data`; empty where it could not be kept."""


class Statistics(NamedTuple):
    """What this process did with the cache."""

    hits: int = 0
    misses: int = 0
    bad: int = 0
    """Entries that did not match their mark; they count as misses too."""
    bytes_read: int = 0
    bytes_written: int = 0


class Contents(NamedTuple):
    """What the folder holds."""

    folder: str
    entries: int
    bytes: int
    limit: int
    hits: int
    """Of all processes that have ended, since the folder was last cleared."""
    misses: int


class CompileCache:
    """Entries in `folder`, at most `limit` bytes of them; `folder` None: nothing is kept.

    Keys are texts of any length; file names are their digests.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, limit: int = 2 << 30) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        self.limit = limit
        self._statistics = Statistics()
        self._lock = ForkLock()
        renewed_in_children(self)
        self._serial = 0
        self._held: int | None = None  # bytes in the folder, by estimate; None: not looked yet
        self._writable = folder is not None

    def renew(self) -> None:
        """See forking.py: a child counts its own uses."""
        self._statistics = Statistics()

    # ---- use

    def get(self, key: str) -> Entry | None:
        """The entry of this key, checked; None if there is none (or a bad one, now removed)."""
        name = self._name(key)
        if name is None:
            self._count(misses=1)
            return None
        try:
            with open(name, "rb") as file:
                stat = os.fstat(file.fileno())
                whole = file.read()
        except OSError:
            self._count(misses=1)
            return None
        if not _trusted(stat.st_uid):
            self._count(misses=1)
            return None
        data = whole[:-_MARK]
        if len(whole) < _MARK or whole[-_MARK:] != _mark(key, data):
            with suppress(OSError):
                os.unlink(name)
            self._count(misses=1, bad=1)
            return None
        if time.time() - stat.st_mtime > _FRESH:
            with suppress(OSError):
                os.utime(name)
        self._count(hits=1, bytes_read=len(whole))
        return Entry(data, name)

    def put(self, key: str, data: bytes) -> Entry:
        """Keep `data` under `key`, and hand it back with its file. Never fails: it warns once."""
        name = self._name(key)
        if name is None or not self._writable:
            return Entry(data)
        with self._lock:
            self._serial += 1
            serial = self._serial
        # unique among processes (pid; a recycled one finds only dead writers' files) and threads
        temporary = f"{name[: -len(_SUFFIX)]}.{os.getpid()}-{serial}{_TEMPORARY}"
        try:
            os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.write(_mark(key, data))
            os.replace(temporary, name)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            self._give_up(error)
            return Entry(data)
        size = len(data) + _MARK
        self._count(bytes_written=size)
        self._stay_within(size)
        return Entry(data, name)

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> Entry:
        """The entry of this key; where there is none, of what `make` makes."""
        return self.get(key) or self.put(key, make())

    # ---- looking at it

    @property
    def statistics(self) -> Statistics:
        """What this process did with the cache so far."""
        with self._lock:
            return self._statistics

    def contents(self) -> Contents:
        """What the folder holds now."""
        sizes = [size for _, size, _ in self._files() if size >= 0]
        hits, misses, _ = self._uses()
        return Contents(self.folder or "", len(sizes), sum(sizes), self.limit, hits, misses)

    def clear(self) -> int:
        """Remove all entries; the number of them. Kernels that are loaded stay usable."""
        count = 0
        for path, size, _ in self._files():
            with suppress(OSError):
                os.unlink(path)
                count += size >= 0
        if self.folder is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, _USES))
        with self._lock:
            self._held = 0
        return count

    def note_uses(self) -> None:
        """Add this process's hits and misses to the folder's; called when the process ends."""
        with self._lock:
            hits, misses = self._statistics.hits, self._statistics.misses
            self._statistics = self._statistics._replace(hits=0, misses=0)
        if self.folder is None or not (hits or misses) or not os.path.isdir(self.folder):
            return
        path = os.path.join(self.folder, _USES)
        with suppress(OSError):
            # short appends are whole: processes that end at one time don't mix their lines
            with open(path, "a") as file:
                file.write(f"{hits} {misses}\n")
            old_hits, old_misses, lines = self._uses()
            if lines > _LINES:
                short = f"{path}.{os.getpid()}{_TEMPORARY}"
                with open(short, "w") as file:
                    file.write(f"{old_hits} {old_misses}\n")
                os.replace(short, path)

    def _uses(self) -> tuple[int, int, int]:
        """Hits, misses and lines in the folder's list of them."""
        hits = misses = count = 0
        if self.folder is not None:
            with suppress(OSError), open(os.path.join(self.folder, _USES)) as file:
                for line in file:
                    hit, _, miss = line.strip().partition(" ")
                    if hit.isdigit() and miss.isdigit():
                        hits, misses = hits + int(hit), misses + int(miss)
                    count += 1
        return hits, misses, count

    # ---- inside

    def _name(self, key: str) -> str | None:
        if self.folder is None:
            return None
        digest = blake2b(key.encode(), digest_size=20).hexdigest()
        return os.path.join(self.folder, digest + _SUFFIX)

    def _count(self, **more: int) -> None:
        with self._lock:
            old = self._statistics
            self._statistics = old._replace(
                **{name: getattr(old, name) + number for name, number in more.items()}
            )

    def _files(self) -> Iterator[tuple[str, int, float]]:
        """Path, size (-1: temporary) and time of last use of the files that are the cache's."""
        if self.folder is None:
            return
        try:
            with os.scandir(self.folder) as found:
                entries = list(found)
        except OSError:
            return
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _TEMPORARY)):
                with suppress(OSError):  # another process may remove it meanwhile
                    stat = entry.stat()
                    size = stat.st_size if entry.name.endswith(_SUFFIX) else -1
                    yield entry.path, size, stat.st_mtime

    def _stay_within(self, added: int) -> None:
        """Sweep when the folder is too full; least recently used entries go first."""
        with self._lock:
            if self._held is not None:
                self._held += added
                if self._held <= self.limit:
                    return
            now = time.time()
            kept: list[tuple[float, str, int]] = []
            for path, size, used in self._files():
                if size >= 0:
                    kept.append((used, path, size))
                elif now - used > _STALE:
                    with suppress(OSError):
                        os.unlink(path)
            held = sum(size for _, _, size in kept)
            if held > self.limit:
                for _, path, size in sorted(kept):
                    if held <= self.limit * 3 // 4:
                        break
                    with suppress(OSError):
                        os.unlink(path)
                    held -= size
            self._held = held

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            first, self._writable = self._writable, False
        if first:
            warnings.warn(
                f"compiled kernels cannot be kept in {self.folder} ({error.strerror}); "
                "set OPGRAFT_CACHE to another folder, or to off",
                RuntimeWarning,
                stacklevel=3,
            )


def _trusted(owner: int) -> bool:
    """Whether code from a file of this user may be run: one's own, or the administrator's."""
    return not hasattr(os, "geteuid") or owner in (0, os.geteuid())


def _mark(key: str, data: bytes) -> bytes:
    digest = blake2b(key.encode(), digest_size=32)
    digest.update(data)
    return digest.digest() + len(data).to_bytes(8, "little") + _MAGIC


def default_folder() -> str | None:
    """Where the platform keeps what can be made again; None where there is no such place."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(base, "opgraft") if os.path.isabs(base) else None


_lock: Final = ForkLock()
_caches: Final[dict[tuple[str | None, int], CompileCache]] = {}


def compile_cache() -> CompileCache:
    """The cache that the settings CACHE and CACHE_SIZE name here and now."""
    chosen: str = settings.CACHE
    if chosen.lower() == "off":
        folder = None
    elif chosen:
        folder = os.path.abspath(os.path.expanduser(chosen))
    else:
        folder = default_folder()
    key = (folder, settings.CACHE_SIZE)
    with _lock:
        found = _caches.get(key)
        if found is None:
            found = _caches[key] = CompileCache(*key)
    return found


def _at_exit() -> None:
    for cache in list(_caches.values()):
        cache.note_uses()


atexit.register(_at_exit)
