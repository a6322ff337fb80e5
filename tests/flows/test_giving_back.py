"""Giving a lock back, extending it, and what an operator may do to it: find, list and force."""

import math
from dataclasses import replace

import pytest

from soloist._flows.asking import deadline
from soloist._flows.locking import Terms, extend, find, force, give_back, listed
from soloist._flows.renewing import Kept, Local
from soloist._world import run
from soloist.contract import Gone, Page
from soloist.errors import OutcomeUnknown, StoreUnavailable
from soloist.events import ForceReleased, Lost, Released, ReleaseFailed
from soloist.stores.memory import CAPABILITIES
from tests.flows.scripted import SILENT, UNREACHABLE, Scripted, ScriptedWorld, at_every_step, busy, grant, holder


def hold(world, **facts):
    return Kept(
        **{"key": "k", "token": "mine", "grant": grant(), "place": Local(deadline(world.time, 30)), "lease": 30, "due": 110} | facts
    )


def give(world, store, kept, **terms):
    return run(give_back(world, store, Terms(key="k", **terms), kept))


def test_a_hold_is_given_back():
    world = ScriptedWorld()
    store = Scripted(world, release=[True])
    kept = hold(world)
    assert give(world, store, kept) is True
    assert (kept.leaving, world.told, world.abandoned) == (True, [Released("k", 7, ours=True, kept=0)], [])
    assert (store.calls[0].grant, store.calls[0].keep) == (grant(), 0)


def test_a_release_whose_reply_was_lost_is_sent_again_and_believed():
    """Rule 5 of locking."""
    world = ScriptedWorld()
    assert give(world, Scripted(world, release=[SILENT, False]), hold(world)) is True
    assert world.told == [Released("k", 7, ours=True, kept=0)]


def test_a_release_that_surely_was_not_done_is_sent_again_and_judged():
    """Rule 5 of locking."""
    world = ScriptedWorld()
    store = Scripted(world, release=[UNREACHABLE, False], look=[()])
    assert give(world, store, hold(world)) is False


@pytest.mark.parametrize("answers", [[SILENT, SILENT], [UNREACHABLE, UNREACHABLE], [SILENT, UNREACHABLE]])
def test_a_release_that_failed_is_told_left_to_the_keeper_and_raised(answers):
    """Rule 5 of locking."""
    world = ScriptedWorld()
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        give(world, Scripted(world, release=answers), hold(world, slots=3))
    assert world.abandoned == [("k", "mine", 3, 0)]
    assert [type(event) for event in world.told] == [ReleaseFailed]


def test_a_release_during_an_outage_is_left_to_the_keeper_without_a_request():
    """Rule 5 of locking."""
    world = ScriptedWorld()
    world.failed(UNREACHABLE)
    store = Scripted(world)
    with pytest.raises(StoreUnavailable):
        give(world, store, hold(world))
    assert world.abandoned == [("k", "mine", 1, 0)]


def test_a_release_takes_no_longer_than_the_stores_patience():
    """Rule 5 of locking."""
    world = ScriptedWorld(now=100.0)
    with pytest.raises(OutcomeUnknown):
        give(world, Scripted(world, release=[world.never, world.never]), hold(world), patience=2.0)
    assert world.time <= 102.0 + 1e-6


@pytest.mark.parametrize(("terms", "verb"), [({}, "release"), ({"min_hold": 60}, "renew")])
def test_a_release_that_is_interrupted_anywhere_awaits_nothing_more(terms, verb):
    """Rules 2 and 5 of locking."""
    world = None

    def make():
        nonlocal world
        world = ScriptedWorld()
        store = Scripted(world, suspends=True, look=[()], **{verb: [SILENT, UNREACHABLE]})
        return give_back(world, store, Terms(key="k", **terms), hold(world, since=world.time))

    def judge(step):
        assert [type(event) for event in world.told] == [ReleaseFailed]
        assert [token for _, token, _, _ in world.abandoned] == ([] if terms else ["mine"])

    assert at_every_step(make, judge) == 2


@pytest.mark.parametrize(("holders", "why"), [((holder(),), "taken"), ((), "vanished"), (SILENT, "unknown")])
def test_a_hold_that_was_not_ours_any_more_is_told_as_lost(holders, why):
    world = ScriptedWorld()
    assert give(world, Scripted(world, release=[False], look=[holders]), hold(world)) is False
    assert world.told == [Lost("k", 7, why), Released("k", 7, ours=False, kept=0)]


@pytest.mark.parametrize("why", ["taken", "vanished"])
def test_a_hold_that_is_surely_lost_is_not_released(why):
    """Rule 5 of locking."""
    world = ScriptedWorld()
    store = Scripted(world)
    assert give(world, store, hold(world, place=Local(130.0, why), untold=[])) is False
    assert store.calls == []


def test_a_hold_that_may_be_lost_is_released():
    """Rule 5 of locking."""
    world = ScriptedWorld()
    assert give(world, Scripted(world, release=[True]), hold(world, place=Local(99.0, "unknown"), untold=[])) is True


def test_a_hold_that_is_not_renewed_is_not_released_once_its_time_is_up():
    """Rule 5 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, look=[(holder(),)])
    assert give(world, store, hold(world, renewed=False, place=Local(99.0))) is False
    assert store.of("release") == []


def test_a_hold_that_is_not_renewed_is_released_before_its_time_is_up():
    """Rule 5 of locking."""
    world = ScriptedWorld(now=100.0)
    assert give(world, Scripted(world, release=[True]), hold(world, renewed=False)) is True


def test_a_shortest_hold_is_kept_for_its_rest():
    """Rule 6 of locking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, renew=[grant(ttl=54)])
    assert give(world, store, hold(world, since=94.0), min_hold=60) is True
    assert (store.calls[0].ttl, store.calls[0].state) == (54.0, "kept")
    assert world.told == [Released("k", 7, ours=True, kept=54.0)]


def test_a_shortest_hold_that_is_over_is_released():
    """Rule 6 of locking."""
    world = ScriptedWorld(now=100.0)
    assert give(world, Scripted(world, release=[True]), hold(world, since=30.0), min_hold=60) is True


def test_a_shortest_hold_that_could_not_be_kept_is_not_evicted():
    """Rule 6 of locking."""
    world = ScriptedWorld(now=100.0)
    with pytest.raises(OutcomeUnknown):
        give(world, Scripted(world, renew=[SILENT, SILENT]), hold(world, since=100.0), min_hold=60)
    assert world.abandoned == []


@pytest.mark.parametrize("answer", [busy(), Gone(None, None, 1000.0)])
def test_a_shortest_hold_that_was_not_ours_any_more_is_told_as_lost(answer):
    """Rule 6 of locking."""
    world = ScriptedWorld(now=100.0)
    assert give(world, Scripted(world, renew=[answer], look=[()]), hold(world, since=100.0), min_hold=60) is False
    assert world.told[0] == Lost("k", 7, "vanished")


def test_what_may_still_land_is_abandoned_after_the_release():
    """Rule 2 of locking: evicted before it, the hold would seem to be lost."""
    world = ScriptedWorld(now=100.0)

    def releasing(_):
        assert world.abandoned == []
        return True

    assert give(world, Scripted(world, release=[releasing]), hold(world, may_land_until=1001.5)) is True
    assert world.abandoned == [("k", "mine", 1, 1001.5)]


def test_what_may_still_land_is_abandoned_even_if_the_hold_was_lost():
    """Rule 2 of locking."""
    world = ScriptedWorld(now=100.0)
    give(world, Scripted(world), hold(world, may_land_until=1001.5, place=Local(130.0, "taken"), untold=[]))
    assert world.abandoned == [("k", "mine", 1, 1001.5)]


def test_a_shortest_hold_is_not_cut_short_by_what_may_still_land():
    """Rules 2 and 6 of locking."""
    world = ScriptedWorld(now=100.0)
    give(world, Scripted(world, renew=[grant(ttl=60)]), hold(world, since=100.0, may_land_until=1001.5), min_hold=60)
    assert world.abandoned == []


def test_a_short_rest_lasts_until_nothing_can_land_any_more():
    """Rules 2 and 6 of locking: what lands later would be a hold of nobody."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, renew=[grant(ttl=3)])
    give(world, store, hold(world, since=100.0, may_land_until=1001.5), min_hold=0.5, patience=3)
    assert store.calls[0].ttl == 3


def test_a_run_without_protection_abandons_what_it_may_still_get():
    """Rules 2 and 7 of locking."""
    world = ScriptedWorld()
    kept = hold(world, grant=None, place=Local(math.inf), may_land_until=1001.5)
    store = Scripted(world)
    assert give(world, store, kept) is False
    assert (store.calls, world.abandoned) == ([], [("k", "mine", 1, 1001.5)])
    assert world.told == [Released("k", None, ours=False, kept=0)]


def lengthen(world, store, kept, seconds):
    run(extend(world, store, Terms(key="k"), kept, seconds))


def test_an_extended_hold_ends_so_many_seconds_from_now():
    world = ScriptedWorld(now=100.0)
    kept = hold(world)
    store = Scripted(world, renew=[world.after(1, grant(ttl=600))])
    lengthen(world, store, kept, 600)
    assert (store.calls[0].ttl, kept.place.deadline) == (600, deadline(100.0, 600))


def test_an_extended_hold_is_never_brought_nearer_to_its_end():
    world = ScriptedWorld(now=100.0)
    kept = hold(world)
    lengthen(world, Scripted(world, renew=[grant(ttl=29)]), kept, 1)
    assert kept.place.deadline == deadline(100.0, 30)


def test_an_extension_brings_our_info_to_a_hold_that_was_handed_on():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    kept = hold(world, anonymous=True, info={"pid": 1})
    store = Scripted(world, renew=[grant(ttl=600)])
    lengthen(world, store, kept, 600)
    assert (store.calls[0].info, kept.anonymous) == ({"pid": 1}, False)


def test_an_extension_leaves_a_state_that_is_wanted_to_the_next_renewal():
    world = ScriptedWorld(now=100.0)
    kept = hold(world, turn_into="queued")
    lengthen(world, Scripted(world, renew=[grant(ttl=600)]), kept, 600)
    assert kept.turn_into == "queued"


def test_an_extension_of_a_hold_that_another_took_tells_the_loss():
    world = ScriptedWorld()
    kept = hold(world)
    lengthen(world, Scripted(world, renew=[busy()]), kept, 600)
    assert (kept.place.lost, world.told) == ("taken", [Lost("k", 7, "taken")])


def test_an_extension_without_an_answer_leaves_the_hold_as_it_was():
    world = ScriptedWorld(now=100.0)
    kept = hold(world)
    with pytest.raises(OutcomeUnknown):
        lengthen(world, Scripted(world, renew=[SILENT, SILENT]), kept, 600)
    assert (kept.place.lost, kept.place.deadline) == (None, deadline(100.0, 30))


def test_an_extension_after_a_lost_reply_counts_from_the_first_request():
    world = ScriptedWorld(now=100.0)
    kept = hold(world)
    lengthen(world, Scripted(world, renew=[world.after(1, SILENT), grant(ttl=600)]), kept, 600)
    assert kept.place.deadline == deadline(100.0, 600)


def test_a_run_without_protection_has_nothing_to_extend():
    world = ScriptedWorld()
    lengthen(world, Scripted(world), hold(world, grant=None, place=Local(math.inf)), 600)


def who(world, store, key="k"):
    return run(find(world, store, key, within=3))


def test_a_locks_holder_is_found_by_one_look():
    world = ScriptedWorld()
    store = Scripted(world, look=[(holder(),)])
    assert who(world, store) == (holder(),)
    assert len(store.calls) == 1


def test_a_semaphores_holders_are_found_whatever_limit_each_of_them_had():
    world = ScriptedWorld()
    both = (holder(limit=3), holder("other", slot=7, limit=10))
    store = Scripted(world, look=[both[:1]], listing=[Page(both, None)])
    assert who(world, store) == both


def test_a_semaphore_whose_lowest_slot_is_free_is_found_by_listing():
    world = ScriptedWorld()
    other = holder("other", slot=2, limit=3)
    store = Scripted(world, look=[()], listing=[Page((holder("longer", key="k2"), other), None)])
    assert who(world, store) == (other,)
    assert store.calls[1].prefix == "k"


def test_a_store_without_slots_is_not_listed():
    world = ScriptedWorld()
    assert who(world, Scripted(world, look=[()], capabilities=replace(CAPABILITIES, slots=False))) == ()


def test_a_listing_goes_on_from_page_to_page():
    world = ScriptedWorld()
    store = Scripted(world, listing=[Page((holder(key="a"),), "next"), SILENT, Page((holder(key="b"),), None)])
    assert [found.key for found in run(listed(world, store, "", within=3))] == ["a", "b"]
    assert [call.cursor for call in store.calls] == [None, "next", "next"]


def freed(world, store, fence=None):
    return run(force(world, store, "k", fence, "an operator", within=3))


def test_a_key_is_taken_away_from_its_holder_by_the_very_token():
    world = ScriptedWorld()
    store = Scripted(world, look=[(holder(),)], evict=[True])
    assert freed(world, store) == (holder(),)
    assert (store.calls[1].key, store.calls[1].token) == ("k", "theirs")
    assert world.told == [ForceReleased(holder(), "an operator")]


def test_only_the_hold_with_that_fence_is_taken_away():
    world = ScriptedWorld()
    both = (holder(limit=2, fence=5), holder("other", slot=1, limit=2, fence=6))
    store = Scripted(world, look=[both[:1]], listing=[Page(both, None)], evict=[True])
    assert freed(world, store, fence=6) == both[1:]
    assert (store.of("evict")[0].token, store.of("evict")[0].slots) == ("other", 2)


@pytest.mark.parametrize(("answers", "taken"), [([False], ()), ([SILENT, False], (holder(),)), ([UNREACHABLE, True], (holder(),))])
def test_a_hold_that_ended_meanwhile_was_not_taken_away(answers, taken):
    world = ScriptedWorld()
    assert freed(world, Scripted(world, look=[(holder(),)], evict=answers)) == taken


def test_nobody_is_freed_where_nobody_holds():
    world = ScriptedWorld()
    store = Scripted(world, look=[()], listing=[Page((), None)])
    assert freed(world, store) == ()
