"""Taking a lock: how long it is asked for, what becomes of a hold that was handed on, and what an interrupted one leaves."""

import math
from dataclasses import replace

import pytest

from soloist._flows.asking import deadline
from soloist._flows.locking import LAST_WORD, SETTLES, Terms, acquire
from soloist._world import run
from soloist.errors import ConfigError, NotAcquired, OutcomeUnknown, StoreUnavailable, TooLarge
from soloist.events import Acquired, Degraded, LimitsDiffer, Refused
from soloist.stores.memory import CAPABILITIES
from tests.flows.scripted import PULLING, SILENT, UNREACHABLE, Scripted, ScriptedWorld, at_every_step, busy, grant, holder

TERMS = Terms(key="k")


def take(world, store, terms=TERMS, wait=0.0):
    return run(acquire(world, store, terms, {"pid": 1}, wait))


def test_a_free_key_is_ours_until_a_deadline_and_renewed_at_a_third():
    world = ScriptedWorld(now=100.0)
    kept = take(world, Scripted(world, claim=[grant()]))
    assert (kept.token, kept.fence, kept.place.deadline, kept.due) == ("mine", 7, deadline(100.0, 30), 110.0)
    assert world.told == [Acquired("k", 7, 0, 0.0)]


def test_a_claim_whose_reply_was_lost_is_kept_and_may_land_once_more():
    """Rules 1 and 2 of locking."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    store = Scripted(world, claim=[SILENT, grant()])
    kept = take(world, store)
    assert (kept.token, kept.may_land_until) == ("mine", 1001.5)
    assert world.abandoned == []


def test_every_question_of_one_acquisition_bears_the_same_token():
    """Rule 1 of locking."""
    world = ScriptedWorld(tokens=["mine", "another"])
    store = Scripted(world, claim=[busy(), SILENT, busy(), grant()], wait=[None, None])
    take(world, store, wait=60)
    assert {call.token for call in store.of("claim")} == {"mine"}


def test_a_held_key_is_refused_at_once_and_the_holder_named():
    """Rule 3 of locking."""
    world = ScriptedWorld()
    store = Scripted(world, claim=[busy(holder(pid=9, ttl=12.0))])
    with pytest.raises(NotAcquired, match=r"'k' is held by pid 9 \(fence 5\) for 12\.0 s more: pass wait="):
        take(world, store)
    assert store.calls[0].will_wait is False
    assert world.told == [Refused("k", holder(pid=9, ttl=12.0), 0.0)]
    assert world.abandoned == []


def test_whoever_waits_says_so_and_asks_one_last_question_when_the_time_is_up():
    """Rule 3 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(), busy(), busy()], wait=[world.after(0.9, None), None])
    with pytest.raises(NotAcquired):
        take(world, store, wait=0.92)
    assert [call.will_wait for call in store.of("claim")] == [True, True, False]
    assert store.calls[-1].at == pytest.approx(100.92)


def test_a_last_question_may_still_get_the_key():
    """Rule 3 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(), busy(), grant()], wait=[world.after(0.9, None), None])
    assert take(world, store, wait=0.92).fence == 7


def test_a_waiter_asks_until_it_gets_the_key():
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()] * 20 + [grant()], wait=[world.after(1.0, None)] * 20)
    assert take(world, store, wait=math.inf).since == 120.0
    assert world.told[-1] == Acquired("k", 7, 0, 20.0)


def test_a_store_that_cannot_push_is_polled_until_the_time_is_up():
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()] * 20, capabilities=PULLING)
    with pytest.raises(NotAcquired):
        take(world, store, wait=1.0)
    assert 8 <= len(store.calls) <= 14
    assert world.time == pytest.approx(101.0)


@pytest.mark.parametrize(("wait", "longest"), [(0, 3.0), (0.2, LAST_WORD), (2.0, 2.0), (60, 3.0), (math.inf, 3.0)])
def test_a_silent_store_is_waited_for_no_longer_than_its_patience_and_our_wait(wait, longest):
    world = ScriptedWorld(now=100.0)
    with pytest.raises(OutcomeUnknown):
        take(world, Scripted(world, claim=[world.never] * 20), wait=wait)
    assert world.time <= 100.0 + longest + 1e-6


def test_a_store_that_falls_silent_while_we_wait_gets_a_second_for_the_last_question():
    """Rule 3 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()] + [world.never] * 20, wait=[world.after(1.9, SILENT)])
    with pytest.raises(OutcomeUnknown):
        take(world, store, wait=2.0)
    assert world.time <= 102.0 + LAST_WORD + 1e-6


def baton(ttl=1.5, **facts):
    """A hold that was handed on: its seconds count from the refusal before the wait."""
    return grant("baton", ttl=ttl, fence=8, **facts)


def test_a_hold_that_was_handed_on_is_ours_at_once_and_renewed_soon():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()], wait=[world.after(0.5, baton())])
    kept = take(world, store, wait=60)
    assert (kept.token, kept.fence, kept.anonymous, kept.info) == ("baton", 8, True, {"pid": 1})
    assert kept.place.deadline == deadline(100.0, 1.5)
    assert kept.due == 100.5 + SETTLES
    assert [call.verb for call in store.calls] == ["claim", "wait"]


def test_a_hold_that_was_handed_on_is_renewed_before_the_user_has_it_if_nobody_renews_later():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()], wait=[world.after(0.5, baton())], renew=[grant("baton", fence=8)])
    kept = take(world, store, Terms(key="k", renew=False), wait=60)
    assert (store.calls[-1].ttl, store.calls[-1].info) == (30, {"pid": 1})
    assert (kept.anonymous, kept.place.deadline, kept.due) == (False, deadline(100.5, 30), deadline(100.5, 30))


def test_a_hold_that_was_handed_on_with_little_left_is_renewed_before_the_user_has_it():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy()], wait=[world.after(1.2, baton())], renew=[grant("baton", fence=8)])
    kept = take(world, store, wait=60)
    assert store.calls[-1].within == pytest.approx(0.3, abs=0.01)
    assert (kept.anonymous, kept.due) == (False, 101.2 + 10)


def test_a_hold_that_was_handed_on_too_late_is_asked_for_anew():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(), grant()], wait=[world.after(1.6, baton())])
    assert take(world, store, wait=60).token == "mine"


@pytest.mark.parametrize("answer", [SILENT, UNREACHABLE])
def test_a_hold_that_was_handed_on_and_could_not_be_renewed_is_abandoned(answer):
    """Rules 2 and 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(), grant()], wait=[world.after(1.2, baton())], renew=[answer])
    assert take(world, store, wait=60).token == "mine"
    assert world.abandoned == [("k", "baton", 1, 0)]


def test_a_hold_that_was_handed_on_and_is_gone_again_is_asked_for_anew():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(), grant()], wait=[world.after(1.2, baton())], renew=[busy()])
    assert take(world, store, wait=60).token == "mine"


def test_a_hold_that_was_handed_on_whose_renewal_came_after_its_own_end_is_asked_for_anew():
    """Rule 4 of locking, and rule 5 of asking."""
    world = ScriptedWorld(now=100.0)
    terms = Terms(key="k", lease=0.5, renew=False)
    late = world.after(0.6, grant("baton", ttl=0.5, fence=8))  # this process stood still
    store = Scripted(world, claim=[busy(), grant(ttl=0.5)], wait=[world.after(0.1, baton())], renew=[late])
    assert take(world, store, terms, wait=60).token == "mine"


def test_what_may_land_beside_a_hold_that_was_handed_on_is_abandoned():
    """Rules 2 and 4 of locking."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    store = Scripted(world, claim=[SILENT, busy()], wait=[baton()])
    kept = take(world, store, wait=60)
    assert world.abandoned == [("k", "mine", 1, 1001.5)]
    assert (kept.token, kept.may_land_until) == ("baton", 0)


def test_an_acquisition_that_was_given_up_abandons_what_may_still_land():
    """Rule 2 of locking."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    with pytest.raises(NotAcquired):
        take(world, Scripted(world, claim=[SILENT, busy()]), Terms(key="k", slots=3))
    assert world.abandoned == [("k", "mine", 3, 1001.5)]


def test_an_acquisition_without_any_answer_abandons_what_may_still_land():
    """Rule 2 of locking."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    with pytest.raises(OutcomeUnknown):
        take(world, Scripted(world, claim=[world.never] * 9))
    assert [(key, token) for key, token, _, _ in world.abandoned] == [("k", "mine")]
    assert world.abandoned[0][3] == pytest.approx(1003.0)


@pytest.mark.parametrize("error", [UNREACHABLE, ConfigError("wrong password"), TooLarge("too large", size=2, limit=1)])
def test_an_acquisition_that_was_surely_refused_abandons_nothing(error):
    """Rule 2 of locking."""
    world = ScriptedWorld()
    with pytest.raises(type(error)):
        take(world, Scripted(world, claim=[error, error]))
    assert world.abandoned == []


def test_an_acquisition_that_is_interrupted_anywhere_abandons_what_may_land_and_awaits_nothing():
    """Rule 2 of locking."""
    store = None

    def make():
        nonlocal store
        world = ScriptedWorld(now=100.0, server=None, suspends=True)
        script = {"ping": [1000.0], "claim": [SILENT, SILENT, busy(), busy(), grant()], "wait": [None, SILENT]}
        store = Scripted(world, suspends=True, **script)
        return acquire(world, store, TERMS, {}, 60)

    def judge(step):
        abandoned = store.world.abandoned
        assert [(key, token) for key, token, _, _ in abandoned] == ([("k", "mine")] if store.of("claim") else [])
        assert not abandoned or abandoned[0][3] >= store.of("claim")[0].not_after

    assert at_every_step(make, judge) == 11  # a ping, five claims, two waits, a pause between claims and one after each wait


def test_a_settling_hold_that_is_interrupted_is_abandoned():
    """Rules 2 and 4 of locking."""
    world = None

    def make():
        nonlocal world
        world = ScriptedWorld(now=100.0)
        store = Scripted(world, suspends=True, claim=[busy()], wait=[baton()], renew=[grant("baton")])
        return acquire(world, store, Terms(key="k", renew=False), {}, 60)

    seen = []
    at_every_step(make, lambda step: seen.append([token for _, token, _, _ in world.abandoned]))
    assert seen == [["mine"], [], ["baton"]]


@pytest.mark.parametrize("claims", [[UNREACHABLE, UNREACHABLE], [SILENT] * 9])
def test_a_store_that_is_down_costs_the_protection_and_not_the_work(claims):
    """Rule 7 of locking."""
    world = ScriptedWorld(now=100.0, tokens=["mine", "later"])
    kept = take(world, Scripted(world, claim=claims), Terms(key="k", if_store_down="run"))
    assert (kept.grant, kept.fence, kept.token, kept.place.deadline) == (None, None, "later", math.inf)
    assert world.time < kept.due <= world.time + 1
    assert [type(event) for event in world.told] == [Degraded]


def test_a_wrong_setting_is_no_outage():
    """Rule 7 of locking."""
    world = ScriptedWorld()
    with pytest.raises(ConfigError):
        take(world, Scripted(world, claim=[ConfigError("wrong password")]), Terms(key="k", if_store_down="run"))


def test_a_held_key_is_no_outage():
    """Rule 7 of locking."""
    world = ScriptedWorld()
    with pytest.raises(NotAcquired):
        take(world, Scripted(world, claim=[busy()]), Terms(key="k", if_store_down="run"))


def test_a_store_that_is_down_is_an_error_by_default():
    """Rule 7 of locking."""
    world = ScriptedWorld()
    with pytest.raises(StoreUnavailable):
        take(world, Scripted(world, claim=[UNREACHABLE, UNREACHABLE]))


def test_the_longest_hold_bounds_the_first_lease_and_the_end():
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[grant(ttl=5)])
    kept = take(world, store, Terms(key="k", lease=30, max_hold=5))
    assert (store.calls[0].ttl, kept.ends) == (5, 105.0)


def test_a_hold_that_is_not_renewed_is_due_at_its_deadline():
    world = ScriptedWorld(now=100.0)
    kept = take(world, Scripted(world, claim=[grant()]), Terms(key="k", renew=False))
    assert (kept.renewed, kept.due) == (False, kept.place.deadline)


def test_a_semaphore_asked_for_with_another_limit_is_told_once():
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[busy(holder(limit=5))] * 3 + [grant()], wait=[None] * 3)
    take(world, store, Terms(key="k", slots=3), wait=60)
    assert [event for event in world.told if isinstance(event, LimitsDiffer)] == [LimitsDiffer("k", 3, 5)]


def test_a_semaphore_asked_for_with_the_same_limit_is_not_told():
    world = ScriptedWorld()
    with pytest.raises(NotAcquired):
        take(world, Scripted(world, claim=[busy(holder(limit=3))]), Terms(key="k", slots=3))
    assert [type(event) for event in world.told] == [Refused]


def test_a_first_lease_that_the_store_capped_is_made_whole_where_no_keeper_renews():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[grant(ttl=30)], renew=[grant(ttl=3600)])
    kept = run(acquire(world, store, Terms(key="k", lease=3600, renew=False), {}, 0))
    assert (store.calls[-1].ttl, kept.place.deadline) == (3600, deadline(100.0, 3600))


@pytest.mark.parametrize("answer", [SILENT, busy()])
def test_a_capped_lease_that_can_not_be_made_whole_is_what_there_is(answer):
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[grant(ttl=30)], renew=[answer])
    kept = run(acquire(world, store, Terms(key="k", lease=3600, renew=False), {}, 0))
    assert kept.place.deadline == deadline(100.0, 30)


def test_a_store_that_can_not_refuse_late_claims_is_told_no_time_and_evicted_once():
    """Rule 2 of asking."""
    world = ScriptedWorld(now=100.0, server=None)
    store = Scripted(world, claim=[SILENT] * 9, capabilities=replace(CAPABILITIES, refuses_late=False))
    with pytest.raises(OutcomeUnknown):
        run(acquire(world, store, Terms(key="k"), {}, 0))
    assert [call.verb for call in store.calls][:1] == ["claim"]
    assert store.calls[0].not_after is None
    assert world.abandoned[0][3] == math.inf
