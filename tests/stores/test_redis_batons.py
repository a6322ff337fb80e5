"""Waiting on Redis: first come, first served, and nobody waits for the dead."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from soloist._world import run
from soloist.contract import Busy, Grant
from tests.stores.redises import TTL, beside, blocked, bucket, claim, eventually, record

pytest_plugins = ("tests.stores.redis_fixtures",)


def test_waiters_get_in_in_the_order_in_which_they_came(store, cli):
    grant, order = claim(store), []
    threads = []
    for number in range(3):
        seen = claim(store, f"w{number}/1", will_wait=True).seen

        def waiter(number=number, seen=seen):
            order.append((number, run(store.wait("k", seen, within=2))))

        threads.append(beside(waiter)[0])
        eventually(lambda number=number: blocked(cli) == number + 1)
    for number in range(3):
        run(store.release(grant))
        eventually(lambda number=number: len(order) == number + 1)
        grant = order[-1][1]
    for thread in threads:
        thread.join()
    assert [number for number, _ in order] == [0, 1, 2]
    fences = [baton.fence for _, baton in order]
    assert fences == sorted(set(fences))


def test_a_baton_counts_from_the_refusal(store, cli):
    grant = claim(store)
    seen = claim(store, "w/1", will_wait=True).seen
    thread, got = beside(lambda: run(store.wait("k", seen, within=2)))
    eventually(lambda: blocked(cli))
    run(store.release(grant))
    thread.join()
    (baton,) = got
    assert (baton.now, baton.token) == (seen, run(store.look("k"))[0].token)
    assert seen + baton.ttl == pytest.approx(run(store.ping()) + 1, abs=0.3)
    renewed = run(store.renew(baton, TTL, info={"n": 1}))
    assert (renewed.ttl, run(store.look("k"))[0].info) == (TTL, {"n": 1})


def test_a_baton_that_nobody_took_is_taken_by_the_next_claim(store, cli, space):
    grant = claim(store)
    claim(store, "w/1", will_wait=True)
    run(store.release(grant))
    assert cli.llen(f"{bucket(space)}w:k") == 1
    assert isinstance(claim(store, "b/1"), Grant)
    assert cli.exists(f"{bucket(space)}w:k") == 0


def test_a_dead_waiters_baton_ends_after_a_second(store, cli):
    grant = claim(store)
    claim(store, "w/1", will_wait=True)
    run(store.release(grant))
    (popped,) = [name for name in cli.scan_iter("*w:k", count=1000) if cli.type(name) == "list"]
    cli.lpop(popped)
    assert isinstance(claim(store, "b/1"), Busy)
    began = time.monotonic()
    eventually(lambda: isinstance(claim(store, "b/1"), Grant))
    assert time.monotonic() - began < 1.1


def test_a_mark_that_is_over_makes_no_baton(store, cli, space):
    grant = claim(store)
    claim(store, "w/1", will_wait=True)
    old = cli.get(record(space))
    mark = old.split(" ")[4]
    cli.set(record(space), old.replace(mark, str(int(mark) - 10_000_000)), keepttl=True)
    run(store.release(grant))
    assert run(store.look("k")) == ()
    assert cli.exists(record(space)) == 0


def test_a_wait_ends_in_time_and_leaves_its_connection_to_the_next(store):
    seen = run(store.ping())
    for within in (0.3, 0.05, 0.3):
        began = time.monotonic()
        assert run(store.wait("nobody", seen, within=within)) is None
        assert time.monotonic() - began < within + 0.05
    assert len(store._wire._spare) == 1


def test_a_wait_without_room_or_time_comes_back_at_once(store, cli, monkeypatch):
    monkeypatch.setattr(store._wire, "_room", threading.Semaphore(1))
    seen = run(store.ping())
    thread, _ = beside(lambda: run(store.wait("nobody", seen, within=0.6)))
    eventually(lambda: blocked(cli) == 1)
    began = time.monotonic()
    for within in (2, 0.11, 0):
        assert run(store.wait("nobody", seen, within=within)) is None
    assert time.monotonic() - began < 0.02
    thread.join()


def test_a_wait_is_as_long_as_it_was_asked_for(store, cli, space):
    seen = run(store.ping())
    with cli.monitor() as monitor:
        thread, got = beside(lambda: run(store.wait("nobody", seen, within=20)))
        asked = next(line["command"] for line in monitor.listen() if line["command"].startswith("BLPOP"))
    cli.rpush(f"{bucket(space, 'nobody')}w:nobody", "0 7 baton/7 1763500801001")
    thread.join()
    assert asked.split()[-1] == "19.880"
    assert got[0].fence == 7


def test_ctrl_c_ends_a_wait_and_its_connection(store, cli):
    seen = run(store.ping())

    def strike():
        eventually(lambda: blocked(cli) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    thread, _ = beside(strike)
    with pytest.raises(KeyboardInterrupt):
        run(store.wait("nobody", seen, within=2))
    thread.join()
    eventually(lambda: blocked(cli) == 0)
    assert not store._wire._spare
