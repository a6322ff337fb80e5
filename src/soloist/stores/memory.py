"""Memory: `memory://` or `memory://name`, for tests and for one process.

`Model` is the contract as a program, and what every other store must refine: it takes `now` as an argument and has no
I/O. A key is one record per slot, and a record is absent, a hold, or an empty record that remembers:

    (key, slot) -> token | last | fence | until | state | info | waiting | lying

Claim     read every slot before anything is written:
          1. one of this very token stands: answer with what stands
          2. one of the token that is expected: take it over
          3. with slots, one of the same owner: busy
          4. vacant: absent, expired, a baton that still lies there, or an empty record (of the expected token, if one is)
          5. otherwise busy; whoever will wait leaves a mark on every slot for 2.5 s
Release   with `keep`: an empty record. Somebody waits: a baton. Otherwise the record goes
Baton     a hold of one second with a token of its own, handed to whoever has waited longest: who gets it holds the key.
          While nobody takes it, it *lies* there, and a claim may take it
Clock     CLOCK_BOOTTIME; a process has one memory, and it ends with the process
Traps     a forked child has a copy that excludes nobody: it is refused
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from soloist._world import boottime
from soloist.contract import Busy, Capabilities, Gone, Grant, Holder, Last, Late, Page, Store, owner
from soloist.errors import ConfigError
from soloist.stores._info import MAX_INFO, encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from soloist.contract import Claimed, Info, Opaque, Renewed, State

WAITING = 2.5
"""Seconds that a waiter's mark lasts; it is left anew with each claim."""

BATON = 1.0
"""Seconds that a baton lives if whoever got it is dead."""

CAPABILITIES = Capabilities(
    fence="strict",
    push="baton",
    listing=True,
    slots=True,
    refuses_late=True,
    remembers_last=True,
    shortest_ttl=0.05,
    longest_ttl=10 * 365 * 86400,
    late_by=0,
    max_record=MAX_INFO,
    linearizable="within one process",
    failover="everything ends with the process",
    needs="nothing; one process only, a forked child is refused",
)


class Record:
    """One slot of a key. Without a token it is empty, and remembers `last` until its end."""

    __slots__ = ("fence", "info", "last", "lying", "state", "token", "until", "waiting")

    def __init__(self, token: str, fence: int, until: float, state: State, info: Info, last: Last | None = None) -> None:
        self.token = token
        self.fence = fence
        self.until = until
        self.state: State = state
        self.info = info
        self.last = last
        self.waiting = 0.0
        self.lying = False

    @property
    def is_held(self) -> bool:
        """Whether somebody has it: an empty record is a vacancy, and so is a baton that nobody took."""
        return bool(self.token) and not self.lying


class Ticket(NamedTuple):
    """A waiter in the queue. `give` is called once at most, with the baton's grant as its server sees it."""

    give: Callable[[Baton], None]


class Baton(NamedTuple):
    """A hold that was handed on; its lifetime is the server's `until`."""

    key: str
    token: str
    fence: int
    slot: int
    until: float

    def grant(self, seen: float) -> Grant:
        """As a grant whose seconds count from the refusal at `seen`."""
        return Grant(self.key, self.token, self.fence, None, self.slot, self.until - seen, seen)


class Model:
    """The contract as a program. Not safe for threads; `now` is the server's clock."""

    def __init__(self, batons: Callable[[], str]) -> None:
        self._slots: dict[str, dict[int, Record]] = {}
        self._queues: dict[str, deque[Ticket]] = {}
        self._fence = 0
        self._new_token = batons
        self._sweep_at = 64

    def claim(
        self,
        now: float,
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
    ) -> Claimed:
        """See `Store.claim`."""
        if not_after is not None and now > not_after:
            return Late(now)
        records = self._slots.get(key)
        live: dict[int, Record] = {}
        if records is not None:
            live = {slot: record for slot in range(slots) if (record := records.get(slot)) is not None and record.until > now}
        for slot, record in live.items():
            if record.token == token:
                return Grant(key, token, record.fence, None, slot, record.until - now, now)
        found = self._vacancy(live, token, expect, slots)
        if isinstance(found, int):
            self._fence = max(self._fence + 1, int(now * 1e6))
            before = live.get(found)
            taken = Record(token, self._fence, now + ttl, state, info)
            if before is not None:
                taken.waiting = before.waiting
            self._slots.setdefault(key, {})[found] = taken
            self._sweep(now)
            return Grant(key, token, self._fence, None, found, ttl, now, before.last if before is not None else None)
        if found is not None:
            return Gone(found.token, found.state, now)
        if will_wait:
            for record in live.values():
                record.waiting = now + WAITING
        return Busy(tuple(_holder(key, slot, record, now) for slot, record in live.items() if record.token), now, now)

    @staticmethod
    def _vacancy(live: dict[int, Record], token: str, expect: str | None, slots: int) -> int | Last | None:
        """The slot to take; or the memory that forbids it; or None: busy."""
        if expect is not None:
            for slot, record in live.items():
                if record.token == expect:
                    return slot
        if slots > 1 and any(record.token and not record.lying and owner(record.token) == owner(token) for record in live.values()):
            return None
        forbidden = None
        for slot in range(slots):
            there = live.get(slot)
            if there is None or there.lying:
                return slot
            if there.last is not None:
                if expect is None or there.last.token == expect:
                    return slot
                forbidden = there.last
        return forbidden

    def renew(self, now: float, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None) -> Renewed:
        """See `Store.renew`."""
        record = self._live(now, grant.key, grant.slot)
        if record is None:
            return Gone(None, None, now)
        if not record.token:
            return Gone(record.last.token, record.last.state, now) if record.last else Gone(None, None, now)
        if record.token != grant.token:
            return Busy((_holder(grant.key, grant.slot, record, now),), now, now)
        if record.state != "kept" or state is not None:
            record.until = now + ttl if state == "kept" else max(now + ttl, record.until)
            record.state = record.state if state is None else state
            record.info = record.info if info is None else info
            record.lying = False
        return Grant(grant.key, grant.token, record.fence, None, grant.slot, record.until - now, now)

    def release(self, now: float, grant: Grant, keep: float = 0, last: Last | None = None) -> bool:
        """See `Store.release`."""
        record = self._live(now, grant.key, grant.slot)
        if record is None or not record.token or record.token != grant.token:
            return False
        if keep > 0:
            memory = last or Last(record.token, record.state)
            self._slots[grant.key][grant.slot] = Record("", record.fence, now + keep, memory.state, {}, memory)
        elif record.waiting > now:
            self._hand_on(now, grant.key, grant.slot, record)
        else:
            self._remove(grant.key, grant.slot)
        return True

    def evict(self, now: float, key: str, token: str, *, slots: int = 1) -> bool:
        """See `Store.evict`."""
        for slot in range(slots):
            record = self._live(now, key, slot)
            if record is not None and token and record.token == token:
                return self.release(now, Grant(key, token, record.fence, None, slot, 0, now))
        return False

    def look(self, now: float, key: str, *, slots: int = 1) -> tuple[Holder, ...]:
        """See `Store.look`."""
        found = ((slot, self._live(now, key, slot)) for slot in range(slots))
        return tuple(_holder(key, slot, record, now) for slot, record in found if record is not None and record.is_held)

    def listing(self, now: float, prefix: str, cursor: str | None = None, limit: int = 100) -> Page:
        """See `Store.listing`."""
        after = (cursor[cursor.index(":") + 1 :], int(cursor[: cursor.index(":")])) if cursor else ("", -1)
        names = sorted((key, slot) for key, slots in self._slots.items() if key.startswith(prefix) for slot in slots if (key, slot) > after)
        page: list[Holder] = []
        for key, slot in names:
            if len(page) == limit:
                return Page(tuple(page), f"{page[-1].slot}:{page[-1].key}")
            record = self._live(now, key, slot)
            if record is not None and record.is_held:
                page.append(_holder(key, slot, record, now))
        return Page(tuple(page), None)

    def enter(self, now: float, key: str, ticket: Ticket) -> bool:
        """Take the baton that lies there, or queue up for the next; True if the ticket was served at once."""
        for slot, record in self._slots.get(key, {}).items():
            if record.lying and record.until > now:
                record.lying = False
                ticket.give(Baton(key, record.token, record.fence, slot, record.until))
                return True
        self._queues.setdefault(key, deque()).append(ticket)
        return False

    def leave(self, key: str, ticket: Ticket) -> None:
        """Leave the queue; nothing happens if the ticket was served."""
        queue = self._queues.get(key)
        if queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._queues[key]

    def _hand_on(self, now: float, key: str, slot: int, before: Record) -> None:
        self._fence = max(self._fence + 1, int(now * 1e6))
        record = Record(self._new_token(), self._fence, now + BATON, "running", {})
        record.waiting = before.waiting
        self._slots[key][slot] = record
        queue = self._queues.get(key)
        if queue is None:
            record.lying = True
            return
        ticket = queue.popleft()
        if not queue:
            del self._queues[key]
        ticket.give(Baton(key, record.token, record.fence, slot, record.until))

    def _live(self, now: float, key: str, slot: int) -> Record | None:
        record = self._slots.get(key, {}).get(slot)
        return record if record is not None and record.until > now else None

    def _remove(self, key: str, slot: int) -> None:
        slots = self._slots[key]
        del slots[slot]
        if not slots:
            del self._slots[key]

    def _sweep(self, now: float) -> None:
        """Once the records have doubled, remove the ended ones: nothing grows for ever, at a constant cost a claim."""
        if len(self._slots) < self._sweep_at:
            return
        for key in list(self._slots):
            for slot in [slot for slot, record in self._slots[key].items() if record.until <= now]:
                self._remove(key, slot)
        self._sweep_at = max(64, 2 * len(self._slots))

    def copy(self) -> Model:
        """What a replica knows, or what outlives a restart: every record, and nobody who waits."""
        other = Model(self._new_token)
        other._fence, other._sweep_at = self._fence, self._sweep_at
        other._slots = {key: {slot: copy(record) for slot, record in slots.items()} for key, slots in self._slots.items()}
        return other

    def count(self) -> int:
        """How many records there are, ended ones included."""
        return sum(len(slots) for slots in self._slots.values())


def _holder(key: str, slot: int, record: Record, now: float) -> Holder:
    return Holder(key, slot, record.token, record.fence, record.until - now, record.state, record.info)


class Shared:
    """What all stores of one URL in one process have in common."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.model = Model(lambda: "baton/" + os.urandom(8).hex())
        self.forked = False


_NAMED: dict[tuple[str, str], Shared] = {}


def _after_fork_in_child() -> None:
    for shared in _NAMED.values():
        shared.lock = threading.Lock()
        shared.forked = True


os.register_at_fork(after_in_child=_after_fork_in_child)


class MemoryStore(Store):
    """The model behind a lock. Only `wait` differs between blocking and asyncio use."""

    capabilities = CAPABILITIES

    def __init__(self, shared: Shared, *, aio: bool) -> None:
        self._shared = shared
        self._aio = aio

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
        info = _fitting(info)
        with self._ours().lock:
            return self._shared.model.claim(
                boottime(), key, token, ttl, info=info, state=state, expect=expect, not_after=not_after, slots=slots, will_wait=will_wait
            )

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        info = None if info is None else _fitting(info)
        with self._ours().lock:
            return self._shared.model.renew(boottime(), grant, ttl, state=state, info=info)

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        with self._ours().lock:
            return self._shared.model.release(boottime(), grant, keep, last)

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        with self._ours().lock:
            return self._shared.model.evict(boottime(), key, token, slots=slots)

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        with self._ours().lock:
            return self._shared.model.look(boottime(), key, slots=slots)

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`."""
        with self._ours().lock:
            return self._shared.model.listing(boottime(), prefix, cursor, limit)

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        self._ours()
        return boottime()

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """See `Store.wait`."""
        assert isinstance(seen, float)
        got: list[Baton] = []
        wake, sleep = self._bell()

        def give(baton: Baton) -> None:
            got.append(baton)
            wake()

        ticket = Ticket(give)
        with self._ours().lock:
            served = self._shared.model.enter(boottime(), key, ticket)
        try:
            if not served:
                await sleep(within)
        except BaseException:
            with self._shared.lock:
                self._shared.model.leave(key, ticket)
                for baton in got:
                    self._shared.model.release(boottime(), baton.grant(seen))
            raise
        with self._shared.lock:
            self._shared.model.leave(key, ticket)
        return got[0].grant(seen) if got else None

    def _bell(self) -> tuple[Callable[[], None], Callable[[float], Awaitable[object]]]:
        """A call that wakes one sleeper, from any thread, and the sleeper's call."""
        if not self._aio:
            gate = threading.Lock()
            gate.acquire()

            async def blocked(seconds: float) -> object:
                return gate.acquire(timeout=seconds)

            return gate.release, blocked

        import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

        loop = asyncio.get_running_loop()
        rung = asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # a closed loop's waiter is a dead one: its baton runs out
                loop.call_soon_threadsafe(rung.set)

        async def suspended(seconds: float) -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), seconds)

        return ring, suspended

    def _ours(self) -> Shared:
        if self._shared.forked:
            raise ConfigError("memory:// can't be shared with a forked process: use sqlite:///soloist.db (one host) or a server")
        return self._shared


def _fitting(info: Info) -> Info:
    """A copy of the info, if any other store would take it."""
    encoded(info)
    return dict(info)


def connect(url: str, namespace: str, *, aio: bool) -> MemoryStore:
    """The store of `memory://name`: one for each name and namespace in this process."""
    return MemoryStore(_NAMED.setdefault((url, namespace), Shared()), aio=aio)
