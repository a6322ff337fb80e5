"""What is particular to asyncio: tasks that are cancelled anywhere, task groups, time limits, and a loop that is never blocked."""

import asyncio
import contextlib
import time

import pytest

from soloist import AlreadyHeldHere, AsyncLock, AsyncSoloist, NotAcquired, Soloist
from soloist.events import ReleaseFailed


async def vacant(aio, key, seconds=5.0):
    """Wait until nobody holds the key."""
    ends = time.monotonic() + seconds
    while await aio.holder(key) is not None:
        assert time.monotonic() < ends, "somebody holds it still"
        await asyncio.sleep(0.01)


async def cancel(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None


def test_a_task_holds_a_key_and_gives_it_back(aio, key):
    async def main():
        async with aio:
            async with aio.lock(key) as hold:
                assert (await aio.holder(key)).fence == hold.fence
                hold.check()
            assert await aio.holder(key) is None
            hold = await aio.lock(key).acquire()
            assert (await hold.release(), await hold.release()) == (True, False)

    asyncio.run(main())


def test_both_faces_exclude_each_other(aio, url, key):
    async def main():
        async with aio, aio.lock(key):
            with Soloist(url) as solo:
                assert solo.lock(key).acquire() is None

    asyncio.run(main())


def test_tasks_on_one_lock_object_take_turns(aio, key):
    async def main():
        lock, inside, fences = aio.lock(key, wait=30), [], []

        async def work():
            async with lock as hold:
                inside.append(1)
                assert len(inside) == 1
                await asyncio.sleep(0.001)
                fences.append(hold.fence)
                inside.pop()

        async with aio, asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(work())
        assert fences == sorted(set(fences))
        assert len(fences) == 20

    asyncio.run(main())


def test_taking_a_key_twice_in_one_task_names_the_line_that_has_it(aio, key):
    async def main():
        async with aio, aio.lock(key):
            with pytest.raises(AlreadyHeldHere) as refused:
                await aio.lock(key, wait=60).acquire()
            assert refused.value.line.startswith(f"{__file__}:")
            assert await asyncio.create_task(aio.lock(key).acquire()) is None  # another task is simply refused

    asyncio.run(main())


def test_a_hold_may_be_released_by_another_task(aio, key):
    async def main():
        async with aio:
            hold = await aio.lock(key).acquire()
            assert await asyncio.create_task(hold.release()) is True
            async with aio.lock(key):
                pass

    asyncio.run(main())


def test_a_failing_task_group_gives_its_keys_back(aio, key):
    async def main():
        held = asyncio.Event()

        async def hold_on():
            async with aio.lock(f"{key}/held"):
                held.set()
                await asyncio.sleep(60)

        async def fail():
            await held.wait()
            async with aio.lock(key):
                raise ZeroDivisionError

        async def group():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(hold_on())
                tasks.create_task(fail())

        async with aio:
            with pytest.raises(ExceptionGroup):
                await group()
            await vacant(aio, key)
            await vacant(aio, f"{key}/held")

    asyncio.run(main())


@pytest.mark.parametrize("wait", [0.2, 60])
def test_a_waiting_task_never_blocks_the_loop(aio, key, wait):
    async def main():
        async with aio, aio.lock(key):
            waiting = asyncio.create_task(aio.lock(key).acquire(wait))
            longest, before = 0.0, time.monotonic()
            for _ in range(30):
                await asyncio.sleep(0.01)
                now = time.monotonic()
                longest, before = max(longest, now - before), now
            await cancel(waiting)
            assert longest < 1.0

    asyncio.run(main())


def test_an_acquire_under_a_time_limit_leaves_nothing_behind(aio, key):
    async def main():
        async with aio:
            hold = await asyncio.create_task(aio.lock(key).acquire())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(aio.lock(key).acquire(60), 0.1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await aio.lock(key).acquire(60)
            await hold.release()
            await vacant(aio, key)

    asyncio.run(main())


def test_an_acquire_that_is_cancelled_anywhere_holds_nobody_up(aio, key):
    async def main():
        async with aio:
            for step in range(40):
                task = asyncio.create_task(aio.lock(key, lease=5).acquire())
                for _ in range(step % 20):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.0002 * (step // 20) * step)
                hold = await cancel(task)
                if hold is not None:
                    await hold.release()
                began = time.monotonic()
                hold = await aio.lock(key, wait=20).acquire()
                assert hold is not None
                assert time.monotonic() - began < 5 + 3  # never longer than the lease, at most
                await hold.release()

    asyncio.run(main())


def test_a_waiter_that_is_cancelled_anywhere_holds_nobody_up(aio, key):
    async def main():
        async with aio:
            for step in range(0, 20, 5):
                hold = await aio.lock(key).acquire(wait=20)
                waiting = asyncio.create_task(aio.lock(key, lease=5).acquire(60))
                await asyncio.sleep(0.02)
                releasing = asyncio.create_task(hold.release())
                for _ in range(step):
                    await asyncio.sleep(0)
                got = await cancel(waiting)
                assert await releasing is True
                if got is not None:
                    await got.release()
                hold = await aio.lock(key, wait=20).acquire()
                assert hold is not None
                await hold.release()

    asyncio.run(main())


def test_a_release_that_is_cancelled_anywhere_holds_nobody_up(aio, events, key):
    async def main():
        async with aio:
            for step in range(20):
                hold = await aio.lock(key, lease=60, wait=20).acquire()
                task = asyncio.create_task(hold.release())
                for _ in range(step):
                    await asyncio.sleep(0)
                await cancel(task)
                if step == 0:  # cancelled before it began
                    await hold.release()
                hold = await aio.lock(key, wait=20).acquire()
                assert hold is not None
                await hold.release()
        assert {event.error for event in events if isinstance(event, ReleaseFailed)} <= {"CancelledError"}

    asyncio.run(main())


def test_a_waiter_is_refused_when_its_time_is_up(aio, key):
    async def main():
        async with aio, aio.lock(key):
            began = time.monotonic()
            assert await asyncio.create_task(aio.lock(key).acquire(0.3)) is None
            assert time.monotonic() - began >= 0.3

            async def enter():
                async with aio.lock(key, wait=0.1):
                    pass

            with pytest.raises(NotAcquired):
                await asyncio.create_task(enter())

    asyncio.run(main())


def test_a_semaphore_lets_so_many_tasks_in(aio, key):
    async def main():
        inside, most = 0, 0

        async def work():
            nonlocal inside, most
            async with aio.semaphore(key, 3, wait=30):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        async with aio:
            await asyncio.gather(*(work() for _ in range(12)))
        assert most == 3

    asyncio.run(main())


def test_holders_and_force_release_work_in_asyncio(aio, key):
    async def main():
        async with aio, aio.lock(f"{key}/a") as hold, aio.semaphore(f"{key}/b", 2):
            assert sorted(holder.key for holder in await aio.holders(f"{key}/")) == [f"{key}/a", f"{key}/b"]
            assert await aio.force_release(f"{key}/a", fence=hold.fence - 1) == ()
            assert len(await aio.force_release(f"{key}/a", fence=hold.fence)) == 1
            assert len(await aio.force_release(f"{key}/b")) == 1

    asyncio.run(main())


def test_extend_works_in_asyncio(aio, key):
    async def main():
        async with aio, aio.lock(key) as hold:
            await hold.extend(600)
            assert (await aio.holder(key)).ttl > 590

    asyncio.run(main())


def test_a_loop_that_ends_closes_the_connections_of_a_client_that_nobody_closed(key):
    closed = []

    async def main():
        solo = AsyncSoloist("memory://")
        await solo.holder(key)
        store = solo._desk().store

        async def close():
            closed.append(True)

        store.close = close

    asyncio.run(main())
    assert closed == [True]


def test_a_key_acquired_while_its_client_is_closed_is_renewed_all_the_same(key):
    async def main():
        solo, begun, go_on = AsyncSoloist("memory://"), asyncio.Event(), asyncio.Event()
        desk = solo._desk()

        async def close():
            begun.set()
            await go_on.wait()

        desk.store.close = close
        closing = asyncio.create_task(solo.close())
        await begun.wait()
        hold = await AsyncLock(lambda: desk, *solo._terms(key, 1, lease=0.3)).acquire()
        go_on.set()
        await closing
        await asyncio.sleep(0.5)
        hold.check()
        await hold.release()

    asyncio.run(main())


def test_a_keeper_that_was_cancelled_goes_on(key):
    """Whoever cancels all tasks of a loop doesn't mean to lose what is held afterwards."""

    async def main():
        solo = AsyncSoloist("memory://")
        hold = await solo.lock(key, lease=0.4).acquire()
        desk = solo._desk()
        desk._start()
        desk._task.cancel()
        await asyncio.wait([desk._task])
        await asyncio.sleep(0.6)
        hold.check()
        await solo.close()

    asyncio.run(main())


def test_a_loss_that_is_seen_after_its_loop_was_closed_raises_nothing(key):
    async def main():
        return await AsyncSoloist("memory://").lock(key, lease=0.05, on_lost=print).acquire()

    hold = asyncio.run(main())
    time.sleep(0.06)
    assert hold.lost == "unknown"
