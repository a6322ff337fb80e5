"""Simulated time: one heap of what happens next, and the coroutines that wait for it.

1. All chance comes from one `random.Random(seed)`, and what happens at the same time happens in the order in which it was
   arranged. So a seed replays a schedule exactly.
2. Whoever would wait for something before which nothing else happens doesn't suspend: time goes on within it. That is why
   a schedule takes less than half a millisecond.
3. Whoever suspends does so in `park`, and is resumed by the one event that names its present turn. Events of former turns
   come to nothing: a reply after a cancellation, a timeout after a reply.
4. A process that stands still is resumed when it goes on; one that is dead, never.
"""

from __future__ import annotations

import types
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine, Generator

    from soloist.testing.history import Line

    Event = tuple[float, int, Callable[[Any, Any], object], Any, Any]

BEGIN = 1000.0
"""Nothing here is older: a clock at 0 would look like one that was never read."""


DRIFTS = (0.9995, 1.0, 1.0005)
"""How fast a clock may go: as far from the truth as one that is being slewed."""


@types.coroutine
def park() -> Generator[None, Any, Any]:
    """Suspend until the timeline resumes this task; answers what it brings."""
    return (yield)


class Lives(Protocol):
    """What the timeline must know of a task's process."""

    name: str
    dead: bool
    awake_at: float
    """Until when it stands still."""


class Task:
    """A coroutine of a process. `turn` counts how often it was resumed."""

    __slots__ = ("coro", "process", "sent", "turn")

    def __init__(self, process: Lives, coro: Coroutine[Any, Any, None]) -> None:
        self.process = process
        self.coro = coro
        self.turn = 0
        self.sent = 0.0
        """When it last asked the store."""


class Spoken(list["Line"]):
    """A history that is written into the trace as well."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def append(self, line: Line, /) -> None:
        """Add a line."""
        super().append(line)
        facts = {name: fact for name, fact in line.items() if name not in {"at", "what", "who"}}
        words = (f"{name}={fact:.4f}" if isinstance(fact, float) else f"{name}={fact}" for name, fact in facts.items())
        self._timeline.say(f"{line.get('who', ''):9} # {line['what']} {' '.join(words)}", line["at"])


class Timeline:
    """Time, chance, and what is to be known afterwards."""

    __slots__ = ("_order", "acquired", "faults", "heap", "history", "now", "random", "rng", "saw", "task", "trace")

    def __init__(self, seed: int, saw: Counter[str], trace: list[str] | None = None) -> None:
        self.now = BEGIN
        self.heap: list[Event] = []
        self.rng = Random(seed)
        self.random = self.rng.random
        self.history: list[Line] = [] if trace is None else Spoken(self)
        self.saw = saw
        self.trace = trace
        self.faults = 0
        self.acquired = 0
        self.task: Task
        """The one that runs now."""
        self._order = 0

    def at(self, when: float, call: Callable[[Any, Any], object], one: object = None, two: object = None) -> None:
        """Arrange that something happens."""
        self._order = order = self._order + 1
        heappush(self.heap, (when, order, call, one, two))

    def run(self, most: int) -> None:
        """Let everything happen, but no more than so many steps."""
        heap = self.heap
        while heap and most:
            most -= 1
            self.now, _, call, one, two = heappop(heap)
            call(one, two)

    def start(self, task: Task, _: object = None) -> None:
        """Begin a task now."""
        self.task = task
        try:
            task.coro.send(None)
        except StopIteration:
            task.turn = -1

    def resume(self, task: Task, brought: tuple[int, object]) -> None:
        """Go on with a task that waits in this very turn: with a value, or with an error that is raised there."""
        turn, value = brought
        process = task.process
        if turn != task.turn or process.dead:
            return
        if process.awake_at > self.now:
            self.at(process.awake_at, self.resume, task, brought)
            return
        task.turn = turn + 1
        self.task = task
        try:
            if isinstance(value, BaseException):
                task.coro.throw(value)
            else:
                task.coro.send(value)
        except StopIteration:
            task.turn = -1

    def throw(self, task: Task, error: BaseException) -> None:
        """Interrupt a task, whatever it waits for."""
        if task.turn >= 0:
            self.resume(task, (task.turn, error))

    def see(self, what: str) -> None:
        """Note that a rare path was reached."""
        self.saw[what] += 1

    def say(self, text: str, at: float = 0.0) -> None:
        """Add to the trace of a replay."""
        if self.trace is not None:
            self.trace.append(f"{at or self.now:10.4f}  {text}")

    async def sleep(self, seconds: float) -> None:
        """Let time pass for the running task."""
        until = self.now + seconds
        heap = self.heap
        if not heap or until < heap[0][0]:
            self.now = until
            return
        task = self.task
        self._order = order = self._order + 1
        heappush(heap, (until, order, self.resume, task, (task.turn, None)))
        await park()
