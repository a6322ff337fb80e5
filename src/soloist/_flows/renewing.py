"""Staying the holder.

1. Renewal is due at a third of the lease, in one batch with all others of the process; an attempt takes a sixth of the
   shortest lease at most, so that two fit before the deadline.
2. An attempt without an answer is unknown: it is repeated until the deadline has passed, and then the hold is lost.
3. "Not yours" is lost at once, even before the deadline. A vanished hold is never claimed again in silence.
4. Each hold of a batch is judged apart. One that is being given back is judged no more.
5. What was abandoned is evicted at once, and again when a *reply's* time has passed its `not_after`. Not earlier: only then
   nothing of it can land any more.
6. A run without protection claims its key as soon as the store answers again.
7. A loss is told once, whoever sees it first.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from soloist._flows.asking import Attempts, Wish, claim_surely, deadline
from soloist.contract import Busy, Evict, Gone, Grant, Renew
from soloist.errors import ConfigError, OutcomeUnknown, StoreError, StoreUnavailable
from soloist.events import Lost, Protected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from soloist._world import World
    from soloist.contract import Info, Loss, State, Store, Verdict

RETRY = 1.0
"""Seconds between two attempts to reach a silent store, at most."""

RETRY_SHORT = 0.1
"""The same for a hold that was handed on: it has less than a second."""

AHEAD = 1 / 12
"""The part of its lease by which a hold is renewed early when another is due: soon all are renewed together."""

ALIKE = 4
"""Leases are renewed in one batch if none is this many times longer than the shortest."""

AS_GOOD_AS = 1 / 100
"""A hold whose longest time is nearer to its deadline than this part of its lease has nothing to gain from a renewal."""

SPARE = 0.25
"""Seconds that a request may take at first that isn't a renewal."""

LEAST = 0.05
"""Seconds that a request gets at least, however near the next renewal is."""

FORGOTTEN = 3600.0
"""Seconds after which an abandoned token is given up, if the store never answered: its lease is long over."""


class Place(Protocol):
    """Where a hold reads how long it lasts and whether it is lost: a field, or a page that another process writes."""

    deadline: float
    lost: Loss | None


@dataclass(slots=True)
class Local:
    """A place in this process."""

    deadline: float
    lost: Loss | None = None


@dataclass(slots=True, eq=False)
class Kept:
    """A hold that somebody stays the holder of. `grant` is None while a degraded run hopes for its key."""

    key: str
    token: str
    grant: Grant | None
    place: Place
    lease: float
    due: float
    renewed: bool = True
    since: float = 0.0
    ends: float = math.inf
    slots: int = 1
    info: Info = field(default_factory=dict[str, str | int | float])
    turn_into: State | None = None
    """The state that the next renewal sets."""
    anonymous: bool = False
    """It was handed on to us: its next renewal carries the info."""
    may_land_until: float = 0.0
    """The server's time until which an attempt that ended unknown may still land."""
    once: bool = False
    """It is renewed once, and then nobody's here: the grant travels on with a message. What becomes of it is no loss of ours."""
    leaving: bool = False
    on_lost: Callable[[Loss], object] | None = None
    untold: list[None] = field(default_factory=lambda: [None])
    """Emptied by whoever tells of the loss: `pop` is atomic (rule 7)."""

    @property
    def fence(self) -> int | None:
        """The fencing token, None without one."""
        return self.grant.fence if self.grant else None


@dataclass(slots=True)
class Abandoned:
    """What nobody wants any more."""

    key: str
    token: str
    slots: int
    not_after: float
    due: float
    forgotten: float
    evicted: bool = False


@dataclass(slots=True)
class Book:
    """What one keeper looks after."""

    kept: dict[tuple[str, str], Kept] = field(default_factory=dict[tuple[str, str], Kept])
    abandoned: dict[tuple[str, str], Abandoned] = field(default_factory=dict[tuple[str, str], Abandoned])
    """Both by key and token: a task's token may serve two keys."""
    spare: float = SPARE
    """Seconds that the next request may take that isn't a renewal."""

    def add(self, kept: Kept) -> None:
        """Look after this from now on."""
        self.kept[kept.key, kept.token] = kept

    def remove(self, kept: Kept) -> None:
        """Look after this no more."""
        self.kept.pop((kept.key, kept.token), None)

    def abandon(self, now: float, key: str, token: str, slots: int, not_after: float) -> None:
        """Take over what nobody wants any more; see `World.abandon`."""
        before = self.abandoned.get((key, token))
        last = max(not_after, before.not_after) if before else not_after
        self.abandoned[key, token] = Abandoned(key, token, slots, last, due=now, forgotten=now + FORGOTTEN)

    def leave(self) -> None:
        """Stay the holder of nothing any more; what is to be sent once is sent all the same."""
        for kept in list(self.kept.values()):
            if not kept.once:
                self.remove(kept)

    @property
    def is_unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return bool(self.abandoned) or any(kept.once for kept in list(self.kept.values()))

    def due(self) -> float:
        """When the next of them wants something."""
        times = [kept.due for kept in list(self.kept.values())]
        times += [one.due for one in list(self.abandoned.values())]
        return min(times, default=math.inf)


async def tend(world: World, store: Store, book: Book, *, patience: float) -> None:
    """One round of a keeper: whatever is due now.

    What isn't a renewal gets no more time than the next renewal leaves; and little, since a hold that is taken meanwhile may
    be due sooner. If the store is too slow for that, it gets twice as much in the next round.
    """
    await renew_due(world, store, book, patience)
    in_time = await evict_due(world, store, book, _spare(world, book, patience))
    in_time &= await protect_due(world, store, book, _spare(world, book, patience))
    book.spare = SPARE if in_time else min(2 * book.spare, patience)


async def settle(world: World, store: Store, book: Book, *, patience: float) -> None:
    """What must be done before a process ends, whenever it is due: renewals that are sent once, and evictions."""
    for kept in list(book.kept.values()):
        if kept.once:
            kept.due = world.now()
    await renew_due(world, store, book, patience)
    await evict_due(world, store, book, patience)


async def renew_due(world: World, store: Store, book: Book, patience: float) -> None:
    """Renew the holds whose time has come, and tell of those whose time is up (rules 1 to 4)."""
    now = world.now()
    due = _renewable(world, book, now)
    if any(kept.due <= now for kept in due):
        for alike in _alike(due):
            await _renew(world, store, book, alike, patience)


def _alike(due: list[Kept]) -> Iterator[list[Kept]]:
    """Those with leases of one order together, the shortest first: a batch has the time that its shortest lease leaves, in which
    thousands of longer ones may not be done."""
    group: list[Kept] = []
    for kept in sorted(due, key=lambda kept: kept.lease):
        if group and kept.lease > ALIKE * group[0].lease:
            yield group
            group = []
        group.append(kept)
    yield group


async def _renew(world: World, store: Store, book: Book, due: list[Kept], patience: float) -> None:
    """Send one batch of renewals, and judge each."""
    now = world.now()
    lines = [Renew(kept.grant, _ttl(kept, now), kept.turn_into, kept.info if kept.anonymous else None) for kept in due if kept.grant]
    within = min(patience, min(line.ttl for line in lines) / 6, *((kept.place.deadline - now) / 2 for kept in due if kept.anonymous))
    verdicts: tuple[Verdict, ...]
    try:
        verdicts = await store.batch(lines, within=within)
    except StoreError as error:
        verdicts = (error,) * len(lines)
    except ConfigError as wrong:  # a password that was changed, a server that became read-only: no verdict on a hold
        verdicts = (StoreUnavailable(str(wrong)),) * len(lines)
    for kept, line, verdict in zip(due, lines, verdicts, strict=True):
        if kept.leaving:
            continue
        if isinstance(verdict, Grant | Busy | Gone):
            world.learn(now, verdict.now)
            if kept.once:
                book.remove(kept)
                continue
        judge(world, kept, line, verdict, sent=now)
        if kept.place.lost:
            book.remove(kept)
    if all(isinstance(verdict, StoreUnavailable) for verdict in verdicts):
        world.failed(verdicts[0])  # type: ignore[arg-type]  # all of them are StoreUnavailable, which mypy doesn't conclude


def _renewable(world: World, book: Book, now: float) -> list[Kept]:
    """The holds that are due, or soon are; those whose time is up are lost."""
    due: list[Kept] = []
    for kept in list(book.kept.values()):
        if kept.grant is None or kept.due > now + kept.lease * AHEAD:
            continue
        if kept.place.lost or kept.place.deadline <= now:
            if not kept.once:
                lose(world, kept, kept.place.lost or "unknown")
            book.remove(kept)
        elif not kept.renewed or kept.ends <= kept.place.deadline + kept.lease * AS_GOOD_AS:
            kept.due = kept.place.deadline
        else:
            due.append(kept)
    return due


def judge(world: World, kept: Kept, line: Renew, verdict: Verdict, *, sent: float) -> None:
    """What a renewal's answer means for the hold (rules 2 and 3)."""
    match verdict:
        case Grant() if kept.fence is not None and verdict.fence != kept.fence:
            # Ours had vanished, and a late claim of ours took the key anew (rule 3): somebody may have been in between.
            # Who renews for another process may not know the fence.
            lose(world, kept, "vanished")
        case Grant():
            kept.grant = verdict
            kept.place.deadline = max(kept.place.deadline, deadline(sent, verdict.ttl))
            kept.turn_into = None if kept.turn_into == line.state else kept.turn_into  # it may be newer than the request
            kept.anonymous = kept.anonymous and line.info is None
            kept.due = sent + min(kept.lease, verdict.ttl) / 3
        case Busy():
            lose(world, kept, "taken")
        case Gone():
            lose(world, kept, "vanished" if verdict.last in {None, kept.token} else "taken")
        case _:
            pause = min(RETRY, line.ttl / 6, RETRY_SHORT if kept.anonymous else RETRY)
            kept.due = min(world.now() + pause, kept.place.deadline)


def lose(world: World, kept: Kept, why: Loss) -> None:
    """The hold is lost: note it, and tell once (rule 7)."""
    kept.place.lost = kept.place.lost or why
    try:
        kept.untold.pop()
    except IndexError:
        return
    world.tell(Lost(kept.key, kept.fence, why))
    if kept.on_lost:
        kept.on_lost(why)


def overdue(world: World, kept: Kept) -> Loss | None:
    """Why a hold is lost, as this host's clock tells without asking anybody; None while it is ours."""
    if kept.place.lost is None and world.now() >= kept.place.deadline:
        lose(world, kept, "unknown")
    return kept.place.lost


async def evict_due(world: World, store: Store, book: Book, patience: float) -> bool:
    """Evict what was abandoned, all of it in one batch (rule 5); False if the store didn't answer."""
    now = world.now()
    due = [one for one in list(book.abandoned.values()) if one.due <= now]
    if not due:
        return True
    for one in due:
        one.due = now + RETRY
    verdicts: tuple[Verdict, ...] = ()
    try:
        ready = await _ready(world, store, due, patience)
        if ready:
            verdicts = await store.batch([Evict(one.key, one.token, one.slots) for one in ready], within=patience)
    except (StoreError, ConfigError):
        ready, verdicts = due, (OutcomeUnknown("not evicted"),) * len(due)
    for one, verdict in zip(ready, verdicts, strict=True):
        if isinstance(verdict, StoreError):
            if one.forgotten <= now:
                _forget(book, one)
        elif one.evicted or one.not_after in {0, math.inf}:  # none can land, or nobody can tell when
            _forget(book, one)
        else:
            one.evicted = True
            one.due = world.now() + max(0.0, one.not_after - (world.server_now() or one.not_after)) + 0.001
    return not any(isinstance(verdict, StoreError) for verdict in verdicts)


async def _ready(world: World, store: Store, due: list[Abandoned], patience: float) -> list[Abandoned]:
    """Those that can be evicted now: for the first time, or since a reply says that nothing of them can land any more."""
    if not any(one.evicted for one in due):
        return due
    sent = world.now()
    server = await store.ping(within=patience)
    world.learn(sent, server)
    for one in due:
        if one.evicted and server <= one.not_after:
            one.due = sent + one.not_after - server + 0.001
    return [one for one in due if not one.evicted or server > one.not_after]


def _forget(book: Book, one: Abandoned) -> None:
    if book.abandoned.get((one.key, one.token)) is one:  # abandoned once more meanwhile, it has a new entry
        del book.abandoned[one.key, one.token]


async def protect_due(world: World, store: Store, book: Book, patience: float) -> bool:
    """Claim the keys of degraded runs (rule 6); False if the store didn't answer."""
    now, in_time = world.now(), True
    for kept in [kept for kept in list(book.kept.values()) if kept.grant is None and kept.due <= now]:
        kept.due = now + RETRY if kept.ends > now else math.inf
        if kept.ends <= now:
            continue
        mine, answer = Attempts(kept.token, may_land_until=kept.may_land_until), None
        try:
            with suppress(StoreError):  # told by who met it
                answer = await claim_surely(world, store, Wish(kept.key, _ttl(kept, now), kept.info, kept.slots), mine, within=patience)
        except ConfigError as wrong:  # a password that was changed: told, and asked again
            world.failed(StoreUnavailable(str(wrong)))
        finally:
            kept.may_land_until = mine.may_land_until
        if kept.leaving:
            world.abandon(kept.key, kept.token, slots=kept.slots, not_after=mine.may_land_until)
        elif isinstance(answer, Grant):
            kept.grant = answer
            kept.place.deadline = deadline(mine.sent, answer.ttl)
            kept.due = mine.sent + answer.ttl / 3
            world.tell(Protected(kept.key, answer.fence))
        in_time &= answer is not None
    return in_time


def _spare(world: World, book: Book, patience: float) -> float:
    due = min((kept.due for kept in list(book.kept.values()) if kept.grant), default=math.inf)
    return min(patience, book.spare, max(due - world.now(), LEAST))


def _ttl(kept: Kept, now: float) -> float:
    return min(kept.lease, kept.ends - now)
