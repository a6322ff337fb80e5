"""What an algorithm knows of the world: `run`, the two clocks, and the memory of an outage."""

import asyncio
import math
import time

import pytest

from soloist import _world
from soloist._world import AsyncioWorld, BlockingWorld, Clock, boottime, random_token, run
from soloist.contract import owner
from soloist.errors import StoreUnavailable
from soloist.events import ClockJump, StoreBack, StoreDown
from tests.flows.scripted import QuietWorld, suspension


def test_run_gives_back_what_a_flow_returns():
    async def answer():
        return 42

    assert run(answer()) == 42


def test_run_raises_what_a_flow_raises():
    async def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run(fail())


def test_a_flow_that_suspends_in_blocking_use_fails_loudly_and_is_ended():
    ended = []

    async def suspend():
        try:
            await suspension()
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match=r"suspend.* suspended in blocking use"):
        run(suspend())
    assert ended == [True]


def test_run_works_inside_a_running_event_loop():
    async def inner():
        return 42

    async def outer():
        return run(inner())

    assert asyncio.run(outer()) == 42


def test_no_two_tokens_are_the_same_nor_have_the_same_owner():
    tokens = [random_token() for _ in range(1000)]
    assert len({owner(token) for token in tokens}) == 1000
    assert all(token.count("/") == 1 for token in tokens)


def test_a_clock_knows_nothing_before_the_first_reply():
    assert Clock().server(100.0) is None


def test_the_servers_time_is_never_guessed_too_low():
    """A reply says only that the server's clock stood somewhere between question and answer."""
    clock = Clock()
    clock.learn(sent=100.0, got=101.0, server=1000.0)
    assert clock.server(101.0) >= 1001.0


def test_a_quick_reply_narrows_what_is_known():
    clock = Clock()
    clock.learn(sent=100.0, got=102.0, server=1001.0)
    clock.learn(sent=103.0, got=103.01, server=1003.0)
    assert 1003.01 <= clock.server(103.01) < 1003.03


def test_a_slow_reply_widens_nothing():
    clock = Clock()
    clock.learn(sent=100.0, got=100.01, server=1000.0)
    clock.learn(sent=101.0, got=161.0, server=1060.9)  # this process stood still before its request was on its way
    assert 1061.0 <= clock.server(161.0) < 1061.2


def test_two_drifting_clocks_are_no_jump_and_no_underestimate():
    clock, ours, theirs = Clock(), 100.0, 1000.0
    for _ in range(2000):
        ours, theirs = ours + 10, theirs + 10.009  # 900 ppm fast
        assert clock.server(ours) is None or clock.server(ours) >= theirs
        assert clock.learn(ours, ours + 0.001, theirs) == 0.0


@pytest.mark.parametrize("jump", [-3600.0, -2.0, 2.0, 3600.0])
def test_a_servers_jump_is_seen_once_and_believed(jump):
    clock = Clock()
    clock.learn(100.0, 100.01, 1000.0)
    assert clock.learn(101.0, 101.01, 1001.0 + jump) == pytest.approx(jump, abs=0.1)
    assert clock.learn(102.0, 102.01, 1002.0 + jump) == 0.0
    assert clock.server(102.01) == pytest.approx(1002.01 + jump, abs=0.1)


def test_a_step_of_some_milliseconds_is_believed_without_a_word():
    clock = Clock()
    clock.learn(100.0, 100.01, 1000.0)
    assert clock.learn(101.0, 101.01, 1000.9) == 0.0
    assert clock.server(101.01) == pytest.approx(1000.91, abs=0.02)


def test_a_reply_that_another_thread_took_in_later_does_no_harm():
    clock = Clock()
    clock.learn(100.0, 100.02, 1000.01)
    assert clock.learn(100.0, 100.01, 1000.005) == 0.0
    assert clock.server(100.02) >= 1000.02


def test_an_outage_is_told_once_and_remembered_for_a_second(monkeypatch):
    world, now = QuietWorld(), 100.0
    monkeypatch.setattr(_world, "boottime", lambda: now)
    assert world.outage() is None
    world.failed(StoreUnavailable("connection refused"))
    world.failed(StoreUnavailable("connection refused"))
    assert world.told == [StoreDown("connection refused")]
    now = 100.9
    assert "connection refused" in str(world.outage())
    assert isinstance(world.outage(), StoreUnavailable)
    now = 101.1
    assert world.outage() is None


def test_the_end_of_an_outage_is_told_once_with_its_length(monkeypatch):
    world, now = QuietWorld(), 100.0
    monkeypatch.setattr(_world, "boottime", lambda: now)
    world.failed(StoreUnavailable("down"))
    now = 107.0
    world.failed(StoreUnavailable("down"))
    world.learn(107.0, 1000.0)
    world.learn(107.0, 1000.0)
    assert [event for event in world.told if isinstance(event, StoreBack)] == [StoreBack(7.0)]
    assert world.outage() is None


def test_a_second_outage_is_told_again():
    world = QuietWorld()
    for _ in range(2):
        world.failed(StoreUnavailable("down"))
        world.learn(boottime(), 1000.0)
    assert [type(event) for event in world.told if not isinstance(event, ClockJump)] == [StoreDown, StoreBack] * 2


def test_a_servers_clock_that_jumped_is_told():
    world = QuietWorld()
    world.learn(boottime(), 1000.0)
    world.learn(boottime(), 900.0)
    assert [(event.whose, round(event.seconds)) for event in world.told] == [("server", -100)]


def test_our_wall_clock_that_jumped_is_told_once(monkeypatch):
    world, wall = QuietWorld(), time.time
    world.learn(boottime(), 1000.0)
    monkeypatch.setattr(time, "time", lambda: wall() + 60)
    world.learn(boottime(), 1000.0)
    world.learn(boottime(), 1000.0)
    assert [(event.whose, round(event.seconds)) for event in world.told] == [("client", 60)]


def test_what_is_abandoned_is_handed_over_with_the_time():
    world, before = QuietWorld(), boottime()
    world.abandon("k", "t", slots=3, not_after=7.0)
    (now, *rest) = world.handed_over[0]
    assert before <= now <= boottime()
    assert rest == ["k", "t", 3, 7.0]


def test_the_clock_goes_on_while_the_machine_sleeps():
    assert boottime() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)


def test_both_worlds_sleep():
    before = boottime()
    run(BlockingWorld(print, print).sleep(0.01))
    asyncio.run(AsyncioWorld(print, print).sleep(0.01))
    assert boottime() - before >= 0.02


def test_a_clock_that_is_told_in_whole_seconds_does_not_jump():
    """An HTTP `Date` header."""
    clock = Clock(step=1.0)
    for n in range(300):
        at = 100.0 + 0.37 * n
        assert clock.learn(at, at + 0.01, float(int(at + 0.005) + 5000)) == 0
    assert clock.server(200.0) >= 5200.0


def test_a_store_without_a_clock_tells_no_time():
    clock = Clock(step=math.inf)
    assert [clock.learn(at, at, 0.0) for at in (1.0, 1000.0, 2000.0)] == [0, 0, 0]
