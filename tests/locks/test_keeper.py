"""The keeper: it renews while somebody has the hold, tells what is lost, survives everything, and ends when it is idle."""

import asyncio
import gc
import logging
import threading
import time

import pytest

from soloist import AsyncSoloist, Soloist, _keeper
from soloist._world import run
from soloist.contract import Evict, Renew
from soloist.errors import OutcomeUnknown
from soloist.events import Lost
from tests.locks.conftest import until, until_in_loop


def desk(solo):
    return solo._desk()


def keeper_threads():
    return [thread for thread in threading.enumerate() if thread.name == "soloist-keeper"]


def renewals(hold, times=1):
    """Wait until a hold was renewed so often."""
    for _ in range(times):
        before = hold._kept.place.deadline
        until(lambda before=before: hold._kept.place.deadline > before)


async def renewals_in_loop(hold, times=1):
    """The same, without blocking the loop."""
    for _ in range(times):
        before = hold._kept.place.deadline
        await until_in_loop(lambda before=before: hold._kept.place.deadline > before)


def test_a_short_lease_is_kept_alive(solo, key):
    with solo.lock(key, lease=1) as hold:
        fence = hold.fence
        renewals(hold)
        hold.check()
        assert solo.holder(key).fence == fence


def test_a_hold_outlives_its_first_lease(local, key):
    with local.lock(key, lease=1) as hold:
        time.sleep(1.3)
        hold.check()
        assert local.holder(key).fence == hold.fence


def test_a_short_lease_is_kept_alive_in_asyncio(aio, key):
    async def main():
        async with aio, aio.lock(key, lease=1) as hold:
            fence = hold.fence
            await renewals_in_loop(hold, 2)
            hold.check()
            assert (await aio.holder(key)).fence == fence

    asyncio.run(main())


def test_a_hold_that_somebody_took_away_is_lost_at_its_next_renewal(solo, events, key):
    with solo.lock(key, lease=0.3) as hold:
        solo.force_release(key)
        until(lambda: hold.lost)
        assert hold.lost == "vanished"
    assert [event for event in events if isinstance(event, Lost)] == [Lost(key, hold.fence, "vanished")]


def test_a_hold_that_another_has_now_is_lost_as_taken(solo, url, events, key):
    hold = solo.lock(key, lease=1.5).acquire()
    solo.force_release(key)
    with Soloist(url) as other, other.lock(key, wait=5):
        until(lambda: hold.lost)
    assert (hold.lost, hold.release()) == ("taken", False)
    assert [event for event in events if isinstance(event, Lost)] == [Lost(key, hold.fence, "taken")]


def test_a_hold_is_lost_as_unknown_when_the_store_falls_silent(local, events, key, monkeypatch):
    hold = local.lock(key, lease=0.3).acquire()

    async def silent(lines, *, within):
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(desk(local).store, "batch", silent)
    until(lambda: hold.lost)
    assert hold.lost == "unknown"
    assert [event for event in events if isinstance(event, Lost)] == [Lost(key, hold.fence, "unknown")]


def test_a_hold_that_is_not_renewed_is_told_as_lost_without_being_asked(local, events, key):
    hold = local.lock(key, lease=0.2, renew=False).acquire()
    until(lambda: Lost(key, hold.fence, "unknown") in events)


def batches_of(client, monkeypatch):
    """What the keeper sends from now on."""
    sent, store = [], desk(client).store
    original = store.batch

    async def recorded(lines, *, within):
        sent.append(tuple(lines))
        return await original(lines, within=within)

    monkeypatch.setattr(store, "batch", recorded)
    return sent


def test_all_holds_of_a_process_are_renewed_in_one_batch(local, key, monkeypatch):
    sent = batches_of(local, monkeypatch)
    holds = [local.lock(f"{key}/{n}", lease=0.9).acquire() for n in range(20)]
    until(lambda: sent)
    assert {line.grant.key for line in sent[0] if isinstance(line, Renew)} == {hold.key for hold in holds}


def test_a_keeper_survives_whatever_its_store_raises(local, key, monkeypatch, caplog):
    hold = local.lock(key, lease=1.2).acquire()
    store = desk(local).store
    original, raised = store.batch, []

    async def broken(lines, *, within):
        if not raised:
            raised.append(True)
            raise ZeroDivisionError("a bug")
        return await original(lines, within=within)

    monkeypatch.setattr(store, "batch", broken)
    until(lambda: raised)
    renewals(hold)
    assert "it goes on" in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), OutcomeUnknown("no answer")])
def test_a_keeper_whose_store_fails_at_once_does_not_spin(local, key, monkeypatch, caplog, error):
    hold, asked = local.lock(key, lease=1.5).acquire(), []

    async def broken(lines, *, within):
        asked.append(time.monotonic())
        raise error

    monkeypatch.setattr(desk(local).store, "batch", broken)
    until(lambda: asked)
    time.sleep(0.4)
    assert len(asked) <= 3
    assert hold.lost is None


def test_a_keeper_is_woken_only_for_what_is_due_before_it_would_wake(local, key, monkeypatch):
    first = local.lock(f"{key}/first", lease=6).acquire()
    keeper, wakes = desk(local), []
    until(lambda: keeper._wakes_at > 0)
    original = keeper._wake
    monkeypatch.setattr(keeper, "_wake", lambda: (wakes.append(True), original()))
    for n in range(10):
        local.lock(f"{key}/{n}", lease=6).acquire().release()
    assert wakes == []
    with local.lock(f"{key}/short", lease=1) as short:
        assert wakes == [True]
        renewals(short)
    first.release()


def test_a_keeper_ends_when_it_is_idle_and_begins_anew(local, key, monkeypatch):
    monkeypatch.setattr(_keeper, "IDLE", 0.05)
    monkeypatch.setattr(_keeper, "PACE", 0.02)
    with local.lock(key, lease=1) as hold:
        thread = desk(local)._thread
        renewals(hold)
        assert thread.is_alive()
    until(lambda: not thread.is_alive())
    with local.lock(key, lease=1) as hold:
        renewals(hold)


def test_nothing_is_started_before_something_is_held(local, key):
    before = len(keeper_threads())
    local.lock(key)
    local.holder(key)
    assert len(keeper_threads()) == before


def test_a_closed_client_has_no_thread(tmp_path, key):
    solo = Soloist(f"memory://{tmp_path.name}")
    hold = solo.lock(key, lease=30).acquire()
    thread = desk(solo)._thread
    assert thread.is_alive()
    solo.close()
    assert not thread.is_alive()
    hold.release()


def test_what_is_abandoned_is_evicted_at_once(local, key):
    run(desk(local).store.claim(key, "ghost/1", 60, info={}))
    desk(local).world.abandon(key, "ghost/1", slots=1, not_after=0)
    until(lambda: local.holder(key) is None, seconds=5)


def test_closing_evicts_what_was_abandoned(tmp_path, key, monkeypatch):
    solo = Soloist(f"memory://{tmp_path.name}")
    solo.lock(f"{key}/first").acquire().release()
    hold, keeper = solo.lock(key).acquire(), desk(solo)
    monkeypatch.setattr(keeper, "_wake", lambda: None)  # the thread doesn't hear of it
    keeper.abandon(0.0, key, hold.grant.token, 1, 0)
    solo.close()
    with Soloist(f"memory://{tmp_path.name}") as other:
        assert other.holder(key) is None


def test_closing_with_a_silent_store_takes_no_longer_than_a_second_or_so(tmp_path, key, monkeypatch):
    solo = Soloist(f"memory://{tmp_path.name}", store_timeout=0.2)
    solo.lock(key).acquire().release()
    keeper, evictions = desk(solo), []

    async def silent(lines, *, within):
        evictions.extend(line for line in lines if isinstance(line, Evict))
        time.sleep(within)  # noqa: ASYNC251 - a blocking store
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(keeper.store, "batch", silent)
    for n in range(20):
        keeper.book.abandon(0.0, f"{key}/{n}", f"token/{n}", 1, 0)
    began = time.monotonic()
    solo.close()
    assert time.monotonic() - began < 5
    assert len(evictions) >= 20


def test_a_hold_that_is_dropped_is_renewed_no_more(local, key):
    hold = local.lock(key, lease=0.5).acquire()
    del hold
    gc.collect()
    until(lambda: local.holder(key) is None)


def test_a_lock_that_is_entered_and_forgotten_by_its_thread_stays_held(local, key):
    """Whoever leaves a `with` block open keeps the key: the lock itself has the hold."""
    lock = local.lock(key, lease=1)
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    gc.collect()
    before = local.holder(key)
    until(lambda: local.holder(key).ttl > before.ttl)
    lock.__exit__(None, None, None)
    assert local.holder(key) is None


def test_a_thread_that_dies_with_its_hold_leaves_the_key_for_one_lease(local, key):
    def die():
        hold = local.lock(key, lease=0.4).acquire()
        hold.check()

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    until(lambda: local.holder(key) is None)


def test_one_asyncio_client_serves_one_loop_after_another(aio, key):
    async def main():
        async with aio.lock(key, lease=1) as hold:
            await renewals_in_loop(hold)
        await aio.close()

    asyncio.run(main())
    asyncio.run(main())


def test_one_asyncio_client_serves_a_loop_that_ended_without_closing_it(local, key, tmp_path):
    aio = AsyncSoloist(f"memory://{tmp_path.name}")

    async def main():
        async with aio.lock(key, lease=1) as hold:
            await renewals_in_loop(hold)

    for _ in range(3):
        asyncio.run(main())
    assert len(aio._desks) == 1


def test_one_asyncio_client_serves_two_loops_in_two_threads(aio, key):
    inside, fences = [], []

    async def work():
        for _ in range(10):
            async with aio.lock(key, wait=30) as hold:
                inside.append(1)
                assert len(inside) == 1
                await asyncio.sleep(0)
                fences.append(hold.fence)
                inside.pop()
        await aio.close()

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fences) == 20
    assert fences == sorted(set(fences))


def test_a_closed_asyncio_client_renews_no_more(tmp_path, key, monkeypatch):
    async def main():
        aio = AsyncSoloist(f"memory://{tmp_path.name}")
        hold = await aio.lock(key, lease=0.3).acquire()
        sent = batches_of(aio, monkeypatch)
        await until_in_loop(lambda: sent)
        await aio.close()
        sent.clear()
        await asyncio.sleep(0.4)
        assert sent == []
        assert hold.lost == "unknown"

    asyncio.run(main())


def test_an_asyncio_client_that_is_closed_while_it_renews_renews_no_more(tmp_path, key, monkeypatch):
    async def main():
        aio = AsyncSoloist(f"memory://{tmp_path.name}")
        hold = await aio.lock(key, lease=2).acquire()
        store, sent = aio._desk().store, []
        original = store.batch

        async def slow(lines, *, within):
            sent.append(lines)
            await asyncio.sleep(0.05)
            return await original(lines, within=within)

        monkeypatch.setattr(store, "batch", slow)
        await until_in_loop(lambda: sent)
        await aio.close()
        sent.clear()
        await asyncio.sleep(0.8)
        assert sent == []
        hold.check()

    asyncio.run(main())


def test_on_lost_in_asyncio_is_called_in_the_loop_and_may_be_a_coroutine_function(aio, key):
    async def main():
        seen = []

        async def told(hold):
            await asyncio.sleep(0)
            seen.append((hold, asyncio.current_task() is not None))

        def plainly(hold):
            seen.append((hold, asyncio.get_running_loop() is not None))

        async with aio, aio.lock(key, lease=1, on_lost=told) as one, aio.lock(f"{key}/2", lease=1, on_lost=plainly) as two:
            await aio.force_release(key)
            await aio.force_release(f"{key}/2")
            await until_in_loop(lambda: len(seen) == 2)
        assert {hold for hold, _ in seen} == {one, two}
        assert all(in_loop for _, in_loop in seen)

    asyncio.run(main())


def test_an_on_lost_coroutine_that_raises_is_told(tmp_path, key, caplog):
    async def main():
        async def told(hold):
            raise ValueError("no")

        async with AsyncSoloist(f"memory://{tmp_path.name}") as aio, aio.lock(key, lease=0.2, on_lost=told):
            await aio.force_release(key)
            await until_in_loop(lambda: "on_lost raised ValueError('no')" in caplog.text)

    with caplog.at_level(logging.WARNING, logger="soloist"):
        asyncio.run(main())
