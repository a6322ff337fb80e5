"""SQLite: `sqlite:///relative.db` or `sqlite:////absolute.db`, for the processes of one host.

A key is one row of `soloist_lock` per slot. A release empties it; asked to remember, it keeps the token as `last`, and
`until` is the end of that memory. What has ended is deleted by `cleanup()` and, bit by bit, by claims; a trigger raises
the fence in `soloist_store` with every deletion, an operator's too, and no later fence is below:

    namespace | key       | slot | token | fence            | until    | boot | state   | info           | last | last_state
    so        | report:42 | 0    | 9f1c  | 1763500800000123 | 81234.56 | 4be1 | running | {"host": "w1"} |      |

Claim    1. insert the row, or take it over where it is expired or the expected one's: one statement, without BEGIN
         2. refused: read the row. Ours if the token is ours
         With slots: BEGIN IMMEDIATE, 2 for every slot, 1 for the one to take, COMMIT
Clock    `publishing` and `running` holds end on CLOCK_BOOTTIME, which no step of the wall clock moves, and with the boot
         whose id stands in `boot`. All else, every `now` and `not_after`, and a row with an empty `boot`, is wall time.
         A host without a boot id of its own (not Linux; LXC and nspawn containers) uses wall time alone
Traps    a key is bound as bytes and cast, since Python binds no lone surrogates; SQLite compares text as bytes
         Read all rows of a RETURNING: the last one commits. A hold keeps the memory that it took over in `last`, since
         RETURNING doesn't know the row before. With synchronous = normal a power cut may take the last moments with it:
         running holds end by then anyway, and of a queued or kept one a vacancy is left, which is run
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from soloist._world import boottime
from soloist.contract import (
    Busy,
    Capabilities,
    Claimed,
    Evict,
    Gone,
    Grant,
    Holder,
    Info,
    Last,
    Late,
    Line,
    Look,
    Opaque,
    Page,
    Release,
    Renew,
    Renewed,
    State,
    Store,
    Verdict,
    owner,
)
from soloist.errors import ConfigError, StoreError, TooLarge
from soloist.stores._sqlite import DatabaseFile, Schema, mount_points, read, transaction

FORMAT = 1
MAX_INFO = 64 * 1024
SWEEP_EVERY, SWEEP_ROWS, CLEANUP_ROWS = 64, 256, 2000
"""One claim in 64 looks at 256 rows, so at most a third of a table has ended."""

TABLES = (
    """
create table if not exists soloist_store (
  one integer primary key check (one = 1), format integer not null, fence integer not null, swept integer not null)
""",
    """
insert or ignore into soloist_store values (1, 1, 0, 0)
""",
    """
create table if not exists soloist_lock (
  namespace text not null, key text not null, slot integer not null, token text not null, fence integer not null,
  until real not null, boot text not null, state text not null, info text not null, last text, last_state text,
  primary key (namespace, key, slot))
""",
    """
create trigger if not exists soloist_fence after delete on soloist_lock begin
  update soloist_store set fence = old.fence where fence < old.fence;
end
""",
)
TAKE = """
insert into soloist_lock as old (namespace, key, slot, token, fence, until, boot, state, info)
values (:namespace, cast(:key as text), :slot, :token,
        max(:now_us, 1 + coalesce((select fence from soloist_store), 0),
            1 + coalesce((select max(fence) from soloist_lock where namespace = :namespace and key = cast(:key as text)), 0)),
        :until, :in_boot, :state, :info)
on conflict (namespace, key, slot) do update set
  token = excluded.token, fence = excluded.fence, until = excluded.until, boot = excluded.boot, state = excluded.state, info = excluded.info,
  last = iif(token = '' and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end, last, null),
  last_state = iif(token = '' and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end, last_state, null)
where until <= case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
   or token <> :token and (token = :expect or token = '' and (:expect is null or last = :expect))
returning fence, last, last_state
"""
READ = """
select slot, token, fence, until - case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end as ttl,
       state, info, last, last_state
from soloist_lock where namespace = :namespace and key = cast(:key as text) and slot < :slots and ttl > 0 order by slot
"""
RENEW = """
update soloist_lock set
  until = coalesce(:clock, iif(boot = '', :wall, :up))
          + iif(:state = 'kept', :ttl, max(:ttl, until - iif(boot = '', :wall, :up))),
  boot = coalesce(:in_boot, boot), state = coalesce(:state, state), info = coalesce(:info, info)
where namespace = :namespace and key = cast(:key as text) and slot = :slot and token = :token
  and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end and (:state is not null or state <> 'kept')
returning fence, until - iif(boot = '', :wall, :up)
"""
RELEASE = """
update soloist_lock set
  token = '', until = :until, boot = '', info = '{}', last = coalesce(:last, token), last_state = coalesce(:last_state, state)
where namespace = :namespace and key = cast(:key as text) and slot between :first and :final and token = :token and token <> ''
  and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
"""
LIST = """
select cast(key as blob), slot, token, fence,
       until - case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end as ttl, state, info, last, last_state
from soloist_lock
where namespace = :namespace and (key, slot) > (cast(:key as text), :slot) and key < cast(:end as text) and token <> '' and ttl > 0
order by key, slot limit :limit
"""
STRETCH = """
select max(rowid) from (select rowid from soloist_lock where rowid > :after order by rowid limit :rows)
"""
SWEEP = """
delete from soloist_lock where rowid > :after and rowid <= :end
   and until <= case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
"""

CAPABILITIES = Capabilities(
    fence="strict",
    push="",
    poll=0.02,
    listing=True,
    slots=True,
    refuses_late=True,
    remembers_last=True,
    shortest_ttl=0.05,
    longest_ttl=10 * 365 * 86400,
    late_by=0,
    max_record=MAX_INFO,
    linearizable="among the processes of one host, on a disk of that host",
    failover="a reboot ends running holds, and leaves queued and kept ones; a power cut may take the last moments' with it",
    needs="SQLite 3.35, and a directory that may be written, on a disk of this host",
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The host's clocks: wall time; the one that goes on while the machine sleeps; the boot it counts from, '' for wall time alone."""

    wall: Callable[[], float]
    up: Callable[[], float]
    boot: str


class At(NamedTuple):
    """The moment of a request, on both clocks."""

    wall: float
    up: float
    boot: str

    def clock(self, state: State) -> tuple[float, str]:
        """The time by which a hold of this state ends, and its boot."""
        return (self.wall, "") if state in ("queued", "kept") or not self.boot else (self.up, self.boot)


class Row(NamedTuple):
    """What lies in a slot and hasn't ended. Without a token it is empty, and remembers `last`."""

    slot: int
    token: str
    fence: int
    ttl: float
    state: State
    info: str
    last: str | None
    last_state: State | None

    def holder(self, key: str) -> Holder:
        """As others see it."""
        return Holder(key, self.slot, self.token, self.fence, self.ttl, self.state, json.loads(self.info))


class Claim(NamedTuple):
    """What a claim asks for, as it is stored."""

    key: str
    token: str
    ttl: float
    state: State
    info: str
    expect: str | None
    slots: int


class SqliteStore(Store):
    """The contract on a file of this host."""

    capabilities = CAPABILITIES

    def __init__(self, file: DatabaseFile, namespace: str, clocks: Clocks) -> None:
        self._file = file
        self._namespace = namespace
        self._clocks = clocks

    async def claim(
        self,
        key: str,
        token: str,
        ttl: float,
        *,
        info: Info,
        state: State = "running",
        expect: str | None = None,
        not_after: float | None = None,
        slots: int = 1,
        will_wait: bool = False,
        within: float = 3,
    ) -> Claimed:
        """See `Store.claim`."""
        asked = Claim(key, token, ttl, state, encoded(info), expect, slots)
        return await self._file.ask(lambda db: self._claim(db, asked, not_after), within, makes=True)

    async def renew(
        self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3
    ) -> Renewed:
        """See `Store.renew`."""
        return await self._file.ask(lambda db: self._renew(db, grant, ttl, state, info), within)

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        return await self._file.ask(lambda db: self._release(db, grant.key, grant.token, grant.slot, grant.slot, keep, last), within)

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        return await self._file.ask(lambda db: self._release(db, key, token, 0, slots - 1), within)

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        return await self._file.ask(lambda db: self._look(db, key, slots), within)

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`."""
        return await self._file.ask(lambda db: self._listing(db, prefix, cursor, limit), within)

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> NoReturn:
        """SQLite wakes nobody: a waiter asks again every `capabilities.poll` seconds."""
        raise NotImplementedError("sqlite:// can't push: ask again every `capabilities.poll` seconds")

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        return await self._file.ask(self._ping, within)

    async def batch(self, lines: Sequence[Line], *, within: float = 3) -> tuple[Verdict, ...]:
        """Each line's own verdict, in one transaction."""

        def ask(db: sqlite3.Connection) -> tuple[Verdict, ...]:
            with transaction(db):
                return tuple([self._line(db, line) for line in lines])

        return await self._file.ask(ask, within)

    async def cleanup(self, *, within: float = 60) -> int:
        """Remove what has ended, in short transactions, until all is done or the time is up."""
        ends, removed, after = time.monotonic() + within, 0, 0
        while (left := ends - time.monotonic()) > 0:
            start = after
            count, end = await self._file.ask(lambda db: self._sweep(db, start, CLEANUP_ROWS), left)  # noqa: B023 - asked at once
            removed += count
            if end is None:
                break
            after = end
        return removed

    async def close(self) -> None:
        """See `Store.close`."""
        await self._file.close()

    def _now(self) -> At:
        return At(self._clocks.wall(), self._clocks.up(), self._clocks.boot)

    def _facts(self, at: At, key: str) -> dict[str, object]:
        return {"namespace": self._namespace, "key": encoded_key(key), "wall": at.wall, "up": at.up, "boot": at.boot}

    def _claim(self, db: sqlite3.Connection, asked: Claim, not_after: float | None) -> Claimed:
        at = self._now()
        if not_after is not None and at.wall > not_after:
            return Late(at.wall)
        facts = claim_facts(asked, at, self._facts(at, asked.key))
        if asked.slots > 1:
            with transaction(db):
                answer = judged(asked, at, rows(db, facts))
                if isinstance(answer, int):
                    answer = taken(db, asked, at, facts | {"slot": answer}, answer)
                    assert answer is not None
        else:
            answer = taken(db, asked, at, facts, 0) or judged(asked, at, rows(db, facts))
            if isinstance(answer, int):
                return Busy((), at.wall, at.wall)  # it ended in between: ask again
        if isinstance(answer, Grant) and answer.fence % SWEEP_EVERY == 0:
            self._sweep_on(db)
        return answer

    def _renew(self, db: sqlite3.Connection, grant: Grant, ttl: float, state: State | None, info: Info | None) -> Renewed:
        at = self._now()
        facts = self._facts(at, grant.key)
        clock, boot = (None, None) if state is None else at.clock(state)
        facts |= {"token": grant.token, "slot": grant.slot, "ttl": ttl, "state": state, "clock": clock, "in_boot": boot}
        facts |= {"info": None if info is None else encoded(info), "slots": grant.slot + 1}
        for fence, left in db.execute(RENEW, facts).fetchall():
            return Grant(grant.key, grant.token, fence, None, grant.slot, left, at.wall)
        for row in rows(db, facts):
            if row.slot == grant.slot:
                return not_renewed(grant, row, at)
        return Gone(None, None, at.wall)

    def _release(
        self, db: sqlite3.Connection, key: str, token: str, first: int, final: int, keep: float = 0, last: Last | None = None
    ) -> bool:
        at = self._now()
        facts = self._facts(at, key)
        facts |= {"token": token, "first": first, "final": final, "until": at.wall + keep if keep > 0 else 0}
        facts["last"], facts["last_state"] = last or (None, None)
        return db.execute(RELEASE, facts).rowcount > 0

    def _look(self, db: sqlite3.Connection, key: str, slots: int) -> tuple[Holder, ...]:
        facts = self._facts(self._now(), key)
        facts["slots"] = slots
        return tuple([row.holder(key) for row in rows(db, facts) if row.token])

    def _listing(self, db: sqlite3.Connection, prefix: str, cursor: str | None, limit: int) -> Page:
        slot, _, after = cursor.partition(":") if cursor else ("-1", "", prefix)
        facts = self._facts(self._now(), after)
        facts |= {"slot": int(slot), "end": encoded_key(prefix) + b"\xff", "limit": limit + 1}
        found = [Row(*row).holder(key.decode("utf-8", "surrogatepass")) for key, *row in db.execute(LIST, facts)]
        page = tuple(found[:limit])
        return Page(page, f"{page[-1].slot}:{page[-1].key}" if len(found) > limit else None)

    def _ping(self, db: sqlite3.Connection) -> float:
        db.execute(READ, self._facts(self._now(), "") | {"slots": 0}).fetchall()
        return self._now().wall

    def _line(self, db: sqlite3.Connection, line: Line) -> Verdict:
        try:
            match line:
                case Renew(grant, ttl, state, info):
                    return self._renew(db, grant, ttl, state, info)
                case Release(grant, keep, last):
                    return self._release(db, grant.key, grant.token, grant.slot, grant.slot, keep, last)
                case Evict(key, token, slots):
                    return self._release(db, key, token, 0, slots - 1)
                case Look(key, slots):
                    return self._look(db, key, slots)
        except StoreError as error:
            return error

    def _sweep(self, db: sqlite3.Connection, after: int, rows: int) -> tuple[int, int | None]:
        """Delete what has ended among the rows that follow; how many that was, and the last one looked at, None at the end."""
        at = self._now()
        ((end,),) = db.execute(STRETCH, {"after": after, "rows": rows}).fetchall()
        facts = {"after": after, "end": end, "wall": at.wall, "up": at.up, "boot": at.boot}
        return db.execute(SWEEP, facts).rowcount, end

    def _sweep_on(self, db: sqlite3.Connection) -> None:
        """Sweep on where the last claim that swept left off, whoever's it was. Not now, if others are writing."""
        with suppress(sqlite3.Error), transaction(db):
            ((after,),) = db.execute("select max(swept) from soloist_store").fetchall()
            _, end = self._sweep(db, after or 0, SWEEP_ROWS)
            db.execute("update soloist_store set swept = ?", (end or 0,))


def claim_facts(asked: Claim, at: At, facts: dict[str, object]) -> dict[str, object]:
    """The claim as TAKE and READ read it."""
    clock, boot = at.clock(asked.state)
    facts |= {"token": asked.token, "expect": asked.expect, "until": clock + asked.ttl, "in_boot": boot, "state": asked.state}
    facts |= {"info": asked.info, "slot": 0, "slots": asked.slots, "now_us": int(at.wall * 1e6)}
    return facts


def taken(db: sqlite3.Connection, asked: Claim, at: At, facts: dict[str, object], slot: int) -> Grant | None:
    """Step 1 of a claim."""
    for fence, last, last_state in db.execute(TAKE, facts).fetchall():
        return Grant(asked.key, asked.token, fence, None, slot, asked.ttl, at.wall, None if last is None else Last(last, last_state))
    return None


def rows(db: sqlite3.Connection, facts: dict[str, object]) -> list[Row]:
    """Step 2 of a claim: what hasn't ended of a key."""
    return [Row(*row) for row in db.execute(READ, facts)]


def judged(asked: Claim, at: At, live: list[Row]) -> int | Grant | Busy | Gone:
    """The slot that the claim may take; or its answer."""
    for row in live:
        if row.token == asked.token:
            return Grant(asked.key, row.token, row.fence, None, row.slot, row.ttl, at.wall)
    if asked.expect is not None:
        for row in live:
            if row.token == asked.expect:
                return row.slot
    busy = Busy(tuple([row.holder(asked.key) for row in live if row.token]), at.wall, at.wall)
    if asked.slots > 1 and any(row.token and owner(row.token) == owner(asked.token) for row in live):
        return busy
    found = {row.slot: row for row in live}
    forbidden = None
    for slot in range(asked.slots):
        row = found.get(slot)
        if row is None or (not row.token and asked.expect in (None, row.last)):
            return slot
        if not row.token:
            forbidden = Gone(row.last, row.last_state, at.wall)
    return forbidden or busy


def not_renewed(grant: Grant, row: Row, at: At) -> Renewed:
    """Why a renewal changed nothing: the hold is another's, or given back, or `kept`."""
    if not row.token:
        return Gone(row.last, row.last_state, at.wall)
    if row.token != grant.token:
        return Busy((row.holder(grant.key),), at.wall, at.wall)
    return Grant(grant.key, grant.token, row.fence, None, grant.slot, row.ttl, at.wall)


def encoded_key(key: str) -> bytes:
    """Any str as bytes that sort like it; none begins with 0xff."""
    return key.encode("utf-8", "surrogatepass")


def encoded(info: Info) -> str:
    """The holder's info as it is stored."""
    body = json.dumps(dict(info))
    if len(body) > MAX_INFO:
        raise TooLarge(f"the holder's info has {len(body)} bytes, sqlite:// takes {MAX_INFO}: shorten it", size=len(body), limit=MAX_INFO)
    return body


def check(db: sqlite3.Connection, path: str) -> None:
    """The tables are of a format that we know."""
    for (version,) in db.execute("select format from soloist_store").fetchall():
        if version > FORMAT:
            raise ConfigError(f"{path!r} was written by a newer Soloist (format {version}, this one knows {FORMAT}): upgrade this one")


SCHEMA = Schema(frozenset({"soloist_store", "soloist_lock"}), TABLES, check)


def host_clocks(proc: str = "/proc") -> Clocks:
    """This host's clocks, the same for every container on it.

    A container with a boot id of its own would take the others' running holds for those of an earlier boot, and one in a
    time namespace has shifted clocks: the one goes by wall time, in the other the shift is taken away again.
    """
    id_file = "/proc/sys/kernel/random/boot_id"
    boot = read(f"{proc}/sys/kernel/random/boot_id").strip()
    if sys.platform != "linux" or any(point == id_file for point, _ in mount_points(read(f"{proc}/self/mountinfo"))):
        boot = ""
    shifts = [line.split() for line in read(f"{proc}/self/timens_offsets").splitlines()]
    shift = sum(int(seconds) + int(nanoseconds) / 1e9 for clock, seconds, nanoseconds in shifts if clock == "boottime")
    return Clocks(time.time, (lambda: boottime() - shift) if shift else boottime, boot)


def connect(url: str, namespace: str, *, aio: bool) -> SqliteStore:
    """The store of `sqlite:///path`; nothing is opened yet."""
    if sqlite3.sqlite_version_info < (3, 35):
        raise ConfigError(f"sqlite:// needs SQLite 3.35, this Python has {sqlite3.sqlite_version}: use a newer Python, or a server")
    path, mounts = parsed(url)
    return SqliteStore(DatabaseFile(path, SCHEMA, aio=aio, mounts=mounts), namespace, host_clocks())


def parsed(url: str) -> tuple[str, str | None]:
    """The path that a URL names, and where to look up its file system; None to accept each."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise ConfigError(f"{url!r} can't be read ({error}): write sqlite:///relative.db or sqlite:////absolute.db") from error
    path = unquote(parts.path, errors="surrogateescape")[1:]
    if ":memory:" in (parts.netloc, path):
        raise ConfigError(f"{url!r} would be another database for each connection, and exclude nobody: use memory://, or a file")
    if parts.netloc or parts.fragment or path in ("", "/") or not url.lower().startswith("sqlite:///") or "\0" in path:
        raise ConfigError(f"{url!r} names no file of this host: write sqlite:///relative.db or sqlite:////absolute.db (# as %23, ? as %3F)")
    allowed = options.pop("allow_network_fs", "0")
    if options or allowed not in ("0", "1"):
        raise ConfigError(f"{url!r} has an option that sqlite:// doesn't know: it takes allow_network_fs=1 or nothing; settings go elsewhere")
    return path, None if allowed == "1" else "/proc/self/mountinfo"
