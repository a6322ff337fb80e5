"""SQLite: `sqlite:///relative.db` or `sqlite:////absolute.db`, for the processes of one host.

A key is one row of `soloist_lock` per slot. A release empties it; asked to remember, it keeps the token as `last`, and
`until` is the end of that memory. What has ended is deleted by claims, bit by bit, and by `cleanup()`. With each deletion,
an operator's too, a trigger raises the fence in `soloist_store`, and no later fence is below it:

    namespace | key       | slot | token | fence            | until    | boot | state   | info          | last | last_state
    so        | report:42 | 0    | 9f1c  | 1763500800000123 | 81234.56 | 4be1 | running | {"host":"w1"} |      |

Claim    1. insert the row, or take it over where it is expired or the expected one's: one statement, without BEGIN
         2. refused: read the row. Ours if the token is ours
         With slots: BEGIN IMMEDIATE, 2 for all of them, 1 for the one to take, COMMIT
Clock    `publishing` and `running` holds end on CLOCK_BOOTTIME, which no step of the wall clock moves, and with the boot
         whose id stands in `boot`. Where `boot` is empty, `until` is wall time, as is each `now` and `not_after`: for all
         other records, and for all records of a host without a boot id of its own, which takes others' boots for its own
Traps    RETURNING knows only the new row, so a hold keeps in `last` what it took over; its last row commits: read them all
         Python binds no lone surrogates: keys are bound as bytes, and cast (SQLite compares text by its bytes); a token
         that has one is stored as a blob, which equals no text. Text is read as bytes: damaged text fails one row, not all
         A power cut may undo the last moments (synchronous = normal). It ends running holds anyway; of a queued or kept
         one it may leave a vacancy, which is run. Otherwise each commit would cost an fsync
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from json import loads
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from soloist.contract import Busy, Capabilities, Evict, Gone, Grant, Holder, Last, Late, Look, Page, Release, Renew, State, Store, owner
from soloist.errors import ConfigError, StoreError, StoreUnavailable
from soloist.stores._info import MAX_INFO, encoded
from soloist.stores._sqlite.file import DatabaseFile, Schema, transaction
from soloist.stores._sqlite.host import Clocks, host_clocks, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soloist.contract import Claimed, Info, Line, Renewed, Verdict

FORMAT = 1
SWEEP_EVERY, SWEEP_ROWS, CLEANUP_ROWS, LAST_ROW = 64, 256, 2000, 2**63 - 1
"""One claim in 64, by its fence, looks at the next 256 rows, if there are so many: a quarter of a large table has ended, hardly more."""

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
select namespace, key, slot, token, fence, until, boot, state, info, last, last_state from soloist_lock limit 0
""",
    """
create trigger if not exists soloist_fence after delete on soloist_lock begin
  update soloist_store set fence = old.fence where fence < old.fence;
end
""",
)
TAKE = """
insert into soloist_lock (namespace, key, slot, token, fence, until, boot, state, info)
values (:namespace, cast(:key as text), :slot, :token,
        max(:wall_us, 1 + coalesce((select fence from soloist_store), 0),
            1 + coalesce((select max(fence) from soloist_lock where namespace = :namespace and key = cast(:key as text)), 0)),
        :until, :its_boot, :state, :info)
on conflict (namespace, key, slot) do update set
  token = excluded.token, fence = excluded.fence, until = excluded.until, boot = excluded.boot, state = excluded.state,
  info = excluded.info,
  last = iif(token = '' and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end, last, null),
  last_state = iif(token = '' and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end, last_state, null)
where until <= case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
   or token <> :token and (token = :expect or token = '' and (:expect is null or last = :expect))
returning slot, fence, cast(last as blob), last_state
"""
READ = """
select slot, cast(token as blob), fence, until - case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end as ttl,
       state, cast(info as blob), cast(last as blob), last_state
from soloist_lock where namespace = :namespace and key = cast(:key as text) and slot between :first and :final and ttl > 0 order by slot
"""
RENEW = """
update soloist_lock set
  until = coalesce(:its_now, iif(boot = '', :wall, :up)) + iif(:state = 'kept', :ttl, max(:ttl, until - iif(boot = '', :wall, :up))),
  boot = coalesce(:its_boot, boot), state = coalesce(:state, state), info = coalesce(:info, info)
where namespace = :namespace and key = cast(:key as text) and slot = :first and token = :token and (:state is not null or state <> 'kept')
  and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
returning fence, until - iif(boot = '', :wall, :up)
"""
RELEASE = """
update soloist_lock set
  token = '', until = :until, boot = '', info = '', last = coalesce(:last, token), last_state = coalesce(:last_state, state)
where namespace = :namespace and key = cast(:key as text) and slot between :first and :final and token = :token and token <> ''
  and until > case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
"""
LIST = """
select cast(key as blob), slot, cast(token as blob), fence,
       until - case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end as ttl,
       state, cast(info as blob), cast(last as blob), last_state
from soloist_lock
where namespace = :namespace and (key, slot) > (cast(:key as text), :slot) and key < cast(:end as text) and token <> '' and ttl > 0
order by key, slot limit :limit
"""
STRETCH = """
select rowid from soloist_lock where rowid > ? order by rowid limit 1 offset ?
"""
SWEEP = """
delete from soloist_lock
where rowid > :after and rowid <= :final and until <= case when boot = '' then :wall when :boot in ('', boot) then :up else 9e18 end
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
    linearizable="among the processes of one host",
    failover="none; a reboot ends running holds, queued and kept ones stand",
    needs="SQLite 3.35, and a directory on a disk of this host that may be written",
)


STATES: tuple[State, ...] = get_args(State)


class At(NamedTuple):
    """The moment of a request, by the host's clocks."""

    wall: float
    up: float
    boot: str

    def clock(self, state: State) -> tuple[float, str]:
        """The time by which a record of this state ends, and its `boot`."""
        return (self.up, self.boot) if self.boot and state in ("publishing", "running") else (self.wall, "")


class Claim(NamedTuple):
    """What a claim asks for; its info as it is stored."""

    key: str
    token: str
    ttl: float
    info: str
    state: State
    expect: str | None
    not_after: float | None
    slots: int


class Row(NamedTuple):
    """What lies in a slot and hasn't ended. Without a token it is empty, and remembers `last`."""

    slot: int
    token: str
    fence: int
    ttl: float
    state: State
    info: bytes
    last: str | None
    last_state: State | None

    def holder(self, key: str) -> Holder:
        """As others see it; `ConfigError` if the row is damaged."""
        with suppress(ValueError, RecursionError):
            info = loads(self.info)
            if isinstance(info, dict) and whole(self.fence) is not None and self.state in STATES:
                return Holder(key, self.slot, self.token, self.fence, self.ttl, self.state, info)
        raise ConfigError(
            f"the row of {key!r} (slot {self.slot}) in the table soloist_lock isn't a lock of Soloist's, or is a damaged one: "
            "look at it with `sqlite3`, delete it, or choose another namespace="
        )

    def shown(self, key: str) -> Holder:
        """The same for a listing. A damaged row is shown as far as it can be read: it shuts others out, and here one sees why."""
        try:
            return self.holder(key)
        except ConfigError:
            state = self.state if self.state in STATES else "running"
            return Holder(key, self.slot, self.token, whole(self.fence), self.ttl, state, {})


class SqliteStore(Store):
    """The contract on a file of this host."""

    capabilities = CAPABILITIES

    def __init__(self, file: DatabaseFile, namespace: str, clocks: Clocks) -> None:
        self._file = file
        self._namespace = bound(namespace)
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
        asked = Claim(key, token, ttl, encoded(info), state, expect, not_after, slots)
        return await self._file.ask(self._claim, within, asked, makes=True)

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        return await self._file.ask(self._renew, within, Renew(grant, ttl, state, info))

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        return await self._file.ask(self._release, within, grant.key, grant.token, range(grant.slot, grant.slot + 1), keep, last)

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        return await self._file.ask(self._release, within, key, token, range(slots), 0, None)

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        return await self._file.ask(self._look, within, key, slots)

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`."""
        return await self._file.ask(self._listing, within, prefix, cursor, limit)

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        await self._file.ask(self._look, within, "", 1)
        return self._clocks.wall()

    async def batch(self, lines: Sequence[Line], *, within: float = 3) -> tuple[Verdict, ...]:
        """Each line's own verdict, in one transaction."""
        return await self._file.ask(self._batch, within, lines)

    async def cleanup(self, *, within: float = 60) -> int:
        """Remove what has ended, in transactions so short that nobody waits for them; until all is seen, or the time is up."""
        ends, removed, after = time.monotonic() + within, 0, 0
        while True:
            count, final = await self._file.ask(self._sweep, ends - time.monotonic(), after, CLEANUP_ROWS)
            removed += count
            if final is None or time.monotonic() > ends:
                return removed
            after = final

    async def close(self) -> None:
        """See `Store.close`."""
        await self._file.close()

    def _claim(self, db: sqlite3.Connection, asked: Claim) -> Claimed:
        at = self._now()
        if asked.not_after is not None and at.wall > asked.not_after:
            return Late(at.wall)
        its_now, its_boot = at.clock(asked.state)
        facts = self._facts(at, asked.key, 0, asked.slots - 1)
        facts |= {"slot": 0, "token": bound(asked.token), "expect": bound(asked.expect), "state": asked.state, "info": asked.info}
        facts |= {"until": its_now + asked.ttl, "its_boot": its_boot, "wall_us": int(at.wall * 1e6)}
        if asked.slots == 1:
            answer = taken(db, asked, at, facts) or judged(asked, at, rows(db, facts))
        else:
            with transaction(db):
                answer = judged(asked, at, rows(db, facts))
                if isinstance(answer, int):
                    facts["slot"] = answer
                    answer = taken(db, asked, at, facts) or answer
        if isinstance(answer, int):  # it has ended since it was refused: ask again
            return Busy((), at.wall, at.wall)
        if isinstance(answer, Grant) and answer.fence is not None and answer.fence % SWEEP_EVERY == 0:
            self._sweep_on(db)
        return answer

    def _renew(self, db: sqlite3.Connection, line: Renew) -> Renewed:
        at, grant = self._now(), line.grant
        its_now, its_boot = (None, None) if line.state is None else at.clock(line.state)
        facts = self._facts(at, grant.key, grant.slot, grant.slot)
        facts |= {"token": bound(grant.token), "ttl": line.ttl, "state": line.state, "its_now": its_now, "its_boot": its_boot}
        facts["info"] = None if line.info is None else encoded(line.info)
        for fence, ttl in db.execute(RENEW, facts).fetchall():
            return Grant(grant.key, grant.token, fence, None, grant.slot, ttl, at.wall)
        for row in rows(db, facts):
            return unchanged(grant, at, row)
        return Gone(None, None, at.wall)

    def _release(self, db: sqlite3.Connection, key: str, token: str, slots: range, keep: float, last: Last | None) -> bool:
        at = self._now()
        memory, state = last or (None, None)
        facts = self._facts(at, key, slots.start, slots.stop - 1)
        facts |= {"token": bound(token), "until": at.wall + keep if keep > 0 else 0, "last": bound(memory), "last_state": state}
        return db.execute(RELEASE, facts).rowcount > 0

    def _look(self, db: sqlite3.Connection, key: str, slots: int) -> tuple[Holder, ...]:
        return tuple([row.holder(key) for row in rows(db, self._facts(self._now(), key, 0, slots - 1)) if row.token])

    def _listing(self, db: sqlite3.Connection, prefix: str, cursor: str | None, limit: int) -> Page:
        slot, _, after = cursor.partition(":") if cursor else ("-1", "", prefix)
        end = stored(prefix) + b"\xff"  # no text has this byte
        facts = self._facts(self._now(), after, 0, 0) | {"slot": int(slot), "end": end, "limit": limit + 1}
        found = [read(row).shown(key.decode("utf-8", "surrogatepass")) for key, *row in db.execute(LIST, facts)]
        page = tuple(found[:limit])
        return Page(page, f"{page[-1].slot}:{page[-1].key}" if len(found) > limit else None)

    def _batch(self, db: sqlite3.Connection, lines: Sequence[Line]) -> tuple[Verdict, ...]:
        with transaction(db):
            return tuple([self._line(db, line) for line in lines])

    def _line(self, db: sqlite3.Connection, line: Line) -> Verdict:
        try:
            match line:
                case Renew():
                    return self._renew(db, line)
                case Release(grant, keep, last):
                    return self._release(db, grant.key, grant.token, range(grant.slot, grant.slot + 1), keep, last)
                case Evict(key, token, slots):
                    return self._release(db, key, token, range(slots), 0, None)
                case Look(key, slots):
                    return self._look(db, key, slots)
        except StoreError as error:
            return error
        except ConfigError as error:  # a damaged row keeps no other line out
            return StoreUnavailable(str(error))

    def _sweep(self, db: sqlite3.Connection, after: int, limit: int) -> tuple[int, int | None]:
        """Delete what has ended among the next rows: how many, and which was the last one seen; None at the end."""
        at = self._now()
        final = stretch(db, after, limit)
        facts = {"after": after, "final": LAST_ROW if final is None else final, "wall": at.wall, "up": at.up, "boot": at.boot}
        return db.execute(SWEEP, facts).rowcount, final

    def _sweep_on(self, db: sqlite3.Connection) -> None:
        """Sweep on from where the last sweep ended, whoever's it was, if enough rows lie there. Another time, if somebody is writing."""
        with suppress(sqlite3.Error):
            for (after,) in db.execute("select swept from soloist_store").fetchall():
                final = stretch(db, after, SWEEP_ROWS)
                if final is not None:
                    self._sweep(db, after, SWEEP_ROWS)
                if final is not None or after:
                    db.execute("update soloist_store set swept = ?", (final or 0,))

    def _now(self) -> At:
        return At(self._clocks.wall(), self._clocks.up(), self._clocks.boot)

    def _facts(self, at: At, key: str, first: int, final: int) -> dict[str, object]:
        """What requests about slots of a key are given."""
        assert final < LAST_ROW, "SQLite has no such slot, and a client asks for none"
        wall, up, boot = at
        return {
            "namespace": self._namespace,
            "key": stored(key),
            "first": first,
            "final": final,
            "wall": wall,
            "up": up,
            "boot": boot,
        }


def stretch(db: sqlite3.Connection, after: int, rows: int) -> int | None:
    """The last of the next so many rows; None if there are fewer."""
    for (final,) in db.execute(STRETCH, (after, rows - 1)).fetchall():
        return int(final)
    return None


def taken(db: sqlite3.Connection, asked: Claim, at: At, facts: dict[str, object]) -> Grant | None:
    """Step 1 of a claim, for the slot in `facts`."""
    for slot, fence, last, last_state in db.execute(TAKE, facts).fetchall():
        before = None if last is None else Last(unbound(last), last_state)
        return Grant(asked.key, asked.token, fence, None, slot, asked.ttl, at.wall, before)
    return None


def rows(db: sqlite3.Connection, facts: dict[str, object]) -> list[Row]:
    """Step 2 of a claim: what lies in the slots."""
    return [read(row) for row in db.execute(READ, facts)]


def read(row: Sequence[Any]) -> Row:
    """What a request has answered."""
    slot, token, fence, ttl, state, info, last, last_state = row
    try:
        name = token.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        name, info = unbound(token), b""  # without info it counts as damaged
    return Row(slot, name, fence, ttl, state, info, None if last is None else unbound(last), last_state)


def judged(asked: Claim, at: At, found: list[Row]) -> int | Grant | Busy | Gone:
    """The slot that the claim may take; or else its answer."""
    for row in found:
        if row.token == asked.token:
            return Grant(asked.key, asked.token, row.fence, None, row.slot, row.ttl, at.wall)
    if asked.expect is not None:
        for row in found:
            if row.token == asked.expect:
                return row.slot
    busy = Busy(tuple([row.holder(asked.key) for row in found if row.token]), at.wall, at.wall)
    if asked.slots > 1 and any(row.token and owner(row.token) == owner(asked.token) for row in found):
        return busy
    slots = {row.slot: row for row in found}
    gone = None
    for slot in range(asked.slots):
        there = slots.get(slot)
        if there is None or (not there.token and asked.expect in (None, there.last)):
            return slot
        if not there.token:
            gone = Gone(there.last, there.last_state, at.wall)
    return gone or busy


def unchanged(grant: Grant, at: At, row: Row) -> Renewed:
    """Why a renewal changed nothing: the hold is given back, another's, or `kept`."""
    if not row.token:
        return Gone(row.last, row.last_state, at.wall)
    if row.token != grant.token:
        return Busy((row.holder(grant.key),), at.wall, at.wall)
    return Grant(grant.key, grant.token, row.fence, None, grant.slot, row.ttl, at.wall)


def stored(key: str) -> bytes:
    """Any text as bytes that sort as it does."""
    return key.encode("utf-8", "surrogatepass")


def bound(token: str | None) -> str | bytes | None:
    """Any token as it is stored; nothing stays nothing."""
    if token is not None:
        try:
            token.encode()
        except UnicodeEncodeError:
            return stored(token)
    return token


def whole(fence: object) -> int | None:
    """The fence, if it is one: a damaged row may have any value there."""
    return fence if isinstance(fence, int) else None


def unbound(token: bytes) -> str:
    """The token that was stored. A damaged one becomes one that is nobody's."""
    try:
        return token.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return token.decode("utf-8", "backslashreplace")


def check(db: sqlite3.Connection, path: str) -> None:
    """Refuse tables of a format that we don't know (rule 10)."""
    for (version,) in db.execute("select format from soloist_store").fetchall():
        if not isinstance(version, int) or version > FORMAT:
            raise ConfigError(f"{path!r} is of the newer format {version}, this version knows {FORMAT}: upgrade Soloist here, too")


SCHEMA = Schema(("soloist_store", "soloist_lock"), TABLES, check)


def connect(url: str, namespace: str, *, aio: bool) -> SqliteStore:
    """The store of `sqlite:///path`. Nothing is opened yet."""
    if sqlite3.sqlite_version_info < (3, 35):
        raise ConfigError(f"sqlite:// needs SQLite 3.35, this Python has {sqlite3.sqlite_version}: use a newer one, or another store")
    path, mounts = parse(url)
    return SqliteStore(DatabaseFile(path, SCHEMA, aio=aio, mounts=mounts), namespace, host_clocks())
