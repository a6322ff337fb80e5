"""A store that answers what its script says, and a world whose time passes only when somebody sleeps or an answer takes long."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from types import coroutine
from typing import Any, NamedTuple

from soloist._world import RealWorld
from soloist.contract import Busy, Grant, Holder, Last, Line, Store
from soloist.errors import OutcomeUnknown, StoreUnavailable
from soloist.stores.memory import CAPABILITIES

SILENT = OutcomeUnknown("no answer")
UNREACHABLE = StoreUnavailable("connection refused")
PULLING = replace(CAPABILITIES, push="", poll=0.1)


def grant(token="mine", *, key="k", ttl=30.0, now=1000.0, fence=7, slot=0, last: Last | None = None):  # noqa: S107 - a token guards nothing here
    return Grant(key, token, fence, None, slot, ttl, now, last)


def holder(token="theirs", *, key="k", ttl=30.0, fence=5, slot=0, **info: str | float):  # noqa: S107 - the same
    return Holder(key, slot, token, fence, ttl, "running", {"pid": 1} | info)


def busy(*holders, seen=5.0, now=1000.0):
    return Busy(holders or (holder(),), seen, now)


class Call(NamedTuple):
    """One request, as the store saw it: `call.ttl`, `call["ttl"]`."""

    verb: str
    at: float
    arguments: dict[str, Any]

    def __getattr__(self, name):
        return self.arguments[name]


class Scripted(Store):
    """Each verb gives its answers in order: a value, an error to raise, or a function of the call. Nothing else is expected.

    With `suspends` each verb gives control away once before it answers, as in asyncio.
    """

    def __init__(self, world: ScriptedWorld, *, suspends=False, capabilities=CAPABILITIES, **script: list):
        self.world = world
        self.suspends = suspends
        self.capabilities = capabilities
        self.script = script
        self.calls: list[Call] = []

    def of(self, verb: str) -> list[Call]:
        return [call for call in self.calls if call.verb == verb]

    async def _answer(self, verb: str, /, **arguments):
        call = Call(verb, self.world.time, arguments)
        self.calls.append(call)
        assert self.script.get(verb), f"nobody expected {call}"
        answer = self.script[verb].pop(0)
        if self.suspends:
            await suspension()
        answer = answer(call) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise copy(answer)
        return answer

    async def claim(self, key, token, ttl, **options):
        return await self._answer("claim", key=key, token=token, ttl=ttl, **options)

    async def renew(self, grant, ttl, **options):
        return await self._answer("renew", grant=grant, ttl=ttl, **options)

    async def release(self, grant, keep=0, last=None, **options):
        return await self._answer("release", grant=grant, keep=keep, last=last, **options)

    async def evict(self, key, token, **options):
        return await self._answer("evict", key=key, token=token, **options)

    async def look(self, key, **options):
        return await self._answer("look", key=key, **options)

    async def listing(self, prefix, cursor=None, limit=100, **options):
        return await self._answer("listing", prefix=prefix, cursor=cursor, limit=limit, **options)

    async def wait(self, key, seen, **options):
        return await self._answer("wait", key=key, seen=seen, **options)

    async def ping(self, **options):
        return await self._answer("ping", **options)

    async def batch(self, lines: list[Line], **options):
        return await self._answer("batch", lines=tuple(lines), **options)


class ScriptedWorld:
    """A world of one process. `server` is the server's time now, None while it isn't known."""

    def __init__(self, now=100.0, *, server: float | None = 1000.0, tokens=("mine",), chance=0.5, suspends=False):
        self.time = now
        self.ahead = None if server is None else server - now
        self.tokens = list(tokens)
        self.luck = chance
        self.suspends = suspends
        self.told: list[Any] = []
        self.abandoned: list[tuple[str, str, int, float]] = []
        self.failures: list[Exception] = []
        self.naps: list[float] = []
        self.down: StoreUnavailable | None = None

    def now(self):
        return self.time

    async def sleep(self, seconds):
        assert seconds >= 0
        if self.suspends:
            await suspension()
        self.naps.append(seconds)
        self.time += seconds

    def token(self):
        return self.tokens.pop(0)

    def chance(self):
        return self.luck

    def learn(self, sent, server):
        assert sent <= self.time
        if self.ahead is None:
            self.ahead = server - sent
        self.down = None

    def server_now(self):
        return None if self.ahead is None else self.time + self.ahead

    def outage(self):
        return self.down

    def failed(self, error):
        self.failures.append(error)
        self.down = StoreUnavailable(f"{error} (not asked again)")

    def abandon(self, key, token, *, slots, not_after):
        self.abandoned.append((key, token, slots, not_after))

    def tell(self, event):
        self.told.append(event)

    def after(self, seconds: float, answer):
        """An answer that comes only after so many seconds."""

        def slow(call: Call):
            self.time += seconds
            return answer(call) if callable(answer) else answer

        return slow

    def never(self, call: Call):
        """No answer, for as long as the request may take."""
        self.time += call.within
        return SILENT

    def unreachable(self, call: Call):
        """No connection, for as long as the request may take."""
        self.time += call.within
        return UNREACHABLE


@coroutine
def suspension():
    yield


class Interrupted(BaseException):
    """A cancellation, a KeyboardInterrupt, a soft time limit."""


def interrupted(flow, at: int) -> bool:
    """Interrupt a flow where it gives control away for the n-th time; False if it never came there.

    It must end at once: whatever it awaited while it unwinds would show as one more suspension.
    """
    with suppress(StopIteration, Exception):
        for _ in range(at):
            flow.send(None)
        try:
            flow.throw(Interrupted())
        except Interrupted:
            return True
        raise AssertionError(f"{flow!r} awaited while it unwound") from None
    return False


def at_every_step(make, judge) -> int:
    """Interrupt `make()`'s flow at its first step, at its second, …; `judge(step)` after each. Answers how many steps there were."""
    step = 1
    while interrupted(make(), step):
        judge(step)
        step += 1
    return step - 1


class QuietWorld(RealWorld):
    """What both real worlds share, hearing what it tells."""

    def __init__(self):
        self.told: list[Any] = []
        self.handed_over: list[Any] = []
        super().__init__(self.told.append, lambda *what: self.handed_over.append(what))

    async def sleep(self, seconds):
        raise AssertionError("nothing here sleeps")
