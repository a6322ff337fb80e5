"""The simulated server: the model of `stores/memory.py` on a clock of its own, which drifts, and which somebody may set.

1. A request takes effect when it arrives. One that arrives while nobody waits for its answer any more is noted as `landed`.
2. A waiter is a connection with a ticket in the model's queue. A baton that is handed to it travels, too: to a dead, a
   stopped or a departed waiter, and runs out there.
3. While it is down it answers nobody. It comes back with its data, with older data, or with none; who waited is cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from soloist.contract import Evict, Grant, Late, Look, Release, Renew, Store
from soloist.errors import OutcomeUnknown
from soloist.stores.memory import BATON, Baton, Model, Ticket
from soloist.testing._simulation.requests import Batch, Claim, Ping, answered, said
from soloist.testing._simulation.timeline import DRIFTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from soloist.contract import Claimed, Holder, Renewed
    from soloist.testing._simulation.timeline import Lives, Task, Timeline
    from soloist.testing.history import Line

NEVER = 2.0
"""A weather in which each request meets trouble."""


class Port(Store):
    """A process's side of its connections."""

    def __init__(self, timeline: Timeline, server: Server) -> None:
        self.timeline = timeline
        self.server = server
        self.process: Lives
        """Whose it is."""
        self.weather = NEVER if server.down else server.weather
        """How likely trouble is for a request."""
        self.cut = False
        """No packet comes through."""
        self.link: Link | None = None
        """The connection of whoever waits."""
        self.given: dict[str, float] = {}
        """By token, the moment before which the store can't have granted it."""
        server.ports.append(self)


Trip = tuple["Task", int, float, float]
"""Who waits for an answer, in which turn; how long the way back is; and when they give up."""


class Link:
    """A waiter's connection."""

    __slots__ = ("gives_up", "key", "open", "port", "seen", "served", "task", "ticket", "turn")

    def __init__(self, port: Port, task: Task, key: str, seen: float, gives_up: float) -> None:
        self.port = port
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
        self.rate = DRIFTS[int(timeline.random() * len(DRIFTS))]
        self.offset = 4000 * timeline.random()
        self.model = Model(self.new_baton)
        self.down = False
        self.asked = 0
        self.struck_at = -1
        """The request at which the next fault strikes."""
        self.strike: Callable[[Lives], None] = lambda _: None
        self.ports: list[Port] = []
        self.links: list[Link] = []
        self.lying: dict[str, float] = {}
        """By key, until when a baton lies there that nobody was given."""
        self.fresh = False
        """A baton was made, and not yet given."""
        self.settled: dict[str, float] = {}
        """By token, when a baton was renewed for the first time."""
        self._made: dict[str, float] = {}
        """By token, when a baton was made."""

    def now(self) -> float:
        """What the server's clock reads."""
        return self.timeline.now * self.rate + self.offset

    def new_baton(self) -> str:
        """A baton's token."""
        self.fresh = True
        token = f"baton/{len(self._made) + 1}"
        self._made[token] = self.timeline.now
        return token

    def lay_down(self, key: str, now: float) -> None:
        """Nobody took the baton that was made: it lies there."""
        self.fresh = False
        self.lying[key] = now + BATON

    def crash(self, until: float, model: Model) -> None:
        """Be down until then, and come back with this model; whoever is connected is cut off."""
        self.down = True
        for port in self.ports:
            port.weather = NEVER
        self.timeline.history.append({"at": self.timeline.now, "what": "stalled", "until": until})
        self.timeline.at(until, self._recover, model)
        for link in self.links:
            if not link.served:
                link.served = True
                self.timeline.at(self.timeline.now + self.latency, self.timeline.resume, link.task, (link.turn, OutcomeUnknown("reset")))
        self.links.clear()

    def _recover(self, model: Model, _: object) -> None:
        self.timeline.say("server    is up")
        self.model = model
        self.down = False
        for port in self.ports:
            port.weather = NEVER if port.cut else self.weather

    def land(self, asked: object, trip: Trip | None) -> object:
        """A request arrives. Nobody waits for the answer if there is no trip."""
        timeline = self.timeline
        answer: object
        if self.down:
            answer = OutcomeUnknown("the connection was reset")
        else:
            answer = SERVED[type(asked)](self, timeline.now * self.rate + self.offset, asked)
            if timeline.trace is not None:
                timeline.say(f"server    {said(asked)} -> {answered(answer)}")
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

    def again(self, asked: object, by: float) -> None:
        """A request arrives for the second time."""
        self._landed(asked, self.land(asked, None), by, twice=True)

    def _landed(self, asked: object, answer: object, by: float, *, twice: bool = False) -> None:
        timeline = self.timeline
        match asked, answer:
            case Batch(lines), tuple():
                for line, verdict in zip(lines, cast("tuple[object, ...]", answer), strict=True):
                    self._landed(line, verdict, by, twice=twice)
            case Claim(ttl=ttl), Grant():
                new = answer.ttl == ttl
                if new:
                    timeline.see("a claim landed and its reply was lost")
                timeline.history.append(self.landing("claim", answer, timeline.now, by, new=new, twice=twice))
            case Claim(), Late():
                timeline.see("a late claim was refused by its not_after")
            case Renew(), Grant():
                timeline.history.append(self.landing("renew", answer, timeline.now, by, new=False, twice=twice))
            case _:
                pass

    def landing(self, verb: str, grant: Grant, at: float, by: float, *, new: bool, twice: bool) -> Line:
        """The line of a request that took effect and whose sender didn't hear of it."""
        return {
            "at": at,
            "what": "landed",
            "verb": verb,
            "key": grant.key,
            "token": grant.token,
            "slot": grant.slot,
            "ttl": grant.ttl / self.rate,
            "by": by,
            "new": new,
            "twice": twice,
        }

    def queue(self, link: Link, within: float) -> None:
        """A waiter's request arrives."""
        timeline = self.timeline
        if not link.open:
            return
        if self.down:
            timeline.at(timeline.now + self.latency, timeline.resume, link.task, (link.turn, OutcomeUnknown("reset")))
            return

        def give(baton: Baton) -> None:
            self._give(link, baton)

        link.ticket = Ticket(give)
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
        self.fresh = False
        self.lying.pop(link.key, None)
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
            timeline.at(timeline.now + self.latency * (0.5 + timeline.random()), self._deliver, link, baton)

    def _deliver(self, link: Link, baton: Baton | None) -> None:
        timeline = self.timeline
        if baton is None:
            timeline.resume(link.task, (link.turn, None))
            return
        if not link.open:
            timeline.see("a baton met a closed connection")
            return
        link.port.given[baton.token] = self._made[baton.token]
        timeline.see("a baton was delivered")
        timeline.resume(link.task, (link.turn, baton.grant(link.seen)))


def _claim(server: Server, now: float, one: Claim) -> Claimed:
    key, token, ttl, info, state, expect, not_after, slots, will_wait = one
    answer = server.model.claim(
        now, key, token, ttl, info=info, state=state, expect=expect, not_after=not_after, slots=slots, will_wait=will_wait
    )
    if key in server.lying and slots == 1 and type(answer) is Grant and server.lying.pop(key) > now:
        server.timeline.see("a baton was taken by a claim")
    return answer


def _renew(server: Server, now: float, one: Renew) -> Renewed:
    if one.info is not None:
        server.settled[one.grant.token] = server.timeline.now
    return server.model.renew(now, one.grant, one.ttl, state=one.state, info=one.info)


def _release(server: Server, now: float, one: Release) -> bool:
    released = server.model.release(now, one.grant, one.keep, one.last)
    if server.fresh:
        server.lay_down(one.grant.key, now)
    return released


def _evict(server: Server, now: float, one: Evict) -> bool:
    evicted = server.model.evict(now, one.key, one.token, slots=one.slots)
    if server.fresh:
        server.lay_down(one.key, now)
    return evicted


def _look(server: Server, now: float, one: Look) -> tuple[Holder, ...]:
    return server.model.look(now, one.key, slots=one.slots)


def _ping(_: Server, now: float, __: Ping) -> float:
    return now


def _batch(server: Server, now: float, one: Batch) -> tuple[object, ...]:
    return tuple([SERVED[type(line)](server, now, line) for line in one.lines])


SERVED: dict[type, Callable[[Server, float, Any], object]] = {
    Claim: _claim,
    Renew: _renew,
    Release: _release,
    Evict: _evict,
    Look: _look,
    Ping: _ping,
    Batch: _batch,
}
