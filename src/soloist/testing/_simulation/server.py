"""The simulated server and the network before it.

1. The server is the model of `stores/memory.py`, on a clock of its own that drifts, and that somebody may set.
2. A request travels, takes effect when it arrives, and its answer travels back. What happens to it is drawn when it is
   sent: lost, late (after its sender gave up), delivered twice, slow, refused; its answer lost or late.
3. A request that was delivered while nobody waits for its answer is noted as `landed`.
4. A waiter is a connection with a ticket in the model's queue. A baton that is handed to it travels, too: to a dead, a
   stopped or a departed waiter, and runs out there.
5. The process that reaches the server while it is down is refused, or hears nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from soloist.contract import Evict, Gone, Grant, Late, Look, Release, Renew, Store
from soloist.errors import OutcomeUnknown, StoreError, StoreUnavailable
from soloist.stores.memory import CAPABILITIES, Baton, Model, Ticket
from soloist.testing._simulation.timeline import park

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soloist.contract import Capabilities, Claimed, Holder, Info, Last, Opaque, Page, Renewed, State, Verdict
    from soloist.contract import Line as Asked
    from soloist.testing._simulation.timeline import Lives, Task, Timeline

NEVER = 2.0
"""A weather in which each request meets trouble."""

HANGS = 0.3
"""Seconds that a client gives a blocked request beyond its time."""


class DeadError(BaseException):
    """A process that is dead asked for something: its flow does I/O while it unwinds."""


class Claim(NamedTuple):
    """The arguments of `claim`."""

    key: str
    token: str
    ttl: float
    info: Info
    state: State
    expect: str | None
    not_after: float | None
    slots: int
    will_wait: bool


class Ping(NamedTuple):
    """The server's time is asked for."""


class Batch(NamedTuple):
    """Several lines in one trip."""

    lines: tuple[Asked, ...]


def _claim(model: Model, now: float, one: Claim) -> Claimed:
    key, token, ttl, info, state, expect, not_after, slots, will_wait = one
    return model.claim(
        now, key, token, ttl, info=info, state=state, expect=expect, not_after=not_after, slots=slots, will_wait=will_wait
    )


def _renew(model: Model, now: float, one: Renew) -> Renewed:
    return model.renew(now, one.grant, one.ttl, state=one.state, info=one.info)


def _release(model: Model, now: float, one: Release) -> bool:
    return model.release(now, one.grant, one.keep, one.last)


def _evict(model: Model, now: float, one: Evict) -> bool:
    return model.evict(now, one.key, one.token, slots=one.slots)


def _look(model: Model, now: float, one: Look) -> tuple[Holder, ...]:
    return model.look(now, one.key, slots=one.slots)


def _ping(model: Model, now: float, one: Ping) -> float:
    return now


def _batch(model: Model, now: float, one: Batch) -> tuple[object, ...]:
    return tuple([SERVED[type(line)](model, now, line) for line in one.lines])


SERVED: dict[type, Callable[[Model, float, Any], object]] = {
    Claim: _claim,
    Renew: _renew,
    Release: _release,
    Evict: _evict,
    Look: _look,
    Ping: _ping,
    Batch: _batch,
}


class Trip(NamedTuple):
    """Who waits for an answer, how long the way back is, and when they give up."""

    task: Task
    turn: int
    back: float
    gives_up: float


class Link:
    """A waiter's connection."""

    __slots__ = ("gives_up", "key", "open", "seen", "served", "task", "ticket", "turn")

    def __init__(self, task: Task, key: str, seen: float, gives_up: float) -> None:
        self.task = task
        self.turn = task.turn
        self.key = key
        self.seen = seen
        self.gives_up = gives_up
        self.ticket: Ticket | None = None
        self.open = True
        self.served = False


class Server:
    """The model, its clock, and who is connected."""

    def __init__(self, timeline: Timeline, weather: float, latency: float) -> None:
        self.timeline = timeline
        self.weather = weather
        self.latency = latency
        self.rate = 1.0 + (timeline.random() - 0.5) * 0.001
        self.offset = 4000 * timeline.random()
        self.model = Model(self._baton)
        self.down = False
        self.asked = 0
        self.struck_at = -1
        """The request at which the next fault strikes."""
        self.strike: Callable[[Lives], None] = lambda _: None
        self.stores: list[SimStore] = []
        self.links: list[Link] = []
        self.batons = 0

    def now(self) -> float:
        """What the server's clock reads."""
        return self.timeline.now * self.rate + self.offset

    def _baton(self) -> str:
        self.batons += 1
        return f"baton/{self.batons}"

    def crash(self, until: float, model: Model) -> None:
        """Be down until then, and come back with this model; whoever is connected is cut off."""
        self.down = True
        for store in self.stores:
            store.weather = NEVER
        self.timeline.history.append({"at": self.timeline.now, "what": "stalled", "until": until})
        self.timeline.at(until, self._recover, model)
        for link in self.links:
            if not link.served:
                link.served = True
                self.timeline.at(self.timeline.now + self.latency, self.timeline.resume, link.task, (link.turn, OutcomeUnknown("reset")))
        self.links.clear()

    def _recover(self, model: Model, _: object) -> None:
        self.timeline.say("server is up")
        self.model = model
        self.down = False
        for store in self.stores:
            store.weather = NEVER if store.cut else self.weather

    def land(self, asked: object, trip: Trip | None) -> object:
        """A request arrives. Nobody waits for the answer if there is no trip."""
        timeline = self.timeline
        answer: object
        if self.down:
            answer = OutcomeUnknown("the connection was reset")
        else:
            answer = SERVED[type(asked)](self.model, timeline.now * self.rate + self.offset, asked)
            if timeline.trace is not None:
                timeline.say(f"server  {asked} -> {answer}")
        if trip is not None:
            task, turn, back, gives_up = trip
            when = timeline.now + back
            if when > gives_up:
                self._landed(asked, answer, gives_up)
                when, answer = max(gives_up, timeline.now), OutcomeUnknown("no answer in time")
            timeline.at(when, timeline.resume, task, (turn, answer))
        return answer

    def drift_in(self, asked: object, by: float) -> None:
        """A request arrives whose sender gave up at `by`, or won't hear the answer."""
        self._landed(asked, self.land(asked, None), by)

    def _landed(self, asked: object, answer: object, by: float) -> None:
        timeline = self.timeline
        if isinstance(asked, Batch):
            if isinstance(answer, tuple):
                for line, verdict in zip(asked.lines, answer, strict=True):
                    self._landed(line, verdict, by)
            return
        if isinstance(asked, Claim):
            if isinstance(answer, Late):
                timeline.see("a late claim was refused by its not_after")
            if not isinstance(answer, Grant):
                return
            new = answer.ttl == asked.ttl
            if new:
                timeline.see("a claim landed and its reply was lost")
            timeline.history.append(
                {
                    "at": timeline.now,
                    "what": "landed",
                    "verb": "claim",
                    "key": asked.key,
                    "token": asked.token,
                    "ttl": answer.ttl,
                    "by": by,
                    "new": new,
                }
            )
        elif isinstance(asked, Renew) and isinstance(answer, Grant):
            timeline.history.append(
                {
                    "at": timeline.now,
                    "what": "landed",
                    "verb": "renew",
                    "key": asked.grant.key,
                    "token": asked.grant.token,
                    "ttl": answer.ttl,
                    "by": by,
                    "new": False,
                }
            )

    def queue(self, link: Link, within: float) -> None:
        """A waiter's request arrives."""
        timeline = self.timeline
        if not link.open:
            return
        if self.down:
            timeline.at(timeline.now + self.latency, timeline.resume, link.task, (link.turn, OutcomeUnknown("reset")))
            return
        link.ticket = Ticket(lambda baton: self._give(link, baton))
        if not self.model.enter(self.now(), link.key, link.ticket):
            self.links.append(link)
            timeline.at(timeline.now + within + 0.09 * timeline.random(), self._nothing, link)

    def hang_up(self, link: Link, _: object) -> None:
        """A waiter's connection is closed, and the server notices."""
        if link.ticket is not None and not link.served:
            link.served = True
            self.model.leave(link.key, link.ticket)

    def _nothing(self, link: Link, _: object) -> None:
        if not link.served:
            self.hang_up(link, None)
            self._answer(link, None)

    def _give(self, link: Link, baton: Baton) -> None:
        link.served = True
        timeline, process = self.timeline, link.task.process
        if process.dead:
            timeline.see("a baton was handed to a dead waiter")
        elif process.awake_at > timeline.now:
            timeline.see("a baton was handed to a stopped waiter")
        self._answer(link, baton)

    def _answer(self, link: Link, baton: Baton | None) -> None:
        timeline = self.timeline
        if timeline.random() < self.weather:
            timeline.faults += 1
            if baton is not None:
                timeline.see("a baton was lost on its way")
            timeline.at(max(link.gives_up, timeline.now), timeline.resume, link.task, (link.turn, OutcomeUnknown("no answer in time")))
        else:
            timeline.at(timeline.now + self.latency * (0.5 + timeline.random()), self._deliver, link, (baton, timeline.now))

    def _deliver(self, link: Link, brought: tuple[Baton | None, float]) -> None:
        baton, given = brought
        timeline = self.timeline
        if baton is None:
            timeline.resume(link.task, (link.turn, None))
            return
        if not link.open:
            timeline.see("a baton met a closed connection")
            return
        store = next(store for store in self.stores if store.process is link.task.process)
        store.given[baton.token] = given
        timeline.see("a baton was delivered")
        timeline.resume(link.task, (link.turn, baton.grant(link.seen)))


class SimStore(Store):
    """What one process reaches the server by."""

    capabilities = CAPABILITIES

    def __init__(self, process: Lives, timeline: Timeline, server: Server, capabilities: Capabilities) -> None:
        self.process = process
        self.timeline = timeline
        self.server = server
        self.capabilities = capabilities
        self.weather = NEVER if server.down else server.weather
        self.cut = False
        self.link: Link | None = None
        self.given: dict[str, float] = {}
        """By token, when the first of its claims that ended unknown was sent, or its baton was handed on."""
        self.unknown: dict[str, int] = {}
        """By token, how many renewals in a row failed."""
        self.evicted: dict[str, int] = {}
        server.stores.append(self)

    def ask(self, asked: object, within: float) -> Any:
        """Send a request; None means: its answer comes later, so park. Otherwise time went on within the caller (rule 2 of
        the timeline)."""
        timeline, server = self.timeline, self.server
        if self.process.dead:
            raise DeadError
        server.asked += 1
        if server.asked == server.struck_at:
            server.strike(self.process)
        chance = timeline.random()
        task = timeline.task
        assert task is not None
        now = task.sent = timeline.now
        if chance < self.weather:
            self._trouble(asked, within, task)
            return None
        out = server.latency * (1.5 - chance)
        back = server.latency * (0.5 + timeline.random())
        heap = timeline.heap
        arrives = now + out
        replies = arrives + back
        if (heap and heap[0][0] <= arrives) or replies > now + within:
            timeline.at(arrives, server.land, asked, Trip(task, task.turn, back, now + within))
            return None
        timeline.now = arrives
        answer = SERVED[type(asked)](server.model, arrives * server.rate + server.offset, asked)
        if timeline.trace is not None:
            timeline.say(f"server  {asked} -> {answer}")
        if heap and heap[0][0] <= replies:
            timeline.at(replies, timeline.resume, task, (task.turn, answer))
            return None
        timeline.now = replies
        return answer

    def _trouble(self, asked: object, within: float, task: Task) -> None:
        """Something happens to a request (rule 2)."""
        timeline, server = self.timeline, self.server
        timeline.faults += 1
        now, random, at = timeline.now, timeline.random, timeline.at
        gives_up = now + within
        kind = int(random() * 8)
        if self.weather == NEVER:
            kind = 5 if kind < 5 else 0
        elif isinstance(asked, Claim):
            self.given.setdefault(asked.token, now)
        error: StoreError = OutcomeUnknown("no answer in time")
        soon = now + server.latency * (0.5 + random())
        if timeline.trace is not None:
            timeline.say(f"{self.process.name}: trouble {kind} for {asked}")
        if kind == 1:  # late
            at(gives_up + 12 * random() ** 3, server.drift_in, asked, gives_up)
        elif kind == 2:  # noqa: PLR2004 - the number is the kind: the answer is lost
            at(min(soon, gives_up), server.drift_in, asked, gives_up)
        elif kind == 3:  # noqa: PLR2004 - delivered twice
            timeline.see("a request was delivered twice")
            at(soon, server.land, asked, Trip(task, task.turn, server.latency, gives_up))
            at(soon + 5 * random() ** 4, server.drift_in, asked, gives_up)
            return
        elif kind == 4:  # noqa: PLR2004 - slow
            at(now + within * random(), server.land, asked, Trip(task, task.turn, within * random() * 0.7, gives_up))
            return
        elif kind == 5:  # noqa: PLR2004 - refused
            error, gives_up = StoreUnavailable("connection refused"), soon
        elif kind == 6:  # noqa: PLR2004 - the connection breaks early, and what was sent may still arrive
            gives_up = now + within / 2 * random()
            at(gives_up + within * random() ** 2, server.drift_in, asked, now + within)
        # Otherwise it is lost.
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
        answer: Claimed = self.ask(Claim(key, token, ttl, info, state, expect, not_after, slots, will_wait), within)
        if answer is None:
            answer = await park()
        if type(answer) is Grant and answer.ttl != ttl:
            self.timeline.see("an own token was answered as it stands")
        return answer

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        answer: Renewed = self.ask(Renew(grant, ttl, state, info), within)
        if answer is None:
            answer = await park()
        return answer

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        answer: bool | None = self.ask(Release(grant, keep, last), within)
        if answer is None:
            answer = await park()
        return answer  # type: ignore[return-value]  # what park brings is the answer

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        answer: bool | None = self.ask(Evict(key, token, slots), within)
        if answer is None:
            answer = await park()
        times = self.evicted[token] = self.evicted.get(token, 0) + 1
        if times == 2:  # noqa: PLR2004 - twice
            self.timeline.see("an abandoned token was evicted twice")
        return answer  # type: ignore[return-value]  # what park brings is the answer

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        answer: tuple[Holder, ...] = self.ask(Look(key, slots), within)
        if answer is None:
            answer = await park()
        return answer

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`. Answered at once: nobody here decides by it."""
        return self.server.model.listing(self.server.now(), prefix, cursor, limit)

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        answer: float | None = self.ask(Ping(), within)
        if answer is None:
            answer = await park()
        return answer  # type: ignore[return-value]  # what park brings is the answer

    async def batch(self, lines: Sequence[Asked], *, within: float = 3) -> tuple[Verdict, ...]:
        """See `Store.batch`: in one trip. Only renewals travel so."""
        timeline = self.timeline
        try:
            answer: tuple[Verdict, ...] = self.ask(Batch(tuple(lines)), within)
            if answer is None:
                answer = await park()
        except StoreError:
            for line in lines:
                if isinstance(line, Renew):
                    token = line.grant.token
                    self.unknown[token] = self.unknown.get(token, 0) + 1
                    timeline.history.append({"at": timeline.now, "what": "unrenewed", "token": token})
            raise
        if self.unknown:
            for verdict in answer:
                if isinstance(verdict, Grant) and self.unknown.pop(verdict.token, 0):
                    timeline.see("a renewal was unknown and then succeeded")
        if any(isinstance(verdict, Gone) for verdict in answer):
            timeline.see("a renewal found nothing")
        return answer

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """See `Store.wait`."""
        timeline, server = self.timeline, self.server
        task = timeline.task
        assert task is not None
        assert isinstance(seen, float)
        server.asked += 1
        if server.asked == server.struck_at:
            server.strike(self.process)
        now = timeline.now
        self.link = link = Link(task, key, seen, now + within + HANGS)
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
