"""Waiting for a turn: how long at most, and what a wait may bring."""

import math

import pytest

from soloist._flows.waiting import LONGEST, turn
from soloist._world import run
from tests.flows.scripted import PULLING, SILENT, UNREACHABLE, Scripted, ScriptedWorld, at_every_step, busy, grant, holder


def wait(world, store, refusal, *, seconds):
    return run(turn(world, store, "k", refusal, world.time + seconds))


def test_no_wait_is_longer_than_what_the_shortest_hold_has_left():
    """Rule 1 of waiting."""
    world = ScriptedWorld()
    store = Scripted(world, wait=[None])
    wait(world, store, busy(holder(ttl=25), holder("other", ttl=0.5, slot=1)), seconds=60)
    assert 0.5 < store.calls[0].within < 0.51


def test_a_wait_goes_on_until_just_after_the_end_of_a_lease_that_ends_late():
    """Rule 1 of waiting."""
    from dataclasses import replace

    world = ScriptedWorld()
    store = Scripted(world, wait=[None], capabilities=replace(Scripted(world).capabilities, late_by=1))
    wait(world, store, busy(holder(ttl=0.5)), seconds=60)
    assert 1.5 < store.calls[0].within < 1.51


@pytest.mark.parametrize("chance", [0.0, 0.999])
@pytest.mark.parametrize("seconds", [60, math.inf])
def test_no_wait_is_longer_than_two_seconds(chance, seconds):
    """Rule 2 of waiting."""
    world = ScriptedWorld(chance=chance)
    store = Scripted(world, wait=[None])
    wait(world, store, busy(holder(ttl=3600)), seconds=seconds)
    assert 0.7 * LONGEST < store.calls[0].within <= LONGEST


def test_a_wait_says_what_was_seen_so_that_no_wake_up_is_lost():
    world = ScriptedWorld()
    store = Scripted(world, wait=[None])
    wait(world, store, busy(seen=17.5), seconds=60)
    assert (store.calls[0].key, store.calls[0].seen) == ("k", 17.5)


def test_a_hold_that_was_handed_on_is_the_waits_result():
    """Rule 3 of waiting."""
    world = ScriptedWorld()
    baton = grant("baton", ttl=1.5)
    assert wait(world, Scripted(world, wait=[baton]), busy(), seconds=60) == baton


def test_a_wait_has_all_the_time_that_is_left():
    """What a server makes of its last moments is its store's to know."""
    world = ScriptedWorld()
    store = Scripted(world, wait=[None])
    wait(world, store, busy(), seconds=1.0)
    assert store.calls[0].within == pytest.approx(1.0)


def test_a_wait_that_comes_back_at_once_is_followed_by_a_short_pause():
    """Rule 4 of waiting."""
    world = ScriptedWorld()
    assert wait(world, Scripted(world, wait=[None]), busy(), seconds=60) is None
    assert 0.01 <= world.naps[0] <= 0.03


def test_a_wait_that_took_its_time_is_followed_by_none():
    """Rule 4 of waiting."""
    world = ScriptedWorld()
    assert wait(world, Scripted(world, wait=[world.after(1, None)]), busy(), seconds=60) is None
    assert world.naps == []


def test_a_lease_that_is_about_to_end_is_polled():
    """Rule 1 of waiting."""
    world = ScriptedWorld()
    wait(world, Scripted(world, wait=[None]), busy(holder(ttl=0.01)), seconds=60)
    assert 0.01 <= world.naps[0] <= 0.02


@pytest.mark.parametrize("seconds", [0.0, 0.004])
def test_no_pause_is_longer_than_the_time_that_is_left(seconds):
    """Rule 4 of waiting."""
    world = ScriptedWorld()
    wait(world, Scripted(world, wait=[None]), busy(), seconds=seconds)
    assert world.naps == [pytest.approx(seconds)]


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.05), (0.5, 0.1), (1.0, 0.15)])
def test_a_store_that_cannot_push_is_asked_after_a_jittered_pause(chance, pause):
    """Rule 5 of waiting."""
    world = ScriptedWorld(chance=chance)
    store = Scripted(world, capabilities=PULLING)
    assert wait(world, store, busy(), seconds=60) is None
    assert store.calls == []
    assert world.naps == [pytest.approx(pause)]


def test_a_store_that_cannot_push_is_asked_at_the_end_of_the_shortest_hold():
    """Rules 1 and 5 of waiting."""
    world = ScriptedWorld()
    wait(world, Scripted(world, capabilities=PULLING), busy(holder(ttl=0.02)), seconds=60)
    assert 0.02 <= world.naps[0] <= 0.03


@pytest.mark.parametrize("error", [SILENT, UNREACHABLE])
def test_a_store_that_fails_while_we_wait_has_said_nothing(error):
    """Rule 6 of waiting."""
    world = ScriptedWorld()
    assert wait(world, Scripted(world, wait=[error]), busy(), seconds=60) is None
    assert 0 < world.naps[0] <= 0.04  # or a store that fails at once would be asked without a pause
    assert world.failures == []


def test_a_refusal_that_names_nobody_is_asked_again_soon():
    from soloist.contract import Busy

    world = ScriptedWorld()
    wait(world, Scripted(world, wait=[None]), Busy((), 1.0, 1000.0), seconds=60)
    assert world.naps[0] < 0.1


def test_an_interrupted_wait_ends_at_once():
    def make():
        world = ScriptedWorld(suspends=True)
        return turn(world, Scripted(world, suspends=True, wait=[SILENT]), "k", busy(), world.time + 60)

    assert at_every_step(make, lambda step: None) == 2
