"""The network between a simulated process and its server.

1. What happens to a request is drawn when it is sent: lost, late (after its sender gave up), delivered twice, slow, refused;
   its answer lost, or the connection broken while the request goes on.
2. A process that is cut off, or whose server is down, is refused, or hears nothing.
3. A request that nothing befalls, and during which nothing else happens, suspends nobody (rule 2 of the timeline).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from soloist.contract import Evict, Grant, Look, Release, Renew
from soloist.errors import OutcomeUnknown, StoreError, StoreUnavailable
from soloist.stores.memory import CAPABILITIES
from soloist.testing._simulation.requests import Batch, Claim, Ping, answered, said
from soloist.testing._simulation.server import NEVER, SERVED, Link, Port
from soloist.testing._simulation.timeline import park

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soloist.contract import Capabilities, Claimed, Holder, Info, Last, Opaque, Page, Renewed, State, Verdict
    from soloist.contract import Line as Asked
    from soloist.testing._simulation.server import Server
    from soloist.testing._simulation.timeline import Task, Timeline

HANGS = 0.3
"""Seconds that a client gives a blocked request beyond its time."""

PING = Ping()

LATER: Any = None
"""The answer that isn't there yet."""

fast: Callable[..., Any] = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - of any tuple
"""Makes a named tuple in a third of the time that its class takes."""

LOST, LATE, ANSWER_LOST, TWICE, SLOW, REFUSED, BROKEN = range(7)
TROUBLE = ("lost", "late", "answer lost", "delivered twice", "slow", "refused", "connection broken")
"""What may happen to a request, and its words."""

CHANCES = (LOST, LATE, ANSWER_LOST, TWICE, SLOW, REFUSED, BROKEN, BROKEN)
"""How often each: what was sent over a connection that broke may land while its sender has long gone on."""


class DeadError(BaseException):
    """A process that is dead asked for something: its flow does I/O while it unwinds."""


class SimStore(Port):
    """What one process reaches the server by."""

    capabilities = CAPABILITIES

    def __init__(self, timeline: Timeline, server: Server, capabilities: Capabilities) -> None:
        super().__init__(timeline, server)
        self.capabilities = capabilities
        self.unknown: dict[str, int] = {}
        """By token, how many renewals in a row failed."""
        self.evicted: dict[str, int] = {}

    def ask(self, asked: object, within: float) -> Any:
        """Send a request. Answers LATER if the caller has to park for the answer; otherwise time went on meanwhile (rule 3)."""
        timeline, server = self.timeline, self.server
        server.asked = number = server.asked + 1
        if number == server.struck_at:
            server.strike(self.process)
        chance = timeline.random()
        task = timeline.task
        now = task.sent = timeline.now
        if chance < self.weather:
            self._trouble(asked, within, task)
            return LATER
        out = server.latency * (1.5 - chance)
        back = server.latency * (0.5 + timeline.random())
        heap = timeline.heap
        arrives = now + out
        replies = arrives + back
        if (heap and heap[0][0] <= arrives) or replies > now + within:
            timeline.at(arrives, server.land, asked, (task, task.turn, back, now + within))
            return LATER
        timeline.now = arrives
        answer = SERVED[type(asked)](server, arrives * server.rate + server.offset, asked)
        if timeline.trace is not None:
            timeline.say(f"server    {said(asked)} -> {answered(answer)}")
        if heap and heap[0][0] <= replies:
            timeline.at(replies, timeline.resume, task, (task.turn, answer))
            return LATER
        timeline.now = replies
        return answer

    def _trouble(self, asked: object, within: float, task: Task) -> None:
        """Something happens to a request (rules 1 and 2)."""
        if self.process.dead:
            raise DeadError
        timeline, server = self.timeline, self.server
        timeline.faults += 1
        now, random, at = timeline.now, timeline.random, timeline.at
        gives_up = now + within
        kind = CHANCES[int(random() * len(CHANCES))]
        if self.weather == NEVER:
            kind = REFUSED if kind <= REFUSED else LOST
        error: StoreError = OutcomeUnknown("no answer in time")
        soon = now + server.latency * (0.5 + random())
        if timeline.trace is not None:
            timeline.say(f"{self.process.name:9} TROUBLE {TROUBLE[kind]}: {said(asked)}")
        if kind == LATE:
            at(gives_up + 12 * random() ** 3, server.drift_in, asked, gives_up)
        elif kind == ANSWER_LOST:
            at(min(soon, gives_up), server.drift_in, asked, gives_up)
        elif kind == TWICE:
            timeline.see("a request was delivered twice")
            at(soon, server.land, asked, (task, task.turn, server.latency, gives_up))
            at(soon + 5 * random() ** 4, server.again, asked, gives_up)
            return
        elif kind == SLOW:
            at(now + within * random(), server.land, asked, (task, task.turn, within * random() * 0.7, gives_up))
            return
        elif kind == REFUSED:
            error, gives_up = StoreUnavailable("connection refused"), soon
        elif kind == BROKEN:  # early, and what was sent may still arrive
            gives_up = now + within / 2 * random()
            at(gives_up + within * random() ** 2, server.drift_in, asked, now + within)
        at(gives_up, timeline.resume, task, (task.turn, error))

    async def claim(
        self,
        key: str,
        token: str,
        ttl: float,
        *,
        info: Info,
        state: State = "running",
        expect: str | None = None,
        not_after: float | None = None,
        slots: int = 1,
        will_wait: bool = False,
        within: float = 3,
    ) -> Claimed:
        """See `Store.claim`."""
        asked = fast(Claim, (key, token, ttl, info, state, expect, not_after, slots, will_wait))
        answer: Claimed = self.ask(asked, within)
        task = self.timeline.task
        if answer is LATER:
            try:
                answer = await park()
            except StoreError:
                self.given.setdefault(token, task.sent)
                raise
        if type(answer) is Grant:
            self.given.setdefault(token, task.sent)
            if answer.ttl != ttl:
                self.timeline.see("an own token was answered as it stands")
        return answer

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        answer: Renewed = self.ask(Renew(grant, ttl, state, info), within)
        if answer is LATER:
            answer = await park()
        if info is not None and isinstance(answer, Grant):  # a baton, of which nothing else may ever be heard
            at = self.server.settled[grant.token]
            self.timeline.history.append(self.server.landing("renew", answer, at, at, new=False, twice=False))
        return answer

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        answer: bool = self.ask(fast(Release, (grant, keep, last)), within)
        if answer is LATER:
            answer = await park()
        return answer

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        answer: bool = self.ask(Evict(key, token, slots), within)
        if answer is LATER:
            answer = await park()
        self._note_evicted(token)
        return answer

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        answer: tuple[Holder, ...] = self.ask(Look(key, slots), within)
        if answer is LATER:
            answer = await park()
        return answer

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`. Answered at once: nobody here decides by it."""
        return self.server.model.listing(self.server.now(), prefix, cursor, limit)

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        answer: float = self.ask(PING, within)
        if answer is LATER:
            answer = await park()
        return answer

    async def batch(self, lines: Sequence[Asked], *, within: float = 3) -> tuple[Verdict, ...]:
        """See `Store.batch`: in one trip."""
        try:
            answer: tuple[Verdict, ...] = self.ask(Batch(tuple(lines)), within)
            if answer is LATER:
                answer = await park()
        except StoreError:
            self._note_failed(lines)
            raise
        for line, verdict in zip(lines, answer, strict=True):
            if isinstance(line, Evict):
                self._note_evicted(line.token)
            elif isinstance(verdict, Grant) and self.unknown.pop(verdict.token, 0):
                self.timeline.see("a renewal was unknown and then succeeded")
        return answer

    def _note_failed(self, lines: Sequence[Asked]) -> None:
        for line in lines:
            if isinstance(line, Renew):
                token = line.grant.token
                self.unknown[token] = self.unknown.get(token, 0) + 1
                self.timeline.history.append({"at": self.timeline.now, "what": "unrenewed", "token": token})

    def _note_evicted(self, token: str) -> None:
        times = self.evicted[token] = self.evicted.get(token, 0) + 1
        if times == 2:  # noqa: PLR2004 - twice
            self.timeline.see("an abandoned token was evicted twice")

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """See `Store.wait`."""
        timeline, server = self.timeline, self.server
        task = timeline.task
        assert isinstance(seen, float)
        server.asked += 1
        if server.asked == server.struck_at:
            server.strike(self.process)
        now = timeline.now
        self.link = link = Link(self, task, key, seen, now + within + HANGS)
        if timeline.random() < self.weather:
            timeline.faults += 1
            refused = timeline.random() < 0.5  # noqa: PLR2004 - as often as not
            when, error = (now + server.latency, StoreUnavailable("refused")) if refused else (link.gives_up, OutcomeUnknown("no answer"))
            timeline.at(when, timeline.resume, task, (task.turn, error))
        else:
            timeline.at(now + server.latency * (0.5 + timeline.random()), server.queue, link, within)
        try:
            got: Grant | None = await park()
        except BaseException:
            if not self.process.dead:  # what the server hears of a dead one is its death's matter
                timeline.at(timeline.now + server.latency, server.hang_up, link)
            raise
        finally:
            link.open = False
            self.link = None
        return got
