# ruff: noqa: PLR2004 - a number in a case is an example
"""Lost requests and replies, late and doubled ones, a server that is gone: what a store says, and what was done."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from soloist.contract import Gone, Grant, Look, Renew
from soloist.errors import OutcomeUnknown, StoreError, StoreUnavailable
from soloist.testing._contract.asking import (
    GRAIN,
    PATIENCE,
    Ask,
    at_most,
    brief,
    fence_of,
    granted,
    named,
    needs,
    needs_fences,
    offered,
    only,
    refused,
    token,
    who,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from soloist.contract import Store
    from soloist.testing._contract.wires import Bad
    from soloist.testing.relay import Fault

T = TypeVar("T")

WITHIN = 0.25
"""Seconds after which a request over a bad wire is given up."""

DEAD = 3.0
"""Seconds after which a hold that was handed on to a dead waiter is vacant again."""


def lost(ask: Ask, bad: Bad, fault: Fault, verb: Coroutine[object, object, object]) -> None:
    """Ask over the wire while it is bad; what comes is an error, and in time. The connection is there before, and good."""
    ask(bad.store.ping())
    bad.wire.next(fault)
    with at_most(WITHIN + 1), pytest.raises(StoreError) as caught:
        ask(verb)
    if fault != "lose request":  # what never arrived may be known not to have been done
        assert isinstance(caught.value, OutcomeUnknown)
    assert isinstance(caught.value, OutcomeUnknown | StoreUnavailable)


def test_a_claim_whose_reply_was_lost_is_read_back(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    lost(ask, bad, "lose reply", bad.store.claim(key, "mine/1", 60, info={"n": 1}, state="queued", within=WITHIN))
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.state, holder.info) == ("mine/1", "queued", {"n": 1})
    again = granted(ask(bad.store.claim(key, "mine/1", 900, info={"n": 2})))
    assert again.fence == holder.fence
    assert again.ttl <= 60 + store.capabilities.late_by + GRAIN
    assert only(ask(store.look(key))).info == {"n": 1}
    assert ask(bad.store.release(again))


def test_a_claim_that_was_lost_has_done_nothing(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    lost(ask, bad, "lose request", bad.store.claim(key, "mine/1", 60, info={}, within=WITHIN))
    assert ask(store.look(key)) == ()
    granted(ask(bad.store.claim(key, "mine/1", 60, info={})))


def test_a_takeover_whose_reply_was_lost_is_read_back(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    ask(store.claim(key, "old/1", 60, info={}))
    lost(ask, bad, "lose reply", bad.store.claim(key, "mine/1", 60, info={"n": 1}, expect="old/1", within=WITHIN))
    stands = only(ask(store.look(key)))
    again = granted(ask(bad.store.claim(key, "mine/1", 60, info={"n": 2}, expect="old/1")))
    assert (again.token, again.fence) == (stands.token, stands.fence)


def test_a_semaphores_claim_whose_reply_was_lost_takes_one_slot(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    needs(store, "slots")
    ask(store.claim(key, "other/1", 60, info={}, slots=3))
    lost(ask, bad, "lose reply", bad.store.claim(key, "mine/1", 60, info={}, slots=3, within=WITHIN))
    granted(ask(bad.store.claim(key, "mine/1", 60, info={}, slots=3)))
    assert sorted(holder.token for holder in ask(store.look(key, slots=3))) == ["mine/1", "other/1"]


def test_a_renewal_whose_reply_was_lost_is_asked_again(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "lose reply", bad.store.renew(grant, 900, state="queued", within=WITHIN))
    holder = only(ask(store.look(key)))
    assert (holder.state, holder.ttl > 800) == ("queued", True)
    renewed = granted(ask(bad.store.renew(grant, 900)))
    assert (renewed.fence, renewed.ttl > 800) == (grant.fence, True)


def test_a_release_whose_reply_was_lost_is_done_and_says_so_when_asked_again(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "lose reply", bad.store.release(grant, within=WITHIN))
    assert ask(store.look(key)) == ()
    assert not ask(bad.store.release(grant))


def test_a_release_that_was_lost_has_done_nothing(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "lose request", bad.store.release(grant, within=WITHIN))
    assert who(ask, store, key) == "mine/1"
    assert ask(bad.store.release(grant))


def test_an_eviction_and_a_look_whose_replies_were_lost_are_unknown(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    ask(store.claim(key, "mine/1", 60, info={}))
    lost(ask, bad, "lose reply", bad.store.look(key, within=WITHIN))
    lost(ask, bad, "lose reply", bad.store.evict(key, "mine/1", within=WITHIN))
    assert ask(store.look(key)) == ()
    assert not ask(bad.store.evict(key, "mine/1"))


def test_a_batch_whose_reply_was_lost_is_unknown_and_done(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rules 3 and 15."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    bad.wire.next("lose reply")
    try:
        verdicts = ask(bad.store.batch([Renew(grant, 900)], within=WITHIN))
    except OutcomeUnknown:
        verdicts = (OutcomeUnknown("the whole batch"),)
    assert [type(verdict) for verdict in verdicts] == [OutcomeUnknown]
    assert only(ask(store.look(key))).ttl > 800
    assert granted(ask(bad.store.batch([Renew(grant, 900), Look(key)]))[0]).ttl > 800


def test_no_claim_lands_after_its_owner_gave_up(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rules 6 and 12: refuses_late, both ways."""
    until = ask(store.ping()) + WITHIN + 0.1
    lost(ask, bad, "hold", bad.store.claim(key, "ghost/1", 60, info={}, not_after=until, within=WITHIN))
    assert ask(store.look(key)) == ()
    ask.until(lambda: ask(store.ping()) > until)
    bad.wire.deliver()
    assert bool(ask(store.look(key))) is not store.capabilities.refuses_late


def test_a_claim_that_lands_late_but_in_time_is_a_hold_of_its_token(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    lost(ask, bad, "hold", bad.store.claim(key, "mine/1", 60, info={}, not_after=ask(store.ping()) + 60, within=WITHIN))
    bad.wire.deliver()
    assert who(ask, store, key) == "mine/1"
    assert granted(ask(bad.store.claim(key, "mine/1", 60, info={}))).fence == only(ask(store.look(key))).fence


def test_an_attempt_that_lands_after_its_repetition_takes_nothing_back(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    lost(ask, bad, "hold", bad.store.claim(key, "mine/1", 30, info={"n": 1}, state="publishing", within=WITHIN))
    grant = granted(ask(bad.store.claim(key, "mine/1", 30, info={"n": 1}, state="publishing")))
    granted(ask(bad.store.renew(grant, 900, state="queued", info={"n": 2})))
    bad.wire.deliver()
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence, holder.state, holder.info, holder.ttl > 800) == ("mine/1", grant.fence, "queued", {"n": 2}, True)


def test_a_takeover_that_lands_late_takes_nothing_from_whoever_followed(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "old/1", 60, info={}))
    lost(ask, bad, "hold", bad.store.claim(key, "late/1", 60, info={}, expect="old/1", within=WITHIN))
    granted(ask(store.claim(key, "new/1", 60, info={}, expect="old/1")))
    bad.wire.deliver()
    assert who(ask, store, key) == "new/1"


@pytest.mark.parametrize("keep", [0, 60], ids=["plain", "remembering"])
def test_a_release_that_lands_late_frees_nobody_elses_hold(ask: Ask, store: Store, bad: Bad, key: str, keep: float) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "hold", bad.store.release(grant, keep, within=WITHIN))
    assert ask(store.evict(key, "mine/1"))
    ask(store.claim(key, "other/1", 60, info={}))
    bad.wire.deliver()
    assert who(ask, store, key) == "other/1"
    assert ask(store.evict(key, "other/1"))
    assert granted(ask(store.claim(key, "new/1", 60, info={}, expect="third/1"))).last is None


def test_a_renewal_that_lands_late_touches_nobody_elses_hold(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "hold", bad.store.renew(grant, 900, state="kept", info={"n": 1}, within=WITHIN))
    ask(store.claim(key, "other/1", 60, info={"n": 2}, expect="mine/1"))
    bad.wire.deliver()
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.state, holder.info, holder.ttl < 100) == ("other/1", "running", {"n": 2}, True)


def test_a_renewal_that_lands_after_the_release_makes_nothing(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "hold", bad.store.renew(grant, 900, info={}, within=WITHIN))
    assert ask(store.release(grant))
    bad.wire.deliver()
    assert ask(store.look(key)) == ()
    assert isinstance(ask(store.renew(grant, 60)), Gone)


def test_a_renewal_that_lands_late_brings_no_end_nearer(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "hold", bad.store.renew(grant, 90, within=WITHIN))
    granted(ask(store.renew(grant, 900)))
    bad.wire.deliver()
    assert only(ask(store.look(key))).ttl > 800


def test_a_renewal_that_lands_late_leaves_a_kept_hold_alone(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lost(ask, bad, "hold", bad.store.renew(grant, 900, within=WITHIN))
    granted(ask(store.renew(grant, 30, state="kept")))
    bad.wire.deliver()
    holder = only(ask(store.look(key)))
    assert (holder.state, holder.ttl < 40 + store.capabilities.late_by) == ("kept", True)


def test_a_doubled_claim_is_one_hold(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    bad.wire.next("duplicate")
    grant = granted(ask(bad.store.claim(key, "mine/1", 60, info={}, slots=3 if store.capabilities.slots else 1)))
    holder = only(ask(store.look(key, slots=3 if store.capabilities.slots else 1)))
    assert (holder.token, holder.slot, holder.fence) == ("mine/1", grant.slot, grant.fence)


def test_a_wait_whose_reply_was_lost_keeps_the_key_from_nobody(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rules 3 and 8."""
    needs(store, "push")
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    busy = refused(ask(bad.store.claim(key, "waiter/1", 60, info={}, will_wait=True)))
    assert ask(bad.store.wait(key, busy.seen, within=0.2)) is None
    bad.wire.next("lose reply")
    waiter = ask.beside(bad.store.wait(key, busy.seen, within=0.5))
    time.sleep(0.2)
    assert ask(store.release(grant))
    assert waiter.exception(PATIENCE) is None or isinstance(waiter.exception(), StoreError)
    with at_most(DEAD):
        ask.until(lambda: isinstance(ask(store.claim(key, "other/1", 60, info={})), Grant))


def test_a_reply_that_came_too_late_is_nobody_elses(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    relay = offered(bad.relay, "server")
    relay.delay = WITHIN + 0.2
    bad.wire.next("delay")
    with pytest.raises(OutcomeUnknown):
        ask(bad.store.claim(key, "mine/1", 60, info={}, within=WITHIN))
    assert ask(bad.store.look(key + "/elsewhere")) == ()
    ask.until(lambda: ask(store.look(key)))
    assert who(ask, bad.store, key) == "mine/1"
    assert named(ask(bad.store.claim(key, "other/1", 60, info={}))) == "mine/1"


def test_a_slow_reply_is_waited_for(ask: Ask, bad: Bad, key: str) -> None:
    """Rule 3."""
    offered(bad.relay, "server")
    bad.wire.next("delay")
    granted(ask(bad.store.claim(key, "mine/1", 60, info={}, within=3)))


@pytest.mark.parametrize("world", ["asyncio"], indirect=True)
def test_a_reply_to_a_cancelled_claim_is_nobody_elses(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    relay = offered(bad.relay, "server")
    relay.delay = 0.3
    bad.wire.next("delay")
    claim = ask.beside(bad.store.claim(key, "mine/1", 60, info={}))
    time.sleep(0.1)
    claim.cancel()
    with pytest.raises(CancelledError):
        claim.result(PATIENCE)
    for _ in range(3):
        assert ask(bad.store.look(key + "/elsewhere")) == ()
    ask.until(lambda: ask(store.look(key)))
    assert who(ask, bad.store, key) == "mine/1"


def test_nobody_there_is_unavailable(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3: StoreUnavailable says that nothing was done."""
    relay = offered(bad.relay, "server")
    through = offered(ask.subject.through, "server")
    relay.refuse()
    fresh = ask.open(url=through(relay.host, relay.port))
    grant = granted(ask(store.claim(key + "/mine", "mine/1", 60, info={})))
    verbs: list[Callable[[], object]] = [
        lambda: ask(fresh.claim(key, "mine/1", 60, info={}, within=1)),
        lambda: ask(fresh.renew(grant, 60, within=1)),
        lambda: ask(fresh.release(grant, within=1)),
        lambda: ask(fresh.look(key, within=1)),
        lambda: ask(fresh.ping(within=1)),
    ]
    for verb in verbs:
        with at_most(2), pytest.raises(StoreUnavailable):
            verb()
    assert who(ask, store, grant.key) == "mine/1"
    relay.accept()
    granted(ask(fresh.claim(key, "mine/1", 60, info={})))


def test_a_server_that_went_away_is_found_again(ask: Ask, store: Store, bad: Bad, key: str) -> None:
    """Rule 3."""
    relay = offered(bad.relay, "server")
    for i in range(3):
        relay.refuse()
        for _ in range(2):
            with at_most(2), pytest.raises((StoreUnavailable, OutcomeUnknown)):
                ask(bad.store.claim(f"{key}:{i}", "mine/1", 60, info={}, within=1))
        assert ask(store.look(f"{key}:{i}")) == ()
        relay.accept()
        ask.until(lambda: answers(ask, bad.store))
        granted(ask(bad.store.claim(f"{key}:{i}", "mine/1", 60, info={})))


def answers(ask: Ask, store: Store) -> bool:
    """Whether the store can be reached now."""
    try:
        ask(store.ping(within=1))
    except StoreError:
        return False
    return True


def test_cut_connections_are_replaced(ask: Ask, bad: Bad, key: str) -> None:
    """Rule 3."""
    relay = offered(bad.relay, "server")
    grant = granted(ask(bad.store.claim(key, "mine/1", 60, info={})))
    for _ in range(3):
        relay.cut()
        ask.until(lambda: answers(ask, bad.store), within=3)
        assert granted(ask(bad.store.claim(key, "mine/1", 60, info={}))).fence == grant.fence
    assert ask(bad.store.release(grant))


def test_a_server_that_goes_silent_is_given_up_in_time(ask: Ask, bad: Bad, key: str) -> None:
    """Rule 3."""
    offered(bad.relay, "server")
    for within in (0.1, 0.5):
        bad.wire.next("lose request")
        began = time.monotonic()
        with pytest.raises(StoreError):
            ask(bad.store.look(key, within=within))
        assert within - GRAIN <= time.monotonic() - began <= within + 1


@pytest.mark.parametrize("seed", [1, 2])
def test_sections_over_a_bad_wire_follow_one_another(ask: Ask, store: Store, bad: Bad, key: str, seed: int) -> None:
    """Rules 3, 4 and 5."""
    needs_fences(store)
    fences: list[int] = []
    inside: list[str] = []

    async def surely(verb: Callable[[], Coroutine[object, object, T]]) -> T:
        while True:
            with suppress(StoreError):
                return await verb()

    async def section(mine: str) -> None:
        """Ask, and ask again. What lands when nobody asks any more is left to its lease."""
        for _ in range(10):
            asked = time.monotonic()
            answer = await surely(partial(bad.store.claim, key, mine, brief(store), info={}, within=0.1))
            if isinstance(answer, Grant) and time.monotonic() < asked + answer.ttl:
                inside.append(mine)
                assert inside == [mine]
                fences.append(fence_of(answer))
                inside.remove(mine)
                await surely(partial(bad.store.release, answer, within=0.1))
                return

    async def work(name: str) -> None:
        for _ in range(6):
            await section(token() + name)

    bad.wire.at_random({"lose request": 0.05, "lose reply": 0.1, "hold": 0.05, "duplicate": 0.1}, seed=seed)
    ask.racing([partial(work, f"worker-{i}") for i in range(3)])
    bad.wire.at_random({}, seed=seed)
    assert len(fences) >= 3
    assert fences == sorted(set(fences))
    ask.until_vacant(key)
    granted(ask(store.claim(key, "last/1", 60, info={})))
