"""What an algorithm may know of the world: time, sleep, chance, and whom to tell. And `run`, which drives one.

A flow is an `async def` that reaches the world only through a `World` and the database only through a `Store`. Blocking
use drives it by `run`: nothing that it awaits ever suspends, so it runs to its end in one go. asyncio awaits it.
The simulator is one more world.

A flow never awaits while it unwinds: what must still be undone it hands to `abandon`, a plain call.
"""

from __future__ import annotations

import os
import random
import sys
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from soloist.errors import StoreUnavailable
from soloist.events import ClockJump, StoreBack, StoreDown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from soloist.errors import StoreError
    from soloist.events import Event

T = TypeVar("T")

boottime: Callable[[], float]
"""Seconds on the clock that goes on while the machine sleeps. Elsewhere than on Linux the monotonic clock, which may stand
still; the jump of wall time is then reported. (A partial of a C function: a third faster than a function around it.)"""
boottime = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic


class World(Protocol):
    """All that a flow may know besides its store."""

    def now(self) -> float:
        """Seconds on this host's clock that goes on while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def token(self) -> str:
        """A new token, `owner/nonce`, that nobody else has."""
        ...

    def chance(self) -> float:
        """A random number from 0 up to 1."""
        ...

    def learn(self, sent: float, server: float) -> None:
        """A reply to a request sent at `sent` brought the server's time. It also says that the store answers."""
        ...

    def server_now(self) -> float | None:
        """The server's time now, never less than it truly is unless it jumped; None before the first reply."""
        ...

    def outage(self) -> StoreError | None:
        """Why the store shouldn't be asked just now, or None."""
        ...

    def failed(self, error: StoreError) -> None:
        """The store can't be reached: for a second nobody asks again."""
        ...

    def abandon(self, key: str, token: str, *, slots: int, not_after: float) -> None:
        """Nobody wants what this token has or may still get: to be evicted at once, and once more when a claim sent with
        this `not_after` (0: none is under way) can't land any more."""
        ...

    def tell(self, event: Event, /) -> None:
        """Something happened that an operator or a metric wants to know."""
        ...


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Drive a flow that never suspends to its end.

    >>> async def answer(): return 42
    >>> run(answer())
    42
    """
    try:
        flow.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration doesn't say of what type its value is
    flow.close()
    raise RuntimeError(
        f"{flow!r} suspended in blocking use: something that it awaits is made for asyncio. "
        "A blocking store's methods must return without ever giving control to an event loop"
    )


def random_token() -> str:
    """A lock's token: 96 random bits, one owner per acquisition."""
    bits = os.urandom(12).hex()
    return f"{bits[:16]}/{bits[16:]}"


class Clock:
    """What this process knows of the server's clock, from the replies that it got.

    A reply that was asked for at `sent` and came at `got` puts the server's clock between `server - got` and `server -
    sent` ahead of ours; more by the `step` in which it is told. The bounds are cut with the former ones, which two drifting
    clocks widen; where that leaves nothing, the server's clock has jumped.
    """

    DRIFT = 0.001
    JUMP = 0.5

    def __init__(self, step: float = 0.0) -> None:
        self._step = step
        self._low = float("-inf")
        self._high = float("inf")
        self._at = 0.0

    def learn(self, sent: float, got: float, server: float) -> float:
        """Take a reply into account; answers by how many seconds the server's clock has jumped, 0 for not at all."""
        slack = self.DRIFT * (got - self._at)
        low, high = server - got, server - sent + self._step
        before_low, before_high = self._low - slack, self._high + slack
        self._at = got
        if low > before_high or high < before_low:
            self._low, self._high = low, high
            jump = low - before_high if low > before_high else high - before_low
            return jump if abs(jump) > self.JUMP else 0.0
        self._low, self._high = max(low, before_low), min(high, before_high)
        return 0.0

    def server(self, now: float) -> float | None:
        """The server's time at most, or None before the first reply."""
        return None if self._at == 0.0 else now + self._high + self.DRIFT * (now - self._at)


class RealWorld(ABC):
    """What the blocking and the asyncio world have in common. Safe for threads: each of its races is harmless."""

    FAST_FAIL = 1.0
    """Seconds for which a store that can't be reached isn't asked again."""

    def __init__(
        self, tell: Callable[[Event], None], abandon: Callable[[float, str, str, int, float], None], clock_step: float = 0.0
    ) -> None:
        self.tell = tell
        self._abandon = abandon
        self._clock = Clock(clock_step)
        self._wall = time.time() - boottime()
        self._down_since = 0.0
        self._ask_again = 0.0
        self._reason = ""

    now = staticmethod(boottime)
    token = staticmethod(random_token)
    chance = staticmethod(random.random)

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """See `World.sleep`."""

    def learn(self, sent: float, server: float) -> None:
        """See `World.learn`."""
        got = boottime()
        if self._down_since:
            down_since, self._down_since, self._ask_again = self._down_since, 0.0, 0.0
            self.tell(StoreBack(got - down_since))
        if jump := self._clock.learn(sent, got, server):
            self.tell(ClockJump("server", jump))
        wall = time.time() - got
        if abs(wall - self._wall) > Clock.JUMP:
            self.tell(ClockJump("client", wall - self._wall))
        self._wall = wall

    def server_now(self) -> float | None:
        """See `World.server_now`."""
        return self._clock.server(boottime())

    def outage(self) -> StoreError | None:
        """See `World.outage`."""
        left = self._ask_again - boottime() if self._ask_again else 0.0
        return StoreUnavailable(f"{self._reason} (not asked again for {left:.1f} s)") if left > 0 else None

    def failed(self, error: StoreError) -> None:
        """See `World.failed`."""
        now = boottime()
        self._ask_again, self._reason = now + self.FAST_FAIL, str(error)
        if not self._down_since:
            self._down_since = now
            self.tell(StoreDown(str(error)))

    def abandon(self, key: str, token: str, *, slots: int, not_after: float) -> None:
        """See `World.abandon`."""
        self._abandon(boottime(), key, token, slots, not_after)


class BlockingWorld(RealWorld):
    """For flows that `run` drives: sleeping blocks the thread."""

    async def sleep(self, seconds: float) -> None:
        """See `World.sleep`."""
        time.sleep(seconds)  # noqa: ASYNC251 - in blocking use, to block is what is asked for


class AsyncioWorld(RealWorld):
    """For flows that a task awaits."""

    async def sleep(self, seconds: float) -> None:
        """See `World.sleep`."""
        import asyncio  # noqa: PLC0415 - only who uses asyncio pays for its import

        await asyncio.sleep(seconds)
