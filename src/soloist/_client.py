"""Soloist and AsyncSoloist: open a store, hand out locks, and show who holds what.

Everything that opens something is put off until it is used, and made anew in a forked child or another event loop.
"""

from __future__ import annotations

import functools
import getpass
import inspect
import math
import os
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast

from soloist import _settings
from soloist._flows import locking
from soloist._flows.locking import Terms
from soloist._keeper import AsyncKeeper, Desk, Keeper
from soloist._lock import AsyncLock, AsyncSemaphore, Lock, Semaphore
from soloist._world import run
from soloist.errors import ConfigError
from soloist.events import CallbackFailed
from soloist.instrumentation import logging
from soloist.stores import open_store

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from soloist._lock import AsyncHold, Hold
    from soloist._settings import IfStoreDown
    from soloist.contract import Capabilities, Holder
    from soloist.events import Event

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H")
D = TypeVar("D", bound=Desk)


class _Shared(TypedDict, total=False):
    lease: float
    wait: float
    renew: bool
    max_hold: float | None
    min_hold: float
    if_store_down: IfStoreDown


class Options(_Shared, total=False):
    """The options of `Soloist.lock`, where all of them are passed on."""

    on_lost: Callable[[Hold], object] | None


class AsyncOptions(_Shared, total=False):
    """The options of `AsyncSoloist.lock`, where all of them are passed on."""

    on_lost: Callable[[AsyncHold], object] | None


class _AnySoloist(Generic[D]):
    """What a client is in both worlds."""

    _aio: bool

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        store_timeout: float = _settings.STORE_TIMEOUT,
        listeners: Iterable[Callable[[Event], object]] = (),
    ) -> None:
        self._url = _settings.url(url)
        self._namespace = _settings.namespace(namespace)
        self._patience = _settings.seconds("store_timeout", store_timeout, above=True, most=_settings.LONGEST_TIMEOUT)
        self._listeners = _settings.callbacks("listeners", listeners)
        self._desks: dict[object, D] = {}
        self._capabilities = open_store(self._url, self._namespace, aio=self._aio).capabilities

    @property
    def capabilities(self) -> Capabilities:
        """What the store gives."""
        return self._capabilities

    def _tell(self, event: Event) -> None:
        for listener in (logging.listen, *self._listeners):
            try:
                listener(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function raises: the others must hear of the event all the same
                logging.listen(CallbackFailed("a listener", repr(error)))

    def _terms(
        self,
        key: str,
        limit: int,
        *,
        lease: float = _settings.LEASE,
        wait: float = 0,
        renew: bool = True,
        max_hold: float | None = None,
        min_hold: float = 0,
        on_lost: Callable[[H], object] | None = None,
        if_store_down: IfStoreDown = "raise",
        **wrong: object,
    ) -> tuple[Terms, float, Callable[[H], object] | None]:
        """A lock's options, checked."""
        _settings.refuse("a lock", wrong)
        longest = math.inf if max_hold is None else _settings.seconds("max_hold", max_hold, above=True)
        terms = Terms(
            key=_settings.key(key),
            lease=_settings.lease("lease", lease, self._capabilities),
            slots=_settings.limit(limit),
            renew=_settings.switch("renew", renew),
            max_hold=longest,
            min_hold=_settings.seconds("min_hold", min_hold),
            if_store_down=_settings.if_store_down(if_store_down),
            patience=self._patience,
        )
        if terms.min_hold > min(longest, self._capabilities.longest_ttl):
            raise ConfigError(f"min_hold={min_hold:g} is longer than max_hold={longest:g} or than the store's longest lease: shorten it")
        return terms, _settings.seconds("wait", wait, endless=True), _settings.callback("on_lost", on_lost, aio=self._aio)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url.partition(':')[0]}:// namespace={self._namespace!r}>"


class Soloist(_AnySoloist[Keeper]):
    """Locks and semaphores on a store, for blocking code. Cheap to make; keep one per process.

        solo = Soloist("sqlite:///soloist.db")
        with solo.lock("report:42", lease=30, wait=10) as hold:
            publish(report, fence=hold.fence)

    Threads may share it, and a forked child may go on using it.

    Args:
        url: The store; without it, the environment variable SOLOIST_URL.
        namespace: Keeps two applications on one server apart.
        store_timeout: Seconds that the store may take to answer a request, attempts included.
        listeners: Functions that hear of each event (`soloist.events`); they must return quickly.

    Raises:
        ConfigError: No URL, or one that no store knows; MissingExtra if its client library isn't installed.
    """

    _aio = False

    def lock(
        self,
        key: str,
        *,
        lease: float = _settings.LEASE,
        wait: float = 0,
        renew: bool = True,
        max_hold: float | None = None,
        min_hold: float = 0,
        on_lost: Callable[[Hold], object] | None = None,
        if_store_down: IfStoreDown = "raise",
        **wrong: Never,
    ) -> Lock:
        """A lock on `key`, shared by every process that uses this store. Nothing is sent until you enter it.

            with solo.lock("report:42") as hold:
                publish(report, fence=hold.fence)

        Args:
            key: What is guarded.
            lease: Seconds that the hold outlives this process if it dies. Renewed while it lives.
            wait: Seconds to wait for the key; 0 asks once, `math.inf` waits for ever.
            renew: False makes the lease a hard limit.
            max_hold: Seconds after which it is renewed no more, so that a hung holder can't keep the key for ever.
            min_hold: Seconds that the key stays taken at least, even if it is released sooner.
            on_lost: Called with the hold, once, in another thread, when it is no longer ours.
            if_store_down: `"raise"`, or `"run"`: work without protection while the store can't be asked.
            wrong: Words of other libraries, refused with a sentence that names ours.

        Raises:
            ConfigError: An option that can't work. What entering it raises: NotAcquired, with `.holder`, and StoreError.
        """
        return Lock(
            self._desk,
            *self._terms(
                key,
                1,
                lease=lease,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                min_hold=min_hold,
                on_lost=on_lost,
                if_store_down=if_store_down,
                **wrong,
            ),
        )

    def semaphore(self, key: str, limit: int, **options: Unpack[Options]) -> Semaphore:
        """Up to `limit` holds of `key` at once. Takes the options of `lock`.

        with solo.semaphore("api:acme", limit=5, wait=10):
            call_the_api()
        """
        return Semaphore(self._desk, *self._terms(key, limit, **options))

    def exclusive(self, key: str, **options: Unpack[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function runs under a lock on `key`, and raises NotAcquired while somebody else has it.

            @solo.exclusive("nightly")
            def nightly(): ...

        Takes the options of `lock`. A coroutine function gets a lock that never blocks its event loop; `on_lost` is then
        called with an `AsyncHold`.
        """
        lock = Lock(self._desk, *self._terms(key, 1, **options))

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                return cast("Callable[P, R]", self._twin.exclusive(key, **cast("AsyncOptions", options))(function))

            @functools.wraps(_whole(function))
            def held(*args: P.args, **kwargs: P.kwargs) -> R:
                with lock:
                    return _done(function(*args, **kwargs))

            return held

        return decorate

    @functools.cached_property
    def _twin(self) -> AsyncSoloist:
        """For coroutine functions. Its connections end with the event loops that they are made in."""
        return AsyncSoloist(self._url, namespace=self._namespace, store_timeout=self._patience, listeners=self._listeners)

    def holders(self, prefix: str = "") -> list[Holder]:
        """Who holds keys that begin with `prefix`."""
        desk = self._desk()
        return run(locking.listed(desk.world, desk.store, _settings.prefix(prefix), within=self._patience))

    def holder(self, key: str) -> Holder | None:
        """Who holds `key`, or None. Of a semaphore, the one in the lowest slot."""
        desk = self._desk()
        return next(iter(run(locking.find(desk.world, desk.store, _settings.key(key), within=self._patience))), None)

    def force_release(self, key: str, fence: int | None = None) -> tuple[Holder, ...]:
        """Take the key away from whoever holds it, a semaphore's from all; answers whom it was taken from.

        The holder learns of it at its next renewal. With `fence`, only the hold with that very fence is taken away.
        """
        desk, fence = self._desk(), _settings.fence(fence)
        return run(locking.force(desk.world, desk.store, _settings.key(key), fence, _operator(desk), within=self._patience))

    def close(self) -> None:
        """End the renewals and close the connections. What is still held ends with its lease."""
        desk = self._desks.pop(os.getpid(), None)
        if desk is not None:
            desk.close()

    def _desk(self) -> Keeper:
        desk = self._desks.get(os.getpid())
        if desk is not None and desk.forked:  # an ancestor's, whose pid came round again
            self._desks.pop(os.getpid(), None)
            desk = None
        if desk is None:
            # Two threads may get here at once: setdefault lets one of the two desks win, and the other was never used.
            made = Keeper(open_store(self._url, self._namespace, aio=False), self._tell, self._patience)
            desk = self._desks.setdefault(os.getpid(), made)
        return desk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncSoloist(_AnySoloist[AsyncKeeper]):
    """Locks and semaphores on a store, for asyncio. Cheap to make; keep one per process.

        solo = AsyncSoloist("sqlite:///soloist.db")
        async with solo.lock("report:42", lease=30, wait=10) as hold:
            await publish(report, fence=hold.fence)

    Each event loop that uses it gets connections of its own.

    Args:
        url: The store; without it, the environment variable SOLOIST_URL.
        namespace: Keeps two applications on one server apart.
        store_timeout: Seconds that the store may take to answer a request, attempts included.
        listeners: Functions that hear of each event (`soloist.events`); they must return quickly.

    Raises:
        ConfigError: No URL, or one that no store knows; MissingExtra if its client library isn't installed.
    """

    _aio = True

    def lock(
        self,
        key: str,
        *,
        lease: float = _settings.LEASE,
        wait: float = 0,
        renew: bool = True,
        max_hold: float | None = None,
        min_hold: float = 0,
        on_lost: Callable[[AsyncHold], object] | None = None,
        if_store_down: IfStoreDown = "raise",
        **wrong: Never,
    ) -> AsyncLock:
        """A lock on `key`, shared by every process that uses this store. Nothing is sent until you enter it.

            async with solo.lock("report:42") as hold:
                await publish(report, fence=hold.fence)

        The options are those of `Soloist.lock`; `on_lost` is called in the event loop, and may be a coroutine function.
        """
        return AsyncLock(
            self._desk,
            *self._terms(
                key,
                1,
                lease=lease,
                wait=wait,
                renew=renew,
                max_hold=max_hold,
                min_hold=min_hold,
                on_lost=on_lost,
                if_store_down=if_store_down,
                **wrong,
            ),
        )

    def semaphore(self, key: str, limit: int, **options: Unpack[AsyncOptions]) -> AsyncSemaphore:
        """Up to `limit` holds of `key` at once. Takes the options of `lock`.

        async with solo.semaphore("api:acme", limit=5, wait=10):
            await call_the_api()
        """
        return AsyncSemaphore(self._desk, *self._terms(key, limit, **options))

    def exclusive(self, key: str, **options: Unpack[AsyncOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the coroutine function runs under a lock on `key`, and raises NotAcquired while somebody else has it.

            @solo.exclusive("nightly")
            async def nightly(): ...

        Takes the options of `lock`. A plain function is refused: waiting for its lock would block the event loop.
        """
        lock = AsyncLock(self._desk, *self._terms(key, 1, **options))

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            _whole(function)
            if not inspect.iscoroutinefunction(function):
                raise ConfigError(f"{function!r} isn't a coroutine function: use Soloist(...).exclusive for it, or make it `async def`")

            @functools.wraps(function)
            async def held(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with lock:
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", held)

        return decorate

    async def holders(self, prefix: str = "") -> list[Holder]:
        """Who holds keys that begin with `prefix`."""
        desk = self._desk()
        return await locking.listed(desk.world, desk.store, _settings.prefix(prefix), within=self._patience)

    async def holder(self, key: str) -> Holder | None:
        """Who holds `key`, or None. Of a semaphore, the one in the lowest slot."""
        desk = self._desk()
        return next(iter(await locking.find(desk.world, desk.store, _settings.key(key), within=self._patience)), None)

    async def force_release(self, key: str, fence: int | None = None) -> tuple[Holder, ...]:
        """Take the key away from whoever holds it, a semaphore's from all; answers whom it was taken from.

        The holder learns of it at its next renewal. With `fence`, only the hold with that very fence is taken away.
        """
        desk, fence = self._desk(), _settings.fence(fence)
        return await locking.force(desk.world, desk.store, _settings.key(key), fence, _operator(desk), within=self._patience)

    async def close(self) -> None:
        """End the renewals and close the connections. What is still held ends with its lease."""
        desk = self._desks.pop(_running_loop(), None)
        if desk is not None:
            await desk.close()

    def _desk(self) -> AsyncKeeper:
        loop = _running_loop()
        desk = self._desks.get(loop)
        if desk is None:
            for ended in [known for known in self._desks if cast("asyncio.AbstractEventLoop", known).is_closed()]:
                del self._desks[ended]
            desk = self._desks[loop] = AsyncKeeper(open_store(self._url, self._namespace, aio=True), self._tell, self._patience)
        return desk

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _running_loop() -> asyncio.AbstractEventLoop:
    import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

    return asyncio.get_running_loop()


def _whole(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose work is done when it returns; a generator's only begins then."""
    if isinstance(cast("object", function), (staticmethod, classmethod)):
        raise ConfigError(f"put @{type(function).__name__} above @exclusive, not below it: it isn't a function yet")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function!r} is a generator, and its body runs after the call has returned: take solo.lock(...) inside it")
    return function


def _done(result: R) -> R:
    """A result, not a body that would only run after the lock was released."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        raise ConfigError(
            "the exclusive function returned a coroutine or generator, whose body runs after the call: "
            "put exclusive on the `async def` itself"
        )
    return result


def _operator(desk: Desk) -> str:
    """Who frees a key by force, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = str(os.getuid())
    return f"{user} on {desk.info['host']} (pid {desk.info['pid']})"
