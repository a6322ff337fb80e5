"""How users call everything, for mypy and pyright in strict mode. Never run.

Where a line is wrong on purpose, both must say so: an ignore that isn't needed is an error itself.
"""

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, assert_type

from soloist import (
    AlreadyHeldHere,
    AsyncHold,
    AsyncLock,
    AsyncSemaphore,
    AsyncSoloist,
    Capabilities,
    ConfigError,
    Hold,
    Holder,
    Lock,
    LockError,
    LockLost,
    MissingExtra,
    NotAcquired,
    OutcomeUnknown,
    Semaphore,
    Soloist,
    SoloistError,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from soloist.contract import Grant, Info, Loss, State
from soloist.events import Acquired, Event, Lost


def hear(event: Event) -> None:
    """A listener."""
    match event:
        case Acquired(key, fence, slot, waited):
            assert_type(key, str)
            assert_type(fence, int | None)
            assert_type(slot, int)
            assert_type(waited, float)
        case Lost(key, _, why):
            assert_type(why, Loss)
        case _:
            pass


def stop(hold: Hold) -> None:
    """A callback of a blocking lock."""
    assert_type(hold.lost, Loss | None)


def stop_plainly(hold: AsyncHold) -> None:
    """A callback of an asyncio lock."""
    assert_type(hold.lost, Loss | None)


async def stop_slowly(hold: AsyncHold) -> None:
    """The same, as a coroutine function."""
    assert_type(hold.lost, Loss | None)


def clients(listeners: Iterable[Callable[[Event], object]]) -> None:
    """Making and closing them."""
    Soloist()
    solo = Soloist("redis://localhost", namespace="staging", store_timeout=1, listeners=[hear, print])
    assert_type(solo.capabilities, Capabilities)
    with Soloist("memory://", listeners=listeners) as entered:
        assert_type(entered, Soloist)
    assert_type(solo.close(), None)
    Soloist(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a store is named by a URL
    Soloist("memory://", "staging")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # options have names


def locks(solo: Soloist) -> None:
    """Locks and holds."""
    lock = solo.lock("report:42")
    assert_type(lock, Lock)
    assert_type(lock.key, str)
    with solo.lock("k", lease=30, wait=math.inf, renew=True, max_hold=3600, min_hold=0.5, on_lost=stop, if_store_down="run") as hold:
        assert_type(hold, Hold)
        assert_type(hold.key, str)
        assert_type(hold.fence, int | None)
        assert_type(hold.check(), None)
        assert_type(hold.degraded, bool)
        assert_type(hold.grant, Grant | None)
        assert_type(hold.extend(60), None)
        assert_type(hold.release(), bool)
    taken = lock.acquire()
    assert_type(taken, Hold | None)
    assert_type(lock.acquire(wait=10), Hold | None)
    assert_type(lock.acquire(10), Hold | None)
    if found := lock.acquire():
        with found as entered:
            assert_type(entered, Hold)
    taken.release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # it may be None
    solo.lock("k", timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the word is lease, or wait
    solo.lock("k", blocking=False)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the word is wait
    lock.acquire(blocking=False)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the word is wait
    solo.lock(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a key is a str
    solo.lock("k", if_store_down="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # raise, or run
    solo.lock("k", on_lost=stop_plainly)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # made for asyncio
    solo.lock("k", lease=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # there is no endless lease


def semaphores(solo: Soloist) -> None:
    """Semaphores take the options of locks."""
    semaphore = solo.semaphore("api:acme", limit=5, wait=10, lease=5, on_lost=stop)
    assert_type(semaphore, Semaphore)
    assert_type(semaphore.acquire(), Hold | None)
    with solo.semaphore("api:acme", 5) as hold:
        assert_type(hold, Hold)
    solo.semaphore("k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # how many?
    solo.semaphore("k", 5, timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # the word is lease, or wait


def functions(solo: Soloist) -> None:
    """A decorated function keeps its signature."""

    @solo.exclusive("nightly", wait=10)
    def nightly(day: int, *, dry: bool = False) -> str:
        return f"{day} {dry}"

    assert_type(nightly(1, dry=True), str)
    nightly("monday")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the function's own argument
    nightly()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # the same

    @solo.exclusive("later")
    async def later(day: int) -> str:
        return str(day)

    call: Coroutine[Any, Any, str] = later(1)
    call.close()

    class Report:
        """Methods, too."""

        @solo.exclusive("publish")
        def publish(self, page: int) -> bytes:
            """A page."""
            return bytes(page)

    assert_type(Report().publish(7), bytes)
    solo.exclusive("k", ttl=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no such option


def operations(solo: Soloist) -> None:
    """Who holds what."""
    for holder in solo.holders("report:"):
        assert_type(holder, Holder)
        assert_type(holder.key, str)
        assert_type(holder.slot, int)
        assert_type(holder.token, str)
        assert_type(holder.fence, int | None)
        assert_type(holder.ttl, float)
        assert_type(holder.info, Info)
        assert_type(holder.state, State)
    assert_type(solo.holders(), list[Holder])
    assert_type(solo.holder("k"), Holder | None)
    assert_type(solo.force_release("k"), tuple[Holder, ...])
    assert_type(solo.force_release("k", fence=7), tuple[Holder, ...])
    solo.force_release("k", fence="7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a number


def errors(solo: Soloist) -> None:
    """One type per decision, facts as attributes."""
    try:
        with solo.lock("k") as hold:
            hold.check()
    except AlreadyHeldHere as here:
        assert_type(here.line, str)
    except NotAcquired as refused:
        assert_type(refused.key, str)
        assert_type(refused.holder, Holder | None)
    except LockLost as lost:
        assert_type(lost.fence, int | None)
        assert_type(lost.since, float)
    except TooLarge as large:
        assert_type(large.size, int)
        assert_type(large.limit, int)
    except (StoreUnavailable, OutcomeUnknown) as down:
        store_error: StoreError = down
        print(store_error)  # noqa: T201 - somebody must use it
    except MissingExtra as missing:
        both: tuple[ConfigError, ImportError] = (missing, missing)
        print(both)  # noqa: T201 - the same
    except (LockError, SoloistError):
        raise


async def asyncio_twins(solo: AsyncSoloist) -> None:
    """The same, awaited."""
    lock = solo.lock("report:42", lease=30, wait=10, on_lost=stop_slowly)
    assert_type(lock, AsyncLock)
    async with lock as hold:
        assert_type(hold, AsyncHold)
        assert_type(hold.fence, int | None)
        assert_type(hold.check(), None)
        assert_type(await hold.extend(60), None)
        assert_type(await hold.release(), bool)
    taken = await lock.acquire(wait=0)
    assert_type(taken, AsyncHold | None)
    semaphore = solo.semaphore("k", limit=2, on_lost=stop_plainly)
    assert_type(semaphore, AsyncSemaphore)
    async with semaphore as slot:
        assert_type(slot, AsyncHold)
    assert_type(await solo.holders("report:"), list[Holder])
    assert_type(await solo.holder("k"), Holder | None)
    assert_type(await solo.force_release("k", fence=7), tuple[Holder, ...])
    async with AsyncSoloist("memory://") as entered:
        assert_type(entered, AsyncSoloist)
    assert_type(await solo.close(), None)

    @solo.exclusive("nightly", lease=5)
    async def nightly(day: int) -> str:
        return str(day)

    assert_type(await nightly(1), str)
    await nightly("monday")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the function's own argument
    with lock:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]  # async with
        pass
    solo.lock("k", on_lost=stop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # made for blocking use
    solo.lock("k", timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the word is lease, or wait


async def a_forgotten_await(solo: AsyncSoloist) -> None:
    """What would look as if it worked is flagged."""
    if solo.lock("k").acquire():  # type: ignore[truthy-bool]  # pyright: ignore[reportUnnecessaryComparison]  # always true
        pass
    waiting: Awaitable[AsyncHold | None] = solo.lock("k").acquire()
    await waiting
