# ruff: noqa: PLR2004 - a number in a case is an example
"""Time and order: whose clock judges, how long a lease lasts, and that fences grow."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from soloist.contract import Busy, Grant
from soloist.testing._contract.asking import GRAIN, brief, fence_of, granted, listed, named, needs, needs_fences, only, refused, token

if TYPE_CHECKING:
    from collections.abc import Callable

    from soloist.contract import State, Store
    from soloist.testing._contract.asking import Ask

HOUR = 3600.0


@pytest.mark.parametrize("state", ["running", "queued", "kept"])
def test_a_lease_ends_when_it_should(ask: Ask, store: Store, key: str, state: State) -> None:
    """Rules 1 and 2: not early, and at most `late_by` seconds late."""
    lease = brief(store) + 0.0413
    first = granted(ask(store.claim(key, "mine/1", lease, info={}, state=state)))
    assert first.ttl >= lease - GRAIN
    refusals: list[float] = []

    def gets_in() -> Grant | None:
        answer = ask(store.claim(key, "other/1", 60, info={}))
        if isinstance(answer, Busy):
            refusals.append(answer.now)
        return answer if isinstance(answer, Grant) else None

    second = ask.until(gets_in, within=lease + store.capabilities.late_by + 10)
    assert second is not None
    assert second.now >= first.now + lease - GRAIN
    assert max(refusals, default=0) <= first.now + lease + store.capabilities.late_by + GRAIN


@pytest.mark.parametrize("lease", [30.0, 30.0004, 30.4, 30.999, 60 * 60 * 24 * 7 + 0.5])
def test_a_lease_is_not_rounded_down(ask: Ask, store: Store, key: str, lease: float) -> None:
    """Rule 2."""
    lease = min(lease, store.capabilities.longest_ttl)
    first = granted(ask(store.claim(key, "mine/1", lease, info={})))
    busy = refused(ask(store.claim(key, "other/1", 60, info={})))
    assert first.now + lease - GRAIN <= busy.now + only(busy.holders).ttl <= first.now + lease + store.capabilities.late_by + GRAIN
    renewed = granted(ask(store.renew(first, lease)))
    busy = refused(ask(store.claim(key, "other/1", 60, info={})))
    assert renewed.now + lease - GRAIN <= busy.now + only(busy.holders).ttl <= renewed.now + lease + store.capabilities.late_by + GRAIN


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets this process's wall clock so many seconds ahead. What reads it past Python's module `time` isn't fooled."""
    right, right_ns, right_clock = time.time, time.time_ns, time.clock_gettime
    ahead = [0.0]
    monkeypatch.setattr(time, "time", lambda: right() + ahead[0])
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + int(ahead[0] * 1e9))

    def read(clock: int) -> float:
        return right_clock(clock) + (ahead[0] if clock == time.CLOCK_REALTIME else 0)

    monkeypatch.setattr(time, "clock_gettime", read)

    def step(seconds: float) -> None:
        ahead[0] = seconds

    return step


@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["an_hour_ahead", "an_hour_behind"])
def test_a_wrong_wall_clock_ends_no_lease_and_prolongs_none(
    ask: Ask, store: Store, key: str, ahead: float, set_clock: Callable[[float], None]
) -> None:
    """Rule 1."""
    mine = granted(ask(store.claim(key, "mine/1", 60, info={})))
    short = granted(ask(store.claim(key + "/short", "mine/1", brief(store), info={})))
    set_clock(ahead)
    other = ask.open()
    busy = refused(ask(other.claim(key, "other/1", 60, info={})))
    assert 50 < only(busy.holders).ttl <= 60 + store.capabilities.late_by + GRAIN
    assert 50 < granted(ask(other.renew(mine, 60))).ttl < 70 + store.capabilities.late_by
    ask.until_vacant(short.key)
    theirs = granted(ask(other.claim(short.key, "other/1", 60, info={})))
    set_clock(0)
    assert named(ask(store.claim(short.key, "third/1", 60, info={}))) == "other/1"
    assert granted(ask(store.renew(theirs, 60))).ttl > 50
    assert ask(store.release(mine))


def test_fences_grow_while_a_wall_clock_goes_back(ask: Ask, store: Store, key: str, set_clock: Callable[[float], None]) -> None:
    """Rule 5."""
    needs_fences(store)
    fences: list[int] = []
    for ahead in (0.0, -HOUR, -2 * HOUR, HOUR, 0.0):
        set_clock(ahead)
        grant = granted(ask(store.claim(key, token(), 60, info={})))
        fences.append(fence_of(grant))
        assert ask(store.release(grant))
        ask(store.cleanup())
    assert fences == sorted(set(fences))


def test_a_fence_is_there_where_it_is_declared(ask: Ask, store: Store, key: str) -> None:
    """Rules 5 and 12: fence, both ways."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert (type(grant.fence) is int) is (store.capabilities.fence != "none")


def test_fences_grow_across_whatever_ends_a_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 5."""
    needs_fences(store)
    fences: list[int] = []

    def claimed(mine: str, ttl: float = 60, expect: str | None = None) -> Grant:
        grant = granted(ask(store.claim(key, mine, ttl, info={}, expect=expect)))
        fences.append(fence_of(grant))
        return grant

    ask(store.release(claimed("released/1")))
    ask(store.release(claimed("remembered/1"), keep=60))
    ask(store.release(claimed("expected/1", expect="remembered/1"), keep=store.capabilities.shortest_ttl))
    claimed("evicted/1", expect="expected/1")
    ask(store.evict(key, "evicted/1"))
    claimed("ended/1", ttl=store.capabilities.shortest_ttl)
    ask.until_vacant(key)
    ask(store.cleanup())
    claimed("replaced/1")
    claimed("replacing/1", expect="replaced/1")
    ask(store.renew(claimed("kept/1", expect="replacing/1"), store.capabilities.shortest_ttl, state="kept"))
    ask.until_vacant(key)
    claimed("last/1")
    assert fences == sorted(set(fences))


def test_fences_grow_over_the_slots_of_a_key(ask: Ask, store: Store, key: str) -> None:
    """Rule 5."""
    needs_fences(store)
    needs(store, "slots")
    grants: list[Grant] = []
    for i in range(12):
        grants.append(granted(ask(store.claim(key, f"{i}/1", 60, info={}, slots=3))))
        if i >= 2:
            assert ask(store.release(grants[i - 2]))
    fences = [fence_of(grant) for grant in grants]
    assert fences == sorted(set(fences))


def test_a_fence_stays_with_its_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 5."""
    needs_fences(store)
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    seen = [
        granted(ask(store.renew(grant, 90, state="queued", info={"n": 1}))).fence,
        granted(ask(store.claim(key, "mine/1", 60, info={}))).fence,
        only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders).fence,
        only(ask(store.look(key))).fence,
    ]
    if store.capabilities.listing:
        seen.append(only(listed(ask, store, key)).fence)
    assert set(seen) == {grant.fence}


@pytest.mark.parametrize("before", ["never_held", "released", "ended", "remembered"])
def test_of_sixteen_racers_one_gets_in(ask: Ask, store: Store, key: str, before: str) -> None:
    """Rule 4."""
    if before != "never_held":
        old = granted(ask(store.claim(key, "old/1", store.capabilities.shortest_ttl if before == "ended" else 60, info={})))
        if before == "ended":
            ask.until_vacant(key)
        else:
            ask(store.release(old, keep=60 if before == "remembered" else 0))
    stores = [ask.open() for _ in range(4)]
    answers = ask.racing([partial(stores[i % 4].claim, key, f"racer-{i}/1", 60, info={"i": i}) for i in range(16)])
    winners = [answer for answer in answers if isinstance(answer, Grant)]
    assert len(winners) == 1
    assert sum(isinstance(answer, Busy) for answer in answers) == 15
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence) == (winners[0].token, winners[0].fence)
    assert {other.token for answer in answers if isinstance(answer, Busy) for other in answer.holders} <= {holder.token}


def test_of_eight_racers_one_takes_over(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "old/1", 60, info={}))
    answers = ask.racing([partial(store.claim, key, f"racer-{i}/1", 60, info={}, expect="old/1") for i in range(8)])
    assert sum(isinstance(answer, Grant) for answer in answers) == 1
    assert sum(isinstance(answer, Busy) for answer in answers) == 7


def test_racing_claims_of_one_token_are_one_hold(ask: Ask, key: str) -> None:
    """Rule 3."""
    stores = [ask.open() for _ in range(4)]
    answers = ask.racing([partial(stores[i % 4].claim, key, "mine/1", 60, info={}) for i in range(8)])
    assert len({(granted(answer).slot, granted(answer).fence) for answer in answers}) == 1


def test_holds_that_follow_one_another_have_growing_fences(ask: Ask, key: str) -> None:
    """Rule 5."""
    stores = [ask.open() for _ in range(6)]
    needs_fences(stores[0])
    fences: list[int] = []
    inside: list[str] = []

    async def section(store: Store, mine: str) -> None:
        answer = await store.claim(key, mine, 60, info={})
        if isinstance(answer, Grant):
            inside.append(mine)
            assert inside == [mine]
            fences.append(fence_of(answer))
            inside.remove(mine)
            assert await store.release(answer)

    async def work(store: Store, name: str) -> None:
        for i in range(25):
            await section(store, f"{name}/{i}")

    ask.racing([partial(work, store, f"worker-{i}") for i, store in enumerate(stores)])
    assert len(fences) >= 6
    assert fences == sorted(set(fences))
