"""Taking and giving back one lock.

1. A token serves one acquisition, so asking again with it is reading back (`asking.py`).
2. Whatever may still land of an acquisition that was given up, or is given back, is abandoned to the keeper. Nothing is
   awaited while unwinding.
3. One last question is asked when the time to wait is up.
4. A hold that was handed on is short and anonymous: its first renewal brings the full lease and our info, soon if a keeper
   renews, else before the user has it.
5. A release whose reply was lost is sent again; one that failed is told, left to the keeper, and raised. A hold that isn't
   renewed is not released once its time is up: it may be somebody else's.
6. `min_hold` doesn't release: it shortens the lease to the rest, in the state `kept`.
7. With `if_store_down="run"` a store that can't be asked costs the protection, not the work.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from soloist._flows.asking import Attempts, Wish, claim_surely, deadline, twice
from soloist._flows.renewing import RETRY, Kept, Local, judge, lose
from soloist._flows.waiting import turn
from soloist.contract import Busy, Grant, Renew
from soloist.errors import ConfigError, NotAcquired, OutcomeUnknown, StoreError, StoreUnavailable
from soloist.events import Acquired, Degraded, ForceReleased, LimitsDiffer, Refused, Released, ReleaseFailed

if TYPE_CHECKING:
    from soloist._world import World
    from soloist.contract import Holder, Info, Loss, Renewed, Store

SETTLES = 0.1
"""Seconds after which a hold that was handed on is renewed (rule 4): short sections never pay for it."""

LAST_WORD = 0.5
"""Seconds that a question may take at least, however little of the time to wait is left."""

WHOLE = 0.99
"""A hold with less than this part of its lease left is renewed before a user has it whom no keeper serves."""

PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms a key is taken: a lock's options as one value, all times in seconds."""

    key: str
    lease: float = 30
    slots: int = 1
    renew: bool = True
    max_hold: float = math.inf
    min_hold: float = 0
    if_store_down: Literal["raise", "run"] = "raise"
    patience: float = 3


async def acquire(world: World, store: Store, terms: Terms, info: Info, wait: float) -> Kept:
    """Ask until the key is ours or `wait` seconds have passed; then once more.

    Raises:
        NotAcquired: Somebody else holds it.
        StoreError: The store gave no answer that counts, and the terms don't say `run`.
    """
    started = world.now()
    try:
        kept = await _acquire(world, store, terms, info, wait)
    except NotAcquired as refusal:
        world.tell(Refused(terms.key, refusal.holder, world.now() - started))
        raise
    except (StoreUnavailable, OutcomeUnknown) as error:  # rule 7
        if terms.if_store_down == "raise":
            raise
        world.tell(Degraded(terms.key, str(error)))
        return _kept(terms, info, world.token(), None, asked=world.now(), lasts=math.inf, due=world.now() + RETRY)
    world.tell(Acquired(kept.key, kept.fence, kept.grant.slot if kept.grant else 0, world.now() - started))
    return kept


async def _acquire(world: World, store: Store, terms: Terms, info: Info, wait: float) -> Kept:
    mine, first, ends = Attempts(world.token()), True, world.now() + wait
    wish = Wish(terms.key, min(terms.lease, terms.max_hold), info, terms.slots)
    try:
        while True:
            left = ends - world.now()
            last_try = left <= 0  # rule 3
            within = min(terms.patience, max(left, LAST_WORD)) if wait else terms.patience
            answer = await claim_surely(world, store, wish, mine, within=within, will_wait=not last_try)
            if isinstance(answer, Grant):
                if not terms.renew:
                    answer = await _whole(world, store, wish, mine, answer)
                if world.now() < deadline(mine.sent, answer.ttl):
                    return _granted(terms, info, mine, answer)
                continue
            assert isinstance(answer, Busy), "only a claim that expects a token can be told that it is gone"
            if first:
                _compare_limits(world, terms, answer)
            first = False
            if last_try:
                raise NotAcquired(terms.key, answer.holders)  # noqa: TRY301 - it unwinds like a cancellation
            baton = await turn(world, store, terms.key, answer, ends)
            if baton and (kept := await _settled(world, store, terms, wish, mine, baton)):
                return kept
    except BaseException:  # refused, cancelled, interrupted: rule 2, in one place for all of them
        if mine.may_land_until:
            world.abandon(terms.key, mine.token, slots=terms.slots, not_after=mine.may_land_until)
        raise


def _granted(terms: Terms, info: Info, mine: Attempts, grant: Grant) -> Kept:
    lasts = deadline(mine.sent, grant.ttl)
    due = mine.sent + grant.ttl / 3 if terms.renew else lasts
    kept = _kept(terms, info, grant.token, grant, asked=mine.sent, lasts=lasts, due=due)
    kept.may_land_until = mine.may_land_until
    return kept


async def _whole(world: World, store: Store, wish: Wish, mine: Attempts, grant: Grant) -> Grant:
    """The hold with its full lease: some stores cap the first one, and an answer to a repetition is what stands (rule 4)."""
    if grant.ttl >= wish.ttl * WHOLE:
        return grant
    sent, before = world.now(), mine.may_land_until
    mine.may_land_until = before or grant.now  # who is cancelled now has it, and must abandon it
    longer: Renewed | None = None
    with suppress(StoreError):
        longer = await store.renew(grant, wish.ttl, within=(deadline(mine.sent, grant.ttl) - sent) / 2)
    mine.may_land_until = before
    if not isinstance(longer, Grant):
        return grant
    mine.sent = sent
    return longer


async def _settled(world: World, store: Store, terms: Terms, wish: Wish, mine: Attempts, baton: Grant) -> Kept | None:
    """A baton as a hold of the full lease, at once or soon (rule 4); None if it came to nothing."""
    now, lasts = world.now(), deadline(mine.sent, baton.ttl)
    if lasts <= now:
        return None
    if terms.renew and lasts - now > 5 * SETTLES:
        kept = _kept(terms, wish.info, baton.token, baton, asked=now, lasts=lasts, due=now + SETTLES)
        kept.anonymous = True
    else:
        try:
            answer = await store.renew(baton, wish.ttl, info=wish.info, within=lasts - now)
        except BaseException as error:
            world.abandon(baton.key, baton.token, slots=terms.slots, not_after=0)
            if isinstance(error, StoreError):
                return None
            raise
        if not isinstance(answer, Grant) or world.now() >= deadline(now, answer.ttl):
            return None
        kept = _granted(terms, wish.info, Attempts(baton.token, now), answer)
    if mine.may_land_until:
        world.abandon(terms.key, mine.token, slots=terms.slots, not_after=mine.may_land_until)
        mine.may_land_until = 0
    return kept


def _kept(terms: Terms, info: Info, token: str, grant: Grant | None, *, asked: float, lasts: float, due: float) -> Kept:
    return Kept(
        terms.key,
        token,
        grant,
        Local(lasts),
        terms.lease,
        due,
        renewed=terms.renew,
        since=asked,
        ends=asked + terms.max_hold,
        slots=terms.slots,
        info=info,
    )


def _compare_limits(world: World, terms: Terms, refusal: Busy) -> None:
    for holder in refusal.holders:
        theirs = holder.info.get("limit", 1) if holder.info else terms.slots  # without info it was handed on just now
        if theirs != terms.slots:
            world.tell(LimitsDiffer(terms.key, terms.slots, int(theirs)))
            return


async def give_back(world: World, store: Store, terms: Terms, kept: Kept) -> bool:
    """Release; False if it wasn't ours any more. Whoever calls has told the keeper to let go of it.

    Raises:
        StoreError: The release wasn't confirmed. The keeper goes on trying, and the lease ends by itself.
    """
    kept.leaving = True
    now, lost = world.now(), kept.place.lost
    if kept.grant is None:
        world.abandon(kept.key, kept.token, slots=kept.slots, not_after=kept.may_land_until)  # rule 2
        world.tell(Released(kept.key, None, ours=False, kept=0))
        return False
    rest = max(kept.since + terms.min_hold - now, 0)
    if rest and kept.may_land_until:  # an attempt that may still land shall find it kept: then it changes nothing
        rest = max(rest, terms.patience)
    ours = False
    if lost not in {"taken", "vanished"} and (kept.renewed or now < kept.place.deadline):  # rule 5
        try:
            ours = await _confirmed(world, store, kept.grant, rest, terms.patience)
        except BaseException as error:
            if rest == 0:
                world.abandon(kept.key, kept.token, slots=kept.slots, not_after=kept.may_land_until)
            world.tell(ReleaseFailed(kept.key, kept.fence, str(error) or type(error).__name__))
            raise
    if kept.may_land_until and not (ours and rest):  # rule 2; sooner, the keeper's eviction would look like a loss, or end the rest
        world.abandon(kept.key, kept.token, slots=kept.slots, not_after=kept.may_land_until)
    if not ours:
        lose(world, kept, lost or await _why(store, kept))
    world.tell(Released(kept.key, kept.fence, ours, rest if ours else 0))
    return ours


async def _why(store: Store, kept: Kept) -> Loss:
    """Why a hold that was to be released isn't ours any more."""
    try:
        holders = await store.look(kept.key, slots=kept.slots, within=LAST_WORD)
    except (StoreError, ConfigError):
        return "unknown"
    return "taken" if len(holders) == kept.slots else "vanished"


async def _confirmed(world: World, store: Store, grant: Grant, rest: float, patience: float) -> bool:
    """Release, or keep for the `rest` (rules 5 and 6)."""
    if rest > 0:
        answer, unknown = await twice(world, partial(store.renew, grant, rest, state="kept"), within=patience)
        return isinstance(answer, Grant) or unknown
    ours, unknown = await twice(world, partial(store.release, grant), within=patience)
    return ours or unknown


async def extend(world: World, store: Store, terms: Terms, kept: Kept, seconds: float) -> None:
    """Let the lease end `seconds` from now at the earliest. If it turns out to be lost, that is told.

    Raises:
        StoreError: No answer came. The hold stands as it stood, or longer.
    """
    if kept.grant is None:
        return
    line, sent = Renew(kept.grant, seconds, info=kept.info if kept.anonymous else None), world.now()
    answer, _ = await twice(world, partial(store.renew, line.grant, seconds, info=line.info), within=terms.patience)
    judge(world, kept, line, answer, sent=sent)


async def find(world: World, store: Store, key: str, *, within: float) -> tuple[Holder, ...]:
    """Who holds the key, in whichever slot."""
    first, _ = await twice(world, partial(store.look, key), within=within)
    is_lock = bool(first) and bool(first[0].info) and "limit" not in first[0].info  # without info it was handed on just now
    if is_lock or not (store.capabilities.slots and store.capabilities.listing):
        return first
    return tuple(holder for holder in await listed(world, store, key, within=within) if holder.key == key)


async def listed(world: World, store: Store, prefix: str, *, within: float) -> list[Holder]:
    """All holders of keys that begin with `prefix`; each page may take `within` seconds."""
    holders: list[Holder] = []
    cursor: str | None = None
    while True:
        page, _ = await twice(world, partial(store.listing, prefix, cursor, PAGE), within=within)
        holders.extend(page.holders)
        cursor = page.cursor
        if cursor is None:
            return holders


async def force(world: World, store: Store, key: str, fence: int | None, by: str, *, within: float) -> tuple[Holder, ...]:
    """Take the key away from whoever holds it (with `fence`: from that very hold); answers who it was taken from."""
    evicted: list[Holder] = []
    for holder in await find(world, store, key, within=within):
        if fence is not None and holder.fence != fence:
            continue
        gone, unknown = await twice(world, partial(store.evict, key, holder.token, slots=holder.slot + 1), within=within)
        if gone or unknown:
            evicted.append(holder)
            world.tell(ForceReleased(holder, by))
    return tuple(evicted)
