"""Asking the store, so that a reply that doesn't come is never taken for a no.

1. A reply that did not come is unknown: the same token is asked for again, and that *is* reading back.
2. Every claim carries `not_after`: one that a network delivers after we gave up is refused by the store. A store that can't
   do that caps the first lease instead, so that what lands late is soon over.
3. Surely not done (`StoreUnavailable`) is tried once more, on a fresh connection; then the store is down, and for a second
   nobody asks again.
4. All attempts together take no longer than the caller's `within`, so that two of them fit.
5. A deadline counts from before the request was sent, less a margin for two drifting clocks. A grant that comes after its
   own deadline is no grant: it is asked for again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from soloist.contract import Grant, Late
from soloist.errors import ConfigError, OutcomeUnknown, StoreError, StoreUnavailable, TooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from soloist._world import World
    from soloist.contract import Busy, Gone, Info, State, Store

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ATTEMPTS = 6
"""More than any store needs; a guard against one that answers `Late` for ever."""

PAUSE = 0.05
"""Seconds before the second repetition, doubled with each; the first comes at once."""


def deadline(sent: float, ttl: float) -> float:
    """Until when a hold of `ttl` seconds, asked for at `sent`, is surely ours (rule 5).

    >>> deadline(100.0, 30)
    129.969
    """
    return sent + ttl * 0.999 - 0.001


class Wish(NamedTuple):
    """What is asked for: a claim's arguments that stay the same over all attempts."""

    key: str
    ttl: float
    info: Info
    slots: int = 1
    state: State = "running"
    expect: str | None = None


@dataclass(slots=True)
class Attempts:
    """One acquisition's token, when it was last asked for, and until when, by the server's clock, a claim that ended
    unknown may still land (0: none can; infinity: the store can't refuse a late one)."""

    token: str
    sent: float = 0.0
    may_land_until: float = 0.0


async def claim_surely(
    world: World, store: Store, wish: Wish, mine: Attempts, *, within: float, will_wait: bool = False
) -> Grant | Busy | Gone:
    """Claim, and ask again while the answer is unknown."""
    ends = world.now() + within
    reason: StoreError | None = None
    for attempt in range(ATTEMPTS):
        before, each = mine.may_land_until, within / 2  # rule 4
        if attempt:
            await _pause(world, attempt, ends)
            each = ends - world.now()
            if each <= 0:
                break
        if down := world.outage():
            reason = down
            break
        try:
            known = await server_now(world, store, within=each) if store.capabilities.refuses_late else math.inf
            each = min(each, max(ends - world.now(), 0.001))  # rule 4: to ask for the time took some
            not_after = known + each  # rule 2
            mine.sent, mine.may_land_until = world.now(), max(before, not_after)
            answer = await store.claim(
                wish.key,
                mine.token,
                wish.ttl,
                info=wish.info,
                state=wish.state,
                expect=wish.expect,
                not_after=not_after if known < math.inf else None,
                slots=wish.slots,
                will_wait=will_wait,
                within=each,
            )
        except OutcomeUnknown as lost:  # rule 1
            reason = lost
            continue
        except StoreUnavailable as down:  # rule 3
            mine.may_land_until = before
            again, reason = not isinstance(reason, StoreUnavailable), down
            if again:
                continue
            break
        except (ConfigError, TooLarge):  # refused: this attempt can't land
            mine.may_land_until = before
            raise
        world.learn(mine.sent, answer.now)
        if isinstance(answer, Grant) and world.now() >= deadline(mine.sent, answer.ttl):  # rule 5
            continue
        mine.may_land_until = before
        if not isinstance(answer, Late):
            return answer
    error = _in_vain(wish.key, mine, within, reason)
    if world.outage() is None:
        world.failed(error)
    raise error


class Ask(Protocol[T_co]):
    """A verb with all its arguments but the last."""

    def __call__(self, *, within: float) -> Awaitable[T_co]:
        """Send it."""
        ...


async def twice(world: World, ask: Ask[T], *, within: float) -> tuple[T, bool]:
    """Ask what does no harm if it is done twice, and once more if no answer came; True beside the answer says that the
    first attempt ended unknown. Both together take no longer than `within`."""
    ends, unknown = world.now() + within, False
    for last_try in (False, True):
        if down := world.outage():
            raise down
        try:
            return await ask(within=max(ends - world.now(), 0.001) if last_try else within / 2), unknown
        except (OutcomeUnknown, StoreUnavailable) as error:
            if last_try:
                world.failed(error)
                if unknown and not isinstance(error, OutcomeUnknown):
                    raise OutcomeUnknown(f"the store didn't say whether it was done: {error}") from error
                raise
            unknown = isinstance(error, OutcomeUnknown)
    raise AssertionError("the second try returns or raises")


async def server_now(world: World, store: Store, *, within: float) -> float:
    """The server's time, estimated from earlier replies; asked for where there was none yet."""
    known = world.server_now()
    if known is not None:
        return known
    sent = world.now()
    world.learn(sent, await store.ping(within=within))
    known = world.server_now()
    assert known is not None
    return known


def _in_vain(key: str, mine: Attempts, within: float, reason: StoreError | None) -> StoreError:
    """What asking came to: surely nothing, or nobody knows."""
    if isinstance(reason, StoreUnavailable) and not mine.may_land_until:
        return reason
    error = OutcomeUnknown(
        f"the store didn't say whether {key!r} was claimed, in {within:g} s: {reason or 'its answers came too late'}. "
        "If it was, its lease ends by itself; try again"
    )
    error.__cause__ = reason
    return error


async def _pause(world: World, attempt: int, ends: float) -> None:
    if attempt > 1:
        longest = min(PAUSE * 2 ** (attempt - 2), ends - world.now())
        if longest > 0:
            await world.sleep(longest * (0.5 + world.chance() / 2))
