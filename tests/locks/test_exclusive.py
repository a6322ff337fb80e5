"""`exclusive`: a function that runs under a lock, with its signature, its values and its errors."""

import asyncio
import gc
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from soloist import AlreadyHeldHere, AsyncSoloist, ConfigError, NotAcquired, Soloist
from tests.locks.conftest import until


def test_an_exclusive_function_runs_under_its_lock_and_keeps_its_value(solo, key):
    @solo.exclusive(key)
    def nightly(a, *, b=2):
        """Every night."""
        assert solo.holder(key) is not None
        return a + b

    assert nightly(1, b=3) == 4
    assert (nightly.__name__, nightly.__doc__) == ("nightly", "Every night.")
    assert str(inspect.signature(nightly)) == "(a, *, b=2)"
    assert solo.holder(key) is None


def test_an_exclusive_function_gives_the_key_back_when_it_raises(solo, key):
    @solo.exclusive(key)
    def fail():
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()
    assert solo.holder(key) is None


def test_an_exclusive_function_raises_while_somebody_else_runs_it(solo, key):
    begun, end = threading.Event(), threading.Event()

    @solo.exclusive(key)
    def nightly():
        begun.set()
        assert end.wait(10)

    with ThreadPoolExecutor(1) as other:
        running = other.submit(nightly)
        assert begun.wait(10)
        with pytest.raises(NotAcquired):
            nightly()
        end.set()
        running.result(10)
    nightly()


def test_an_exclusive_function_that_waits_runs_in_turn(solo, key):
    inside = []

    @solo.exclusive(key, wait=30)
    def step(number):
        inside.append(number)
        assert inside == [number]
        inside.remove(number)
        return number

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(step, range(12))) == list(range(12))


def test_an_exclusive_function_that_calls_itself_is_told_where(local, key):
    @local.exclusive(key)
    def again():
        again()

    with pytest.raises(AlreadyHeldHere) as refused:
        again()
    assert refused.value.line.startswith(f"{__file__}:")


def test_methods_can_be_exclusive(local, key):
    class Report:
        @local.exclusive(key)
        def publish(self, page):
            return self, page

        @staticmethod
        @local.exclusive(f"{key}/static")
        def fixed(page):
            return page

    report = Report()
    assert report.publish(7) == (report, 7)
    assert Report.fixed(8) == 8


def test_a_generator_cannot_be_exclusive(local, key):
    def pages():
        yield 1

    async def later():
        yield 1

    for function in (pages, later):
        with pytest.raises(ConfigError, match=r"take solo\.lock"):
            local.exclusive(key)(function)


def three_at_once(solo, key):
    """Three calls of an exclusive coroutine function, and how often the loop turned meanwhile."""

    @solo.exclusive(key, wait=10)
    async def nightly(a):
        await asyncio.sleep(0.05)
        return a + 1

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        results = await asyncio.gather(nightly(1), nightly(2), nightly(3))
        ticking.cancel()
        return results, ticks

    assert inspect.iscoroutinefunction(nightly)
    return asyncio.run(main())


# The function's own client can't know when its last loop ends, and leaves its connections to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_exclusive_coroutine_function_of_a_blocking_client_never_blocks_the_loop(solo, key):
    results, ticks = three_at_once(solo, key)
    gc.collect()
    assert results == [2, 3, 4]
    assert ticks > 5
    until(lambda: solo.holder(key) is None)  # the last one handed the key on, and nobody was left to take it


def test_an_exclusive_coroutine_function_of_an_asyncio_client(aio, url, key):
    @aio.exclusive(key)
    async def nightly(a):
        assert await aio.holder(key) is not None
        with pytest.raises(NotAcquired):
            await asyncio.create_task(nightly(a))
        return a + 1

    async def main():
        async with aio:
            return await nightly(1)

    assert asyncio.run(main()) == 2
    with Soloist(url) as solo:
        assert solo.holder(key) is None


def test_a_plain_function_cannot_be_exclusive_for_asyncio(key):
    with pytest.raises(ConfigError, match=r"use Soloist\(\.\.\.\)\.exclusive"):
        AsyncSoloist("memory://").exclusive(key)(time.sleep)


def test_wrong_options_are_refused_where_the_function_is_decorated(local, key):
    with pytest.raises(ConfigError, match="wait="):
        local.exclusive(key, timeout=5)
    with pytest.raises(ConfigError, match="a key is a str"):
        local.exclusive(lambda: None)


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_exclusive_stands_below_staticmethod(solo, key, kind):
    with pytest.raises(ConfigError, match=f"put @{kind.__name__} above"):
        solo.exclusive(key)(kind(print))


def test_a_body_that_would_run_after_the_release_is_refused(solo, key):
    async def body():
        raise AssertionError

    with pytest.raises(ConfigError, match="put exclusive on the `async def` itself"):
        solo.exclusive(key)(lambda: body())()  # noqa: PLW0108 - a plain function around a coroutine function
