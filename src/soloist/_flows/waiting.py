"""Waiting for a turn.

1. Nobody wakes a waiter when a lease runs out: no wait is longer than what the shortest hold has left.
2. Nor longer than 2 s: a store that lost its data wakes nobody.
3. A hold that was handed on (a baton) is a grant; its seconds count from the refusal before the wait.
4. The last 0.1 s of a time limit are polled, since a server may end a wait that much late.
5. Where the store can't push, a question at jittered pauses.
6. A store that fails while we wait has said nothing: the next claim meets the trouble, and judges it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from soloist.errors import StoreError

if TYPE_CHECKING:
    from soloist._world import World
    from soloist.contract import Busy, Grant, Store

LONGEST = 2.0
LAST = 0.1
POLL = 0.02
AFTER_END = 0.002
"""Seconds that a waiter lets pass after a lease's end, so as not to ask a moment too early."""


async def turn(world: World, store: Store, key: str, refusal: Busy, ends: float) -> Grant | None:
    """Wait until it is worth asking again, at most until `ends`; or until the key is handed to us."""
    left = ends - world.now()
    holds_end = min((holder.ttl for holder in refusal.holders), default=POLL) + store.capabilities.late_by + AFTER_END  # rule 1
    if store.capabilities.push and left > LAST and holds_end > LAST:
        patience = min(holds_end, left - LAST, LONGEST * (0.75 + world.chance() / 4))  # rules 2 and 4
        try:
            return await store.wait(key, refusal.seen, within=patience)
        except StoreError:  # rule 6
            await world.sleep(min(left, POLL + POLL * world.chance()))
            return None
    pause = POLL if store.capabilities.push else store.capabilities.poll  # rules 4 and 5
    await world.sleep(max(0.0, min(left, holds_end, pause * (0.5 + world.chance()))))
    return None
