"""The file of an SQLite database: opened, asked, and given up. What is asked is in `soloist/stores/sqlite.py`.

A process has one connection per store, behind a lock: SQLite has one writer at a time anyway, and threads that queue up
for a lock have their turn sooner than connections that find the file busy. asyncio asks through a few threads of ours.

1.  Only a busy file is asked again, until `within` is over; then it was surely not done. SQLite's own timeout sleeps where
    gevent can't switch, so it is 0. No limit reaches into a disk that stands still.
2.  The file is made by whoever asks with `makes`. To all others a file or tables that aren't there are empty ones.
3.  A deleted file lives on for those who have it open, so its inode is compared before each request. What is under way
    while a file is deleted was asked before: like all its holds it is gone, and its holder hears of it at the next renewal.
4.  A connection is closed before a fork. As long as a child has an inherited one, SQLite there takes the process's locks
    for held and asks the kernel for none: two writers, and two holders. https://sqlite.org/howtocorrupt.html
5.  This process never open()s the file itself: closing it would drop every POSIX lock that SQLite has on it.
6.  A signal's handler may ask in the middle of a request of its own thread: it is refused, not deadlocked.
"""

from __future__ import annotations

import errno
import os
import random
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple
from urllib.parse import quote

from soloist.errors import ConfigError, OutcomeUnknown, SoloistError, StoreUnavailable
from soloist.stores._sqlite.host import refused, text, unusable

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

THREADS = 4
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0002, 0.02
WRONG_PATH = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class Schema(NamedTuple):
    """What lies in the file: its tables' names, the statements that make them, and a check of the first that raises `ConfigError`."""

    names: tuple[str, ...]
    statements: tuple[str, ...]
    check: Callable[[sqlite3.Connection, str], None]


class DatabaseFile:
    """One SQLite file, as one store uses it. `mounts` says where to read what is mounted; without it each place will do."""

    def __init__(self, path: str, schema: Schema, *, aio: bool, mounts: Path | None) -> None:
        self._db: sqlite3.Connection | None = None
        self._nothing: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._readable = self._made = self._asking = False
        self._lock = threading.RLock()
        self._threads: ThreadPoolExecutor | None = None
        self._schema, self._aio, self._mounts = schema, aio, mounts
        self.path = str(Path(path).absolute())
        with _OPENING:
            _FILES.add(self)

    async def ask(self, work: Callable[[sqlite3.Connection, *Ts], T], within: float, *args: *Ts, makes: bool = False) -> T:
        """What `work` answers. It may be called several times; only its last call counts."""
        ends = time.monotonic() + within
        if not self._aio:
            return self._patiently(work, args, within, ends, makes=makes)
        return await self._in_a_thread(lambda: self._patiently(work, args, within, ends, makes=makes))

    async def close(self) -> None:
        """Close the connection, and let the threads end. Both come back when something is asked."""
        if not self._aio:
            self._shut()
        elif self._threads is not None:
            await self._in_a_thread(self._shut)
            self._threads.shutdown(wait=False)
            self._threads = None

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        """A cancelled caller strands nothing: a request that has begun comes to its end, another is never begun."""
        import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - the same

        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "soloist-sqlite")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _patiently(self, work: Callable[[sqlite3.Connection, *Ts], T], args: tuple[*Ts], within: float, ends: float, *, makes: bool) -> T:
        pause = SHORTEST_PAUSE
        while True:
            with self._lock:
                if self._asking:
                    raise StoreUnavailable(f"{self.path!r} is being asked by this very thread: ask nothing in a signal's handler")
                try:
                    self._asking = True
                    return work(self._opened(makes=makes), *args)
                except sqlite3.Error as error:
                    reason = error
                    self._judge(error)
                finally:
                    self._asking = False
            if time.monotonic() + pause > ends:
                raise self._busy(within) from reason
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - chance, not secrets
            pause = min(2 * pause, LONGEST_PAUSE)

    def _there(self) -> tuple[int, int] | None:
        """Which file lies there now, None for none."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - at each request: a Path costs twice as much
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"{self.path!r} can't be reached ({error.strerror}): use a path that this user may read and write"
            raise (ConfigError if error.errno in WRONG_PATH else StoreUnavailable)(message) from error
        return found.st_dev, found.st_ino

    def _opened(self, *, makes: bool) -> sqlite3.Connection:
        """The connection to the file that lies there now; or to an empty one, where there is none."""
        db, inode = self._db, self._there()
        if db is None or inode != self._inode:
            self._shut()
            if inode is None and not makes:
                return self._emptiness()
            db = self._db = self._open(inode)
        elif db.in_transaction:  # an exception from a signal's handler struck between a BEGIN and its end
            db.rollback()
        if not (self._made if makes else self._readable):
            self._prepare(db, makes=makes)
        return db if self._readable else self._emptiness()

    def _open(self, inode: tuple[int, int] | None) -> sqlite3.Connection:
        self._inode = inode
        reason = None if self._mounts is None else refused(self.path, text(self._mounts))
        if reason is None and inode is not None and not Path(self.path).is_file():
            reason = unusable(self.path)
        if reason is not None:
            raise ConfigError(reason)
        while True:
            name = f"file:{quote(os.fsencode(self.path))}?mode={'rwc' if inode is None else 'rw'}"
            db = sqlite3.connect(name, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
            self._inode, inode = inode, self._there()
            if self._inode == inode:  # nobody has put another one there meanwhile
                return db
            db.close()

    def _prepare(self, db: sqlite3.Connection, *, makes: bool) -> None:
        db.execute("pragma synchronous = normal")
        if db.execute("pragma encoding").fetchall() != [("UTF-8",)]:
            raise ConfigError(f"{self.path!r} is a database in UTF-16: use another file")
        there = {str(name) for (name,) in db.execute("select name from sqlite_schema where type = 'table'")} & {*self._schema.names}
        if self._schema.names[0] in there:
            self._schema.check(db, self.path)
        if makes:
            db.execute("pragma page_size = 1024")  # of a new file: a commit writes one page, and rows are small
            if db.execute("pragma journal_mode = wal").fetchall() != [("wal",)]:
                raise ConfigError(f"{self.path!r} can't be given a write-ahead log: use a file on a disk of this host")
            self._make(db)
            self._schema.check(db, self.path)
        self._made = makes
        self._readable = makes or len(there) == len(self._schema.names)

    def _make(self, db: sqlite3.Connection) -> None:
        with transaction(db):
            for statement in self._schema.statements:
                db.execute(statement)

    def _emptiness(self) -> sqlite3.Connection:
        """What a reader finds where there is no file: our tables, and nothing in them."""
        if self._nothing is None:
            self._nothing = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._make(self._nothing)
        return self._nothing

    def _shut(self) -> None:
        with self._lock:
            db, self._db = self._db, None
            self._readable = self._made = False
            if db is not None:
                db.close()

    def __del__(self) -> None:
        for db in (self._db, self._nothing):
            if db is not None:
                db.close()

    def _judge(self, error: sqlite3.Error) -> None:
        """Raise what the caller gets; or return: ask again."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            return
        replaced = self._there() != self._inode
        self._shut()
        if not replaced and not re.match(r"no such table: (main\.)?soloist_", str(error)):
            raise self._verdict(code, error) from error

    def _verdict(self, code: int, error: sqlite3.Error) -> SoloistError:
        match code:
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                return ConfigError(f"{self.path!r} is no SQLite database, or a damaged one ({error}): use another path, or move it away")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return ConfigError(unusable(self.path) or f"{self.path!r} can't be written ({error}): use another path")
            case sqlite3.SQLITE_CANTOPEN:
                if (reason := unusable(self.path)) is not None:
                    return ConfigError(reason)
                return StoreUnavailable(
                    f"{self.path!r} can't be opened ({error}): see whether a file can be made in {str(Path(self.path).parent)!r} at all, "
                    "and whether this process has too many files open"
                )
            case sqlite3.SQLITE_ERROR:
                return ConfigError(f"{self.path!r} has tables named soloist_… that aren't ours ({error}): use a file of its own")
            case sqlite3.SQLITE_IOERR:
                return OutcomeUnknown(
                    f"{self.path!r} can't be read or written ({error}): see what the system's log says of its disk, and stop whoever still "
                    "uses a file that was deleted there without its -wal and -shm"
                )
            case sqlite3.SQLITE_FULL:
                return StoreUnavailable(f"{self.path!r} can't grow ({error}): make room on its disk")
            case _:
                return StoreUnavailable(f"{self.path!r} can't be used just now: {error}")

    def _busy(self, within: float) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.path!r} was busy all the time: look for a process that is stopped, or that has a transaction open on this file, "
            f"or raise store_timeout= if many write to it (this attempt had {within:.3g} s)"
        )

    def stop(self) -> None:
        """Give up the connection, and let nobody ask until `go_on`."""
        self._lock.acquire()
        if not self._asking:
            self._shut()

    def go_on(self) -> None:
        """Let others ask again."""
        self._lock.release()

    def begin_anew(self) -> sqlite3.Connection | None:
        """Forget, as a child, what was the parent's; what C code that forks unasked has passed on must stay open, and unused."""
        inherited, self._db = self._db, None
        self._lock, self._asking, self._threads = threading.RLock(), False, None
        return inherited


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    """Several statements as one. IMMEDIATE: a deferred BEGIN fails at once when it writes after another has."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        db.rollback()
        raise


_FILES: weakref.WeakSet[DatabaseFile] = weakref.WeakSet()
_OPENING = threading.Lock()
_INHERITED: list[sqlite3.Connection | None] = []


def _before_fork() -> None:
    """Nobody is inside SQLite while this process forks, and no connection is inherited (rule 4)."""
    _OPENING.acquire()
    for file in _FILES:
        file.stop()


def _after_fork_in_parent() -> None:
    for file in _FILES:
        file.go_on()
    _OPENING.release()


def _after_fork_in_child() -> None:
    _INHERITED.extend([file.begin_anew() for file in _FILES])
    if _OPENING.locked():  # not where C code forked without a word
        _OPENING.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
