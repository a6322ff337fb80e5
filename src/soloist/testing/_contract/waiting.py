# ruff: noqa: PLR2004 - a number in a case is an example
"""Waiting, where the store can push: who is woken, when, and what becomes of a hold that is handed on."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING

import pytest

from soloist.contract import Gone, Grant, Release
from soloist.testing._contract.asking import Asyncio, at_most, fence_of, granted, named, needs, needs_fences, only, refused, who

if TYPE_CHECKING:
    from concurrent.futures import Future

    from soloist.contract import Busy, Store
    from soloist.testing._contract.asking import Ask

LONG = 5.0
"""Seconds that a wait may take which should be over at once."""

SOON = 1.5
"""Seconds within which somebody who waits is woken."""

DEAD = 3.0
"""Seconds after which a hold that was handed on to a dead waiter is vacant again."""


def turned_away(ask: Ask, store: Store, key: str, mine: str = "waiter/1", slots: int = 1) -> Busy:
    """A refusal of somebody who will wait."""
    needs(store, "push")
    return refused(ask(store.claim(key, mine, 60, info={}, slots=slots, will_wait=True)))


def waiting(
    ask: Ask, key: str, mine: str = "waiter/1", *, slots: int = 1, within: float = LONG, pause: float = 0.15
) -> Future[Grant | None]:
    """Somebody who waits beside us on a store of their own, and has begun to; nothing shows when, so give them a moment."""
    store = ask.open()
    waiter = ask.beside(store.wait(key, turned_away(ask, store, key, mine, slots).seen, within=within))
    time.sleep(pause)
    return waiter


def turn_of(ask: Ask, store: Store, key: str, waiter: Future[Grant | None], mine: str = "waiter/1", slots: int = 1) -> Grant:
    """The hold of a waiter whose turn it is: handed on, or claimed now that they were woken."""
    return waiter.result(SOON) or granted(ask(store.claim(key, mine, 60, info={}, slots=slots, will_wait=True)))


def test_a_waiter_gets_in_after_the_release(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key)
    assert ask(store.release(grant))
    turn = turn_of(ask, store, key, waiter)
    assert who(ask, store, key) == turn.token
    assert named(ask(store.claim(key, "other/1", 60, info={}))) == turn.token
    assert turn.fence is None or turn.fence > (grant.fence or 0)


def test_a_waiter_gets_in_after_an_eviction(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    ask(store.claim(key, "mine/1", 60, info={}))
    waiter = waiting(ask, key)
    assert ask(store.evict(key, "mine/1"))
    assert turn_of(ask, store, key, waiter).token == who(ask, store, key)


def test_a_waiter_gets_in_after_a_release_in_a_batch(ask: Ask, store: Store, key: str) -> None:
    """Rules 12 and 15."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key)
    assert ask(store.batch([Release(grant)])) == (True,)
    assert turn_of(ask, store, key, waiter).token == who(ask, store, key)


def test_a_waiter_gets_in_after_the_release_of_a_hold_that_was_taken_over(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    ask(store.claim(key, "mine/1", 60, info={}))
    waiter = waiting(ask, key)
    new = granted(ask(store.claim(key, "other/1", 60, info={}, expect="mine/1")))
    assert ask(store.release(new))
    assert turn_of(ask, store, key, waiter).token == who(ask, store, key)


def test_a_waiter_gets_in_after_the_release_of_a_hold_that_was_renewed(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={}, state="queued")))
    waiter = waiting(ask, key)
    granted(ask(store.renew(grant, 60, state="running", info={"n": 1})))
    assert ask(store.release(grant))
    assert turn_of(ask, store, key, waiter).token == who(ask, store, key)


def test_no_wake_up_is_lost_between_refusal_and_wait(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    busy = turned_away(ask, store, key)
    assert ask(store.release(grant))
    waiter = ask.beside(store.wait(key, busy.seen, within=LONG))
    assert turn_of(ask, store, key, waiter).token == who(ask, store, key)


def test_a_hold_that_was_handed_on_may_be_renewed_and_released(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1})))
    waiter = waiting(ask, key)
    assert ask(store.release(grant))
    turn = turn_of(ask, store, key, waiter)
    assert only(ask(store.look(key))).info == {}
    renewed = granted(ask(store.renew(turn, 60, info={"n": 2})))
    assert (renewed[:3], renewed.slot) == (turn[:3], 0)
    assert renewed.ttl > 50
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence, holder.state, holder.info) == (turn.token, turn.fence, "running", {"n": 2})
    assert ask(store.release(turn))
    granted(ask(store.claim(key, "other/1", 60, info={})))


def test_the_seconds_of_a_hold_that_was_handed_on_count_from_the_refusal(ask: Ask, store: Store, key: str) -> None:
    """Rule 2."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    busy = turned_away(ask, store, key)
    waiter = ask.beside(store.wait(key, busy.seen, within=LONG))
    time.sleep(0.3)
    assert ask(store.release(grant))
    if handed := waiter.result(SOON):
        before, left, after = ask(store.ping()), only(ask(store.look(key))).ttl, ask(store.ping())
        assert abs(handed.now - busy.now) < 0.05
        assert before + left - 0.05 <= handed.now + handed.ttl <= after + left + 0.05


def test_waiters_are_served_in_the_order_in_which_they_came(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push, where holds are handed on."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiters = [waiting(ask, key, f"waiter/{i}", pause=0.3) for i in range(3)]
    for waiter in waiters:
        assert ask(store.release(grant))
        handed = waiter.result(SOON)
        if handed is None:
            return  # only woken, and so in no order
        grant = granted(ask(store.renew(handed, 60)))
        assert sum(other.done() for other in waiters) == waiters.index(waiter) + 1


def test_a_waiter_shuts_out_whoever_comes_after_the_release(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push, where holds are handed on."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key)
    assert ask(store.release(grant))
    overtakes = ask(store.claim(key, "other/1", 60, info={}))
    if handed := waiter.result(SOON):
        assert named(overtakes) == handed.token


def test_what_nobody_waits_for_any_more_goes_to_the_next_claim(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    turned_away(ask, store, key)
    assert ask(store.release(grant))
    new = granted(ask(store.claim(key, "other/1", 60, info={"n": 2})))
    assert new.fence is None or new.fence > (grant.fence or 0)
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence, holder.info) == ("other/1", new.fence, {"n": 2})
    assert holder.ttl > 50
    assert ask(store.release(new))


def test_whoever_was_turned_away_may_simply_ask_again(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    turned_away(ask, store, key)
    assert ask(store.release(grant))
    assert granted(ask(store.claim(key, "waiter/1", 60, info={}, will_wait=True))).ttl > 50
    assert named(ask(store.claim(key, "other/1", 60, info={}))) == "waiter/1"


def test_a_waiter_whose_time_was_up_gets_nothing(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert ask(store.wait(key, turned_away(ask, store, key).seen, within=0.1)) is None
    assert ask(store.release(grant))
    granted(ask(store.claim(key, "other/1", 60, info={})))


def test_a_hold_that_was_handed_on_to_the_dead_ends_soon(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key)
    assert ask(store.release(grant))
    waiter.result(SOON)
    with at_most(DEAD):
        ask.until_vacant(key)
    new = granted(ask(store.claim(key, "other/1", 60, info={})))
    assert new.fence is None or new.fence > (grant.fence or 0)


def test_a_hold_of_nobody_in_particular_ends_soon(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    turned_away(ask, store, key)
    assert ask(store.release(grant))
    with at_most(DEAD):
        ask.until_vacant(key)
    assert ask(store.wait(key, refused_anew(ask, store, key).seen, within=0.2)) is None


def refused_anew(ask: Ask, store: Store, key: str) -> Busy:
    """A refusal by a new holder; what lay there for waiters before is nothing to it."""
    granted(ask(store.claim(key, "other/1", 60, info={})))
    return turned_away(ask, store, key)


def test_a_memory_wins_over_the_waiters(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: remembers_last."""
    needs(store, "remembers_last")
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key, within=0.6)
    assert ask(store.release(grant, keep=60))
    assert ask(store.look(key)) == ()
    assert isinstance(ask(store.claim(key, "other/1", 60, info={}, expect="third/1")), Gone)
    assert granted(ask(store.claim(key, "other/1", 60, info={}))).last is not None
    ask(store.evict(key, "other/1"))
    waiter.result(SOON)


def test_a_waiter_whose_holder_left_a_memory_gets_in_by_asking(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: remembers_last."""
    needs(store, "remembers_last")
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    busy = turned_away(ask, store, key)
    assert ask(store.release(grant, keep=60))
    assert ask(store.wait(key, busy.seen, within=0.2)) is None
    assert granted(ask(store.claim(key, "waiter/1", 60, info={}, will_wait=True))).last is not None


def test_a_wait_is_over_in_time(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    ask(store.claim(key, "mine/1", 60, info={}))
    busy = turned_away(ask, store, key)
    began = time.monotonic()
    assert ask(store.wait(key, busy.seen, within=0.4)) is None
    assert 0.2 <= time.monotonic() - began <= 0.4 + SOON


def test_a_wait_for_one_key_is_not_ended_by_another(ask: Ask, store: Store, key: str) -> None:
    """Rule 7."""
    ask(store.claim(key, "mine/1", 60, info={}))
    elsewhere = granted(ask(store.claim(key + "/elsewhere", "mine/1", 60, info={})))
    busy, _ = turned_away(ask, store, key), turned_away(ask, store, key + "/elsewhere")
    waiter = ask.beside(store.wait(key, busy.seen, within=0.6))
    assert ask(store.release(elsewhere))
    assert waiter.result(LONG) is None
    assert who(ask, store, key) == "mine/1"


def test_a_slot_is_handed_on(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push and slots."""
    needs(store, "slots")
    grants = [granted(ask(store.claim(key, f"{name}/1", 60, info={}, slots=2))) for name in "ab"]
    waiter = waiting(ask, key, slots=2)
    assert ask(store.release(grants[1]))
    turn = turn_of(ask, store, key, waiter, slots=2)
    assert turn.slot == grants[1].slot
    assert {holder.token for holder in ask(store.look(key, slots=2))} == {grants[0].token, turn.token}
    assert granted(ask(store.renew(turn, 60))).ttl > 50
    refused(ask(store.claim(key, "other/1", 60, info={}, slots=2)))


def test_fences_grow_from_hand_to_hand(ask: Ask, store: Store, key: str) -> None:
    """Rule 5."""
    needs_fences(store)
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    fences = [fence_of(grant)]
    for i in range(4):
        waiter = waiting(ask, key, f"waiter/{i}")
        assert ask(store.release(grant))
        grant = turn_of(ask, store, key, waiter, f"waiter/{i}")
        fences.append(fence_of(grant))
        grant = granted(ask(store.renew(grant, 60)))
        assert grant.fence == fences[-1]
    assert fences == sorted(set(fences))


def test_everybody_gets_a_turn(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    needs(store, "push")
    turns: list[str] = []

    async def one(mine: str) -> None:
        own = stores[mine]
        while True:
            answer = await own.claim(key, mine, 60, info={}, will_wait=True)
            turn = answer if isinstance(answer, Grant) else await own.wait(key, refused(answer).seen, within=0.5)
            if turn is not None:
                turns.append(mine)
                assert await own.release(granted(turn))
                return

    stores = {f"one-{i}/1": ask.open() for i in range(6)}
    with at_most(SOON + LONG):
        ask.racing([partial(one, mine) for mine in stores])
    assert sorted(turns) == sorted(stores)


@pytest.mark.parametrize("world", ["asyncio"], indirect=True)
def test_a_wait_leaves_the_loop_to_others(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: push."""
    ask(store.claim(key, "mine/1", 60, info={}))
    busy = turned_away(ask, store, key)

    async def ticks() -> int:
        waiter = asyncio.ensure_future(store.wait(key, busy.seen, within=0.5))
        count = 0
        while not waiter.done():
            await asyncio.sleep(0.02)
            count += 1
        return count

    assert ask(ticks()) >= 10


@pytest.mark.parametrize("world", ["asyncio"], indirect=True)
def test_a_cancelled_wait_keeps_the_key_from_nobody(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    assert isinstance(ask, Asyncio)
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    waiter = waiting(ask, key)
    waiter.cancel()
    with pytest.raises(CancelledError):
        waiter.result(SOON)
    time.sleep(0.2)  # a future is cancelled at once, and its task when the loop comes to it
    assert ask(store.release(grant))
    granted(ask(store.claim(key, "other/1", 60, info={})))
