"""Lock, Semaphore and Hold, and their asyncio twins beside them, method beside method; each calls one flow.

A lock is a wish: it can be used again and again, by any thread or task, each of which gets a `Hold` of its own.
Only a hold is renewed, checked and released.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Generic, Never, Self, TypeVar

from soloist import _settings
from soloist._flows import locking
from soloist._flows.renewing import overdue
from soloist._keeper import AsyncKeeper, Keeper, SourceLine
from soloist._world import boottime, run
from soloist.errors import AlreadyHeldHere, ConfigError, LockLost, NotAcquired, StoreError
from soloist.events import Dropped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from soloist._flows.locking import Terms
    from soloist._flows.renewing import Kept
    from soloist.contract import Grant, Info, Loss

D = TypeVar("D", Keeper, AsyncKeeper)


class _AnyHold(Generic[D]):
    """What a hold is in both worlds: all that needs no request."""

    _released = True
    """So it is until it is made: an interrupted constructor leaves nothing to let go of."""

    def __init__(self, desk: D, terms: Terms, kept: Kept, owner: object) -> None:
        self._desk: D = desk
        self._terms = terms
        self._kept = kept
        self._owner = owner
        self._released = False

    @property
    def key(self) -> str:
        """What is held."""
        return self._kept.key

    @property
    def fence(self) -> int | None:
        """A number that grows with every new hold of this key: pass it to whatever you write to, and let that refuse
        smaller ones. None where the store gives none, and for a run without protection."""
        return self._kept.fence

    @property
    def grant(self) -> Grant | None:
        """The hold as a value that can travel to another process; None for a run without protection."""
        return self._kept.grant

    @property
    def degraded(self) -> bool:
        """True while this runs without protection, since the store was down (`if_store_down="run"`)."""
        return self._kept.grant is None

    @property
    def lost(self) -> Loss | None:
        """Why it isn't ours any more, or None while it is. Asks nobody: it reads this host's clock."""
        if self._released or self._desk.forked:
            return self._kept.place.lost
        return overdue(self._desk.world, self._kept)

    def check(self) -> None:
        """Go on if the key is still ours, else raise. Asks nobody, so call it as often as you like.

        Raises:
            LockLost: It isn't ours any more; `.why` says what is known. Also after its release, and in a forked child.
        """
        lost = self.lost
        why = "forked" if self._desk.forked else lost or ("released" if self._released else None)
        if why is not None:
            raise LockLost(self.key, fence=self.fence, why=why, since=max(0.0, boottime() - self._kept.place.deadline))

    def _leave(self) -> bool:
        """Let the keeper and the list of who holds what here go of it; False if there is nothing to release."""
        if self._released or self._desk.forked:
            return False
        self._desk.remove(self._kept)
        here = self._desk.here.get((self._owner, self.key))
        if here is not None and here[0] is self._kept:  # lost, it may have been taken anew
            del self._desk.here[self._owner, self.key]
        self._released = True  # last: whoever is interrupted before it has let go, at least
        return True

    def __del__(self) -> None:
        """Nobody can release it any more: it is renewed no longer, and ends with its lease. No request is sent here."""
        if self._released or sys.is_finalizing():  # a process that ends needn't be told that its holds do
            return
        if self._leave() and self._kept.place.lost is None:
            self._desk.world.tell(Dropped(self.key, self.fence))

    def __repr__(self) -> str:
        state = "released" if self._released else self.lost or ("degraded" if self.degraded else "held")
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {state}>"


class Hold(_AnyHold[Keeper]):
    """A key that is ours, until it is released or lost. Renewed by a thread of this process while somebody has this object.

    It may be released by another thread than the one that took it.
    """

    def release(self) -> bool:
        """Give the key back; False if it wasn't ours any more, or was released before.

        Raises:
            StoreError: The store didn't confirm it. It is tried again in the background, and the lease ends by itself.
        """
        return self._leave() and run(locking.give_back(self._desk.world, self._desk.store, self._terms, self._kept))

    def extend(self, seconds: float) -> None:
        """Let the lease end so many seconds from now at the earliest. It is never brought nearer, and doesn't add up.

        Raises:
            LockLost: It isn't ours any more.
            StoreError: The store didn't confirm it; the hold stands as it stood, or longer.
        """
        self.check()
        found = _settings.lease("seconds", seconds, self._desk.store.capabilities)
        run(locking.extend(self._desk.world, self._desk.store, self._terms, self._kept, found))
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:  # noqa: SIM105 - `suppress` would cost more than all else here
            self.release()
        except (StoreError, ConfigError):
            pass  # told, and left to the keeper: the work is done, and must not look as if it had failed


class AsyncHold(_AnyHold[AsyncKeeper]):
    """A key that is ours, until it is released or lost. Renewed by a timer of this event loop while somebody has this object.

    It may be released by another task than the one that took it.
    """

    async def release(self) -> bool:
        """Give the key back; False if it wasn't ours any more, or was released before.

        Raises:
            StoreError: The store didn't confirm it. It is tried again in the background, and the lease ends by itself.
        """
        return self._leave() and await locking.give_back(self._desk.world, self._desk.store, self._terms, self._kept)

    async def extend(self, seconds: float) -> None:
        """Let the lease end so many seconds from now at the earliest. It is never brought nearer, and doesn't add up.

        Raises:
            LockLost: It isn't ours any more.
            StoreError: The store didn't confirm it; the hold stands as it stood, or longer.
        """
        self.check()
        found = _settings.lease("seconds", seconds, self._desk.store.capabilities)
        await locking.extend(self._desk.world, self._desk.store, self._terms, self._kept, found)
        self.check()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:  # noqa: SIM105 - `suppress` would cost more than all else here
            await self.release()
        except (StoreError, ConfigError):
            pass  # told, and left to the keeper: the work is done, and must not look as if it had failed


H = TypeVar("H", Hold, AsyncHold)

HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - compared with the names that code objects bear, on each acquire


class _AnyLock(Generic[D, H]):
    """What a lock is in both worlds."""

    _counts = False
    """A semaphore, which one thread may hold several times."""

    def __init__(self, desk: Callable[[], D], terms: Terms, wait: float, on_lost: Callable[[H], object] | None) -> None:
        self._desk: Callable[[], D] = desk
        self._terms = terms
        self._wait = wait
        self._on_lost: Callable[[H], object] | None = on_lost
        self._entered: list[tuple[int, object, H]] = []
        """The open `with` blocks: the frame that entered, the thread or task, and the hold."""

    @property
    def key(self) -> str:
        """What is guarded."""
        return self._terms.key

    def _seconds(self, wait: float | None, wrong: dict[str, Never]) -> float:
        _settings.refuse("acquire()", wrong)
        return self._wait if wait is None else _settings.seconds("wait", wait, endless=True)

    def _info(self, desk: D) -> Info:
        info = {**desk.info, "since": int(time.time())}
        if self._counts:
            info["limit"] = self._terms.slots
        return info

    def _look_here(self, desk: D, owner: object) -> None:
        """Refuse to wait for ourselves. Locks only: a semaphore's slots are for several."""
        found = None if self._counts else desk.here.get((owner, self.key))
        if found is not None and found[0].place.lost is None and boottime() < found[0].place.deadline:
            raise AlreadyHeldHere(self.key, str(found[1]))

    def _note_here(self, desk: D, owner: object, kept: Kept, hold: H) -> None:
        if not self._counts:
            desk.here[owner, self.key] = (kept, _line())
        if self._on_lost is not None:
            call, theirs = weakref.ref(hold), self._on_lost  # weak: only the user keeps a hold alive

            def lost(_: Loss) -> None:
                if (found := call()) is not None:
                    desk.call(theirs, found)

            kept.on_lost = lost

    def _enter(self, frame: int, owner: object, hold: H) -> H:
        self._entered.append((frame, owner, hold))
        return hold

    def _left(self, frame: int, owner: object) -> H:
        """The hold of the `with` block that ends: the one that this very frame entered last, since generators end in any
        order and in any thread. An ExitStack leaves by another frame than it enters: then this owner's last one, or the last."""
        mine = [entry for entry in self._entered if entry[0] == frame] or [entry for entry in self._entered if entry[1] is owner]
        entry = (mine or self._entered)[-1]
        self._entered.remove(entry)
        return entry[2]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} lease={self._terms.lease:g} wait={self._wait:g}>"


class Lock(_AnyLock[Keeper, Hold]):
    """A lock on a key, shared by every process that uses the same store. Nothing is sent until it is acquired.

        with solo.lock("report:42", lease=30, wait=10) as hold:
            publish(report, fence=hold.fence)

    Made by `Soloist.lock`, which explains the options.
    """

    def acquire(self, wait: float | None = None, **wrong: Never) -> Hold | None:
        """A hold, or None if somebody else has the key.

        Args:
            wait: Seconds to wait for it; 0 asks once, `math.inf` waits for ever, None is the lock's own.
            wrong: Words of other libraries, refused with a sentence that names ours.

        Raises:
            AlreadyHeldHere: This very thread holds it, so waiting would never end.
            StoreError: The store gave no answer that counts.
        """
        try:
            return self._take(self._seconds(wait, wrong))
        except AlreadyHeldHere:
            raise
        except NotAcquired:
            return None

    def _take(self, wait: float) -> Hold:
        desk, owner = self._desk(), threading.current_thread()
        self._look_here(desk, owner)
        kept = run(locking.acquire(desk.world, desk.store, self._terms, self._info(desk), wait))
        hold = Hold(desk, self._terms, kept, owner)
        self._note_here(desk, owner, kept, hold)
        desk.add(kept)
        return hold

    def __enter__(self) -> Hold:
        return self._enter(id(sys._getframe(1)), threading.current_thread(), self._take(self._wait))  # noqa: SLF001 - documented

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        hold = self._left(id(sys._getframe(1)), threading.current_thread())  # noqa: SLF001 - documented
        hold.__exit__(kind, error, trace)


class AsyncLock(_AnyLock[AsyncKeeper, AsyncHold]):
    """A lock on a key, shared by every process that uses the same store. Nothing is sent until it is acquired.

        async with solo.lock("report:42", lease=30, wait=10) as hold:
            await publish(report, fence=hold.fence)

    Made by `AsyncSoloist.lock`, which explains the options.
    """

    async def acquire(self, wait: float | None = None, **wrong: Never) -> AsyncHold | None:
        """A hold, or None if somebody else has the key.

        Args:
            wait: Seconds to wait for it; 0 asks once, `math.inf` waits for ever, None is the lock's own.
            wrong: Words of other libraries, refused with a sentence that names ours.

        Raises:
            AlreadyHeldHere: This very task holds it, so waiting would never end.
            StoreError: The store gave no answer that counts.
        """
        try:
            return await self._take(self._seconds(wait, wrong))
        except AlreadyHeldHere:
            raise
        except NotAcquired:
            return None

    async def _take(self, wait: float) -> AsyncHold:
        desk, owner = self._desk(), _this_task()
        self._look_here(desk, owner)
        kept = await locking.acquire(desk.world, desk.store, self._terms, self._info(desk), wait)
        hold = AsyncHold(desk, self._terms, kept, owner)
        self._note_here(desk, owner, kept, hold)
        desk.add(kept)
        return hold

    async def __aenter__(self) -> AsyncHold:
        frame = id(sys._getframe(1))  # noqa: SLF001 - documented; before anything suspends, or it would be the event loop's
        return self._enter(frame, _this_task(), await self._take(self._wait))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        hold = self._left(id(sys._getframe(1)), _this_task())  # noqa: SLF001 - documented
        await hold.__aexit__(kind, error, trace)


class Semaphore(Lock):
    """Up to `limit` holds of a key at once, each with a lease and a fence of its own. Made by `Soloist.semaphore`."""

    _counts = True


class AsyncSemaphore(AsyncLock):
    """Up to `limit` holds of a key at once, each with a lease and a fence of its own. Made by `AsyncSoloist.semaphore`."""

    _counts = True


def _this_task() -> object:
    import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

    return asyncio.current_task()


def _line() -> SourceLine:
    """The line outside this package that is being run."""
    frame = sys._getframe(1)  # noqa: SLF001 - documented, and the only way without walking the whole stack
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)
