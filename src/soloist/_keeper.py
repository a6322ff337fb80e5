"""The keepers: a thread for blocking use, a timer for asyncio, each renewing every hold of its client in this process.

What is done, and when, is decided in `_flows/renewing.py`; here are the thread, the timer and the waking. A keeper is woken
only for what is due before it would wake by itself, since waking one with each acquire would cost a third of it.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import math
import os
import socket
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from soloist._flows.renewing import Book, settle, tend
from soloist._world import AsyncioWorld, BlockingWorld, RealWorld, boottime, run
from soloist.events import CallbackFailed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from soloist._flows.renewing import Kept
    from soloist.contract import Info, Store
    from soloist.events import Event

log = logging.getLogger("soloist")

T = TypeVar("T")

PACE = 10.0
"""Seconds between two looks of a keeper that has nothing to do; less where leases are short."""

IDLE = 60.0
"""Seconds after which a keeper with nothing to do ends; the next hold starts a new one."""

AFTER_BUG = 0.2
"""Seconds that a keeper pauses after an error that it doesn't know: what was due is due still, and it must not spin."""

LAST_WORDS = 1.0
"""Seconds that the interpreter's exit may wait for an abandoned token to be evicted."""


class SourceLine(NamedTuple):
    """A line of somebody's code, put into words only when it is asked for."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class Desk:
    """What one client has in one process, or in one event loop: its store, what it holds, and who here holds it."""

    def __init__(self, store: Store, patience: float) -> None:
        self.store = store
        self.book = Book()
        self.info: Info = {"host": socket.gethostname(), "pid": os.getpid()}
        self.here: dict[tuple[object, str], tuple[Kept, SourceLine]] = {}
        """By thread or task and key: the hold, and the line that took it."""
        self.forked = False
        self._patience = patience
        _DESKS.add(self)

    world: RealWorld

    def remove(self, kept: Kept) -> None:
        """Renew this no more."""
        self.book.remove(kept)

    def _guarded(self, function: Callable[[T], object], argument: T) -> object:
        """Call a user's function; if it raises, that is told, and harms nobody else."""
        try:
            return function(argument)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function raises
            self.world.tell(CallbackFailed("on_lost", repr(error)))
            return None


class Keeper(Desk):
    """One client's thread in one process."""

    def __init__(self, store: Store, tell: Callable[[Event], None], patience: float) -> None:
        super().__init__(store, patience)
        self.world = BlockingWorld(tell, self.abandon, store.capabilities.clock_step)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        self._pace = PACE
        self._closed = False

    def add(self, kept: Kept) -> None:
        """Stay the holder of this from now on."""
        self.book.add(kept)
        self._pace = min(self._pace, kept.lease / 3)
        if kept.due < self._wakes_at:
            self._wake()

    def abandon(self, now: float, key: str, token: str, slots: int, not_after: float) -> None:
        """Evict what nobody wants any more."""
        self.book.abandon(now, key, token, slots, not_after)
        self._wake()

    def call(self, function: Callable[[T], object], argument: T) -> None:
        """Call a user's function in a thread of its own: it may take its time, and the renewals must not wait."""
        threading.Thread(target=self._guarded, args=(function, argument), name="soloist-on-lost", daemon=True).start()

    def close(self) -> None:
        """End the thread, after a last attempt to evict what was abandoned, and close the store. Nothing is renewed any more,
        but for what is only being acquired now."""
        with self._changed:
            self.book.leave()
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._patience)
        self.flush()
        run(self.store.close())

    def flush(self) -> None:
        """Send what can't wait any longer, as far as that can be done in a second."""
        if self.book.is_unsettled:
            run(settle(self.world, self.store, self.book, patience=LAST_WORDS))

    def _wake(self) -> None:
        with self._changed:
            if self._thread is None:
                self._closed, self._thread = False, threading.Thread(target=self._work, name="soloist-keeper", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # while the interpreter ends, `flush` has the last word
                    self._thread = None
                    if threading.main_thread().is_alive():
                        log.error("%s, so nothing is renewed: allow this process more threads", error)  # noqa: TRY400 - no bug of ours
            self._changed.notify()

    def _work(self) -> None:
        idle_since = boottime()
        while True:
            self._wakes_at, pause = -math.inf, 0.0  # awake: whoever adds something now needn't wake us
            try:
                run(tend(self.world, self.store, self.book, patience=self._patience))
            except BaseException:  # a keeper never dies, not of a listener's sys.exit() either: all holds depend on it
                log.exception("the keeper met an error that it doesn't know; it goes on")
                pause = AFTER_BUG
            with self._changed:
                self._wakes_at = math.inf  # before looking, so that what is added meanwhile wakes us
                now, due = boottime(), self.book.due()
                if due < math.inf:
                    idle_since = now
                if self._closed or now - idle_since > IDLE:
                    self._thread = None
                    return
                self._wakes_at = max(min(due, now + self._pace), now + pause)
                self._pace = PACE if due == math.inf else self._pace
                self._changed.wait(max(0.0, self._wakes_at - now))


class AsyncKeeper(Desk):
    """One client's timer in one event loop. A task runs only while something is due."""

    def __init__(self, store: Store, tell: Callable[[Event], None], patience: float) -> None:
        super().__init__(store, patience)
        import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

        self.loop = asyncio.get_running_loop()
        self.world = AsyncioWorld(tell, self.abandon, store.capabilities.clock_step)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._wakes_at = math.inf
        self._calls: set[asyncio.Task[object]] = set()
        self._closed = False
        self._life = self._until_the_loop_ends()
        with suppress(StopIteration):  # as far as its `yield`
            self._life.asend(None).send(None)

    def add(self, kept: Kept) -> None:
        """Stay the holder of this from now on."""
        self.book.add(kept)
        if kept.due < self._wakes_at:
            self._set(kept.due)

    def abandon(self, now: float, key: str, token: str, slots: int, not_after: float) -> None:
        """Evict what nobody wants any more."""
        self.book.abandon(now, key, token, slots, not_after)
        if now < self._wakes_at:
            self._set(now)

    def call(self, function: Callable[[T], object], argument: T) -> None:
        """Call a user's function in the loop; a coroutine function's work goes on as a task."""
        try:
            self.loop.call_soon_threadsafe(self._begin, function, argument)
        except RuntimeError as error:  # the loop is closed
            self.world.tell(CallbackFailed("on_lost", repr(error)))

    def _begin(self, function: Callable[[T], object], argument: T) -> None:
        work = self._guarded(function, argument)
        if inspect.iscoroutine(work):
            task = self.loop.create_task(work)
            self._calls.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.tell(CallbackFailed("on_lost", repr(error)))

    async def close(self) -> None:
        """End the timer, after a last attempt to evict what was abandoned, and close the store. Nothing is renewed any more,
        but for what is only being acquired now."""
        await self._life.aclose()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """An event loop that ends well closes its generators, and so the connections of a client that nobody closed."""
        import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

        try:
            yield
        finally:
            if self._timer:
                self._timer.cancel()
            self.book.leave()
            self._closed, self._wakes_at = True, -math.inf
            if self._task:
                await asyncio.wait([self._task])
            await settle(self.world, self.store, self.book, patience=LAST_WORDS)
            await self.store.close()
            self._closed, self._wakes_at = False, math.inf
            if (due := self.book.due()) < math.inf:
                self._set(due)

    def _set(self, due: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._wakes_at = due
        self._timer = self.loop.call_later(max(0.0, due - boottime()), self._start)

    def _start(self) -> None:
        self._timer, self._wakes_at = None, -math.inf
        self._task = self.loop.create_task(self._work())

    async def _work(self) -> None:
        pause = 0.0
        try:
            await tend(self.world, self.store, self.book, patience=self._patience)
        except Exception:  # a keeper never dies: every hold of this process depends on it
            log.exception("the keeper met an error that it doesn't know; it goes on")
            pause = AFTER_BUG
        finally:  # cancelled, too: whoever cancels all tasks of a loop doesn't mean to lose what is held afterwards
            self._task = None
            if not self._closed:
                self._wakes_at, due = math.inf, self.book.due()
                if due < math.inf:
                    self._set(max(due, boottime() + pause))


def _last_words() -> None:
    for desk in list(_DESKS):
        if isinstance(desk, Keeper):
            try:
                desk.flush()
            except Exception:  # the interpreter ends: nobody is left to hear of it but the log
                log.debug("not evicted at exit", exc_info=True)


def _after_fork_in_child() -> None:
    """What the parent holds is the parent's: its thread isn't here, and its connections are not ours to use."""
    for desk in list(_DESKS):
        desk.forked = True
    _DESKS.clear()


_DESKS: weakref.WeakSet[Desk] = weakref.WeakSet()
atexit.register(_last_words)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
