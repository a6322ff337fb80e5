"""A simulated process: a user's coroutine and a keeper's, which share one world, one store and one book.

1. Its clock goes on while it stands still, drifts by up to 0.05 %, and has nothing in common with any other's.
2. A dead process is never resumed. Its coroutines are closed, and whatever they ask for then is an error of theirs.
3. The keeper sleeps until something is due, and is woken only for what is due before that, as the real ones are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from soloist._flows.renewing import SPARE, Book, lose, tend
from soloist._world import Clock
from soloist.errors import StoreError, StoreUnavailable
from soloist.events import Acquired, ClockJump, Degraded, LimitsDiffer, Lost, Protected, Released, ReleaseFailed, StoreBack, StoreDown
from soloist.testing._simulation.server import NEVER
from soloist.testing._simulation.timeline import BEGIN, DRIFTS, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from soloist._flows.renewing import Kept
    from soloist.events import Event
    from soloist.testing._simulation.server import Port, Server
    from soloist.testing._simulation.timeline import Timeline
    from soloist.testing.history import Line

KEYS: tuple[str, ...] = ("a", "b")

PATIENCE = 3.0
"""Seconds that the store may take to answer, attempts included."""

FAST_FAIL = 1.0
"""Seconds for which a store that can't be reached isn't asked again."""

LONGEST = 20.0
"""Seconds of the longest lease that anybody asks for."""

LATE_BY = 1e-6
"""Seconds by which a timer is late: none rings too early."""

TOLD: dict[type, str] = {
    StoreDown: "an outage was told",
    StoreBack: "the end of an outage was told",
    ClockJump: "a jump of the server's clock was told",
    LimitsDiffer: "two limits of a semaphore were told",
    Degraded: "a run went on without protection",
    ReleaseFailed: "a failed release was told",
}


class InterruptedByUserError(BaseException):
    """A cancelled task, Ctrl-C, a soft time limit: it may strike at any await."""


class SimWorld:
    """A process's world."""

    def __init__(self, process: Process, timeline: Timeline) -> None:
        self._process = process
        self._timeline = timeline
        self._rate = DRIFTS[int(timeline.random() * len(DRIFTS))]
        self._offset = 9000 * timeline.random()
        self._clock = Clock()
        self._tokens = 0
        self.last_token = ""
        self._down_since = 0.0
        self._ask_again = 0.0
        self.chance = timeline.random
        self.sleep = timeline.sleep
        rate, offset = self._rate, self._offset

        def now() -> float:
            return timeline.now * rate + offset

        self.now = now
        """See `World.now`. A closure: it is asked for hundreds of times in a schedule."""

    def when(self, local: float) -> float:
        """The simulated time at which this process's clock reads `local`."""
        return (local - self._offset) / self._rate

    def token(self) -> str:
        """See `World.token`."""
        self._tokens += 1
        self.last_token = token = f"{self._process.name}.{self._tokens}/1"
        return token

    def learn(self, sent: float, server: float) -> None:
        """See `World.learn`."""
        got = self._timeline.now * self._rate + self._offset
        if self._down_since:
            down_since, self._down_since, self._ask_again = self._down_since, 0.0, 0.0
            self.tell(StoreBack(got - down_since))
        if jump := self._clock.learn(sent, got, server):
            self.tell(ClockJump("server", jump))

    def server_now(self) -> float | None:
        """See `World.server_now`."""
        return self._clock.server(self._timeline.now * self._rate + self._offset)

    def outage(self) -> StoreError | None:
        """See `World.outage`."""
        return StoreUnavailable("not asked again so soon") if self._ask_again and self.now() < self._ask_again else None

    def failed(self, error: StoreError) -> None:
        """See `World.failed`."""
        now = self.now()
        self._ask_again = now + FAST_FAIL
        if not self._down_since:
            self._down_since = now
            self.tell(StoreDown(str(error)))

    def abandon(self, key: str, token: str, *, slots: int, not_after: float) -> None:
        """See `World.abandon`."""
        self._process.abandon(self.now(), key, token, slots, not_after)

    def tell(self, event: Event) -> None:
        """See `World.tell`."""
        if type(event) is Acquired:
            return
        if type(event) is Released:
            self._process.rest = event.kept
        elif (what := TOLD.get(type(event))) is not None:
            self._timeline.see(what)
        elif isinstance(event, Lost):
            self._process.told_lost(event)
        elif isinstance(event, Protected):
            self._process.told_protected(event)


class Process:
    """One process, from its start to its death or the end of its work."""

    def __init__(self, name: str, timeline: Timeline, server: Server, store: Port) -> None:
        self.name = name
        self.timeline = timeline
        self.server = server
        self.dead = False
        self.awake_at = 0.0
        self.stopped = 0.0
        """When it last stood still."""
        self.world = SimWorld(self, timeline)
        self.store = store
        store.process = self
        self.book = Book()
        self.rest = 0.0
        """For how long the last release keeps its key."""
        self.called = 0.0
        """When its user began to ask for a key; 0 while it isn't asking."""
        self.asks: tuple[str, float, int] = ("", 0.0, 1)
        """For which key, for which lease, of how many slots."""
        self.work: Callable[[Process], Coroutine[Any, Any, None]]
        self.todo = 0
        self.user: Task | None = None
        self._keeper: Task | None = None
        self._wakes_at = math.inf
        self._held: dict[tuple[str, int | None], Kept] = {}
        self._dropped: set[str] = set()
        """Keys of runs without protection that were dropped."""

    def begin(self, work: Callable[[Process], Coroutine[Any, Any, None]], todo: int, after: float) -> None:
        """Start its user's coroutine, some seconds from now."""
        self.work, self.todo = work, todo
        self.user = Task(self, work(self))
        self.timeline.at(self.timeline.now + after, self.timeline.start, self.user)

    @property
    def unfinished(self) -> bool:
        """Its user still waits for something, or its keeper does."""
        return (self.user is not None and self.user.turn >= 0) or bool(self.book.abandoned)

    def add(self, kept: Kept, call: float) -> None:
        """A key was acquired: renew it from now on, as a `Hold` does."""
        self.book.add(kept)
        self.arm(kept.due)
        if kept.grant is not None:
            self._note_acquired(kept, call)

    def _note_acquired(self, kept: Kept, call: float) -> None:
        assert kept.grant is not None
        timeline = self.timeline
        timeline.acquired += 1
        self._held[kept.key, kept.grant.fence] = kept
        timeline.history.append(
            {
                "at": timeline.now,
                "what": "acquired",
                "who": self.name,
                "key": kept.key,
                "slot": kept.grant.slot,
                "limit": kept.slots,
                "token": kept.token,
                "fence": kept.grant.fence,
                "call": call,
                "since": self.store.given.get(kept.token, call),
                "lease": kept.lease,
                "deadline": self.world.when(kept.place.deadline),
                "renewed": kept.renewed,
                "ends": self.world.when(kept.ends),
            }
        )

    def check(self, kept: Kept) -> bool:
        """What `Hold.check` does: is it still ours? Asks nobody."""
        if kept.place.lost is None and self.world.now() >= kept.place.deadline:
            self.book.remove(kept)
            if self.stopped > self.world.when(kept.place.deadline) - kept.lease:
                self.timeline.see("a process that stood still noticed at its check")
            lose(self.world, kept, "unknown")
        if kept.grant is not None:
            ours = kept.place.lost is None
            deadline = self.world.when(kept.place.deadline)
            self.timeline.history.append(
                {"at": self.timeline.now, "what": "checked", "token": kept.token, "ours": ours, "deadline": deadline}
            )
        return kept.place.lost is None

    def remove(self, kept: Kept) -> None:
        """Renew this no more. Whatever the keeper would wake for is over, if that was all."""
        book = self.book
        book.remove(kept)
        if self._wakes_at > 0 and not book.kept and not book.abandoned:
            self._wakes_at = math.inf

    def forget(self, kept: Kept) -> None:
        """The user dropped a hold without releasing it."""
        self.book.remove(kept)
        if kept.grant is not None:
            self._held.pop((kept.key, kept.grant.fence), None)
        else:
            self._dropped.add(kept.key)

    def told_lost(self, event: Lost) -> None:
        """A loss is told."""
        timeline, kept = self.timeline, self._held.get((event.key, event.fence))
        timeline.see(f"a hold was lost: {event.why}")
        if kept is None:
            return
        deadline = self.world.when(kept.place.deadline)
        timeline.history.append({"at": timeline.now, "what": "lost", "token": kept.token, "why": event.why, "deadline": deadline})

    def told_protected(self, event: Protected) -> None:
        """A run without protection has its key now."""
        self.timeline.see("a degraded run was protected")
        for kept in self.book.kept.values():
            if kept.key == event.key and kept.fence == event.fence:
                self._note_acquired(kept, self.store.given[kept.token])
                return
        if event.key not in self._dropped:
            return
        # Its user dropped it while it was claimed: it ends with its lease, and nobody speaks of it again.
        line: Line = {"at": self.timeline.now, "what": "asked", "who": self.name, "key": event.key, "call": BEGIN, "lease": LONGEST}
        self.timeline.history.append(line)

    def abandon(self, now: float, key: str, token: str, slots: int, not_after: float) -> None:
        """Evict what nobody wants any more."""
        timeline = self.timeline
        if self.dead:
            return
        self.book.abandon(now, key, token, slots, not_after)
        timeline.history.append(
            {
                "at": timeline.now,
                "what": "abandoned",
                "who": self.name,
                "key": key,
                "token": token,
                "since": self.store.given.get(token, self.called or timeline.now),
            }
        )
        self.arm(now)

    def arm(self, due: float) -> None:
        """Wake the keeper in time for what is due then."""
        when = max(self.world.when(due) + LATE_BY, self.timeline.now)
        if when < self._wakes_at:
            self._wakes_at = when
            self.timeline.at(when, self._wake, when)

    def _wake(self, when: float, _: object) -> None:
        timeline = self.timeline
        if when != self._wakes_at or self.dead:
            return
        if self.awake_at > timeline.now:
            timeline.at(self.awake_at, self._wake, when)
            return
        due = self.book.due()
        if due > self.world.now():
            self._wakes_at = math.inf
            if due < math.inf:
                self.arm(due)
            return
        self._wakes_at = -math.inf
        self._keeper = Task(self, self._keep())
        timeline.start(self._keeper)

    async def _keep(self) -> None:
        book = self.book
        wanted, began, slow = list(book.abandoned), self.timeline.now, book.spare > SPARE
        await tend(self.world, self.store, book, patience=PATIENCE)
        if slow and self.timeline.now > began + SPARE:  # a store that is silent for long has all the keeper's patience
            self.timeline.history.append({"at": began, "what": "stalled", "who": self.name, "until": self.timeline.now})
        for key, token in wanted:
            if (key, token) not in book.abandoned:
                self.timeline.history.append({"at": self.timeline.now, "what": "evicted", "key": key, "token": token})
        self._wakes_at = math.inf
        due = book.due()
        if due < math.inf:
            self.arm(due)

    def stop(self, seconds: float) -> None:
        """Stand still (SIGSTOP, or a machine that sleeps)."""
        timeline = self.timeline
        if self.dead:
            return
        self.stopped = timeline.now
        self.awake_at = max(self.awake_at, timeline.now + seconds)
        timeline.history.append({"at": timeline.now, "what": "stalled", "who": self.name, "until": self.awake_at})

    def die(self, *, noticed: bool) -> None:
        """End here and now. `noticed`: the server hears that its connections are closed."""
        if self.dead:
            return
        timeline = self.timeline
        if self.called:
            key, lease, limit = self.asks
            timeline.history.append(
                {"at": timeline.now, "what": "asked", "who": self.name, "key": key, "call": self.called, "lease": lease, "limit": limit}
            )
        for kept in self.book.kept.values():
            if kept.grant is None:  # the keeper may just be claiming its key
                line: Line = {"at": timeline.now, "what": "asked", "who": self.name, "key": kept.key, "lease": kept.lease}
                timeline.history.append({**line, "call": timeline.now - PATIENCE})
        for kept in self._held.values():
            if not kept.leaving and kept.place.lost is None:
                deadline = self.world.when(kept.place.deadline)
                timeline.history.append({"at": timeline.now, "what": "renewed", "token": kept.token, "deadline": deadline})
        timeline.history.append({"at": timeline.now, "what": "died", "who": self.name})
        if noticed and self.store.link is not None:
            timeline.at(timeline.now + self.server.latency, self.server.hang_up, self.store.link)
        self.close()

    def close(self) -> None:
        """Drop its coroutines. What they ask for while they unwind is an error of theirs (rule 2)."""
        self.dead = True
        self.store.cut, self.store.weather = True, NEVER
        for task in (self.user, self._keeper):
            if task is not None and task.turn >= 0:
                task.coro.close()
