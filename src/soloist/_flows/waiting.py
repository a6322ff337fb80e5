"""Waiting for a turn.

1. Nobody wakes a waiter when a lease runs out: no wait is longer than what the shortest hold has left.
2. Nor longer than 2 s: a store that lost its data wakes nobody.
3. A hold that was handed on (a baton) is a grant; its seconds count from the refusal before the wait.
4. A store that can't wait so shortly, or has no room for another waiter, comes back at once: then a short pause is made.
5. Where the store can't push, a question at jittered pauses.
6. A store that fails while we wait has said nothing: the next claim meets the trouble, and judges it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from soloist.errors import StoreError

if TYPE_CHECKING:
    from soloist._world import World
    from soloist.contract import Busy, Grant, Store

LONGEST = 2.0
POLL = 0.02
AFTER_END = 0.002
"""Seconds that a waiter lets pass after a lease's end, so as not to ask a moment too early."""


async def turn(world: World, store: Store, key: str, refusal: Busy, ends: float) -> Grant | None:
    """Wait until it is worth asking again, at most until `ends`; or until the key is handed to us."""
    began = world.now()
    holds_end = min((holder.ttl for holder in refusal.holders), default=POLL) + store.capabilities.late_by + AFTER_END
    longest = max(0.0, min(ends - began, holds_end, LONGEST * (0.75 + world.chance() / 4)))  # rules 1 and 2
    pause = store.capabilities.poll  # rule 5
    if store.capabilities.push:
        baton = None
        with suppress(StoreError):  # rule 6
            baton = await store.wait(key, refusal.seen, within=longest)
        if baton or world.now() - began >= POLL:
            return baton
        pause = POLL  # rule 4
    await world.sleep(min(longest, pause * (0.5 + world.chance())))
    return None
