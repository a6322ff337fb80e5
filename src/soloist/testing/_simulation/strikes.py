"""What befalls a simulated schedule besides the network: processes die and stand still, servers crash and fail over, clocks
are set, users interrupt, operators interfere.

A fault strikes at a request, chosen by its number: before it arrives, on its way back, just as its sender goes on, or
somewhat later. So each await of a flow is struck in some schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from soloist._flows import locking
from soloist.errors import StoreError
from soloist.stores.memory import CAPABILITIES, Model
from soloist.testing._simulation.network import SimStore
from soloist.testing._simulation.process import KEYS, PATIENCE, InterruptedByUserError, Process
from soloist.testing._simulation.server import NEVER
from soloist.testing._simulation.timeline import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from soloist.contract import Capabilities, Holder
    from soloist.testing._simulation.server import Server
    from soloist.testing._simulation.timeline import Lives, Timeline


class Strikes:
    """The faults of one schedule, in the order of the requests that they strike at."""

    def __init__(self, timeline: Timeline, server: Server, processes: list[Process], count: int, span: int) -> None:
        self.timeline = timeline
        self.server = server
        self.processes = processes
        self._unsure = False
        """Data was lost, or the server's clock was set: once is enough, since fences bear one of them, not both."""
        random = timeline.random
        self._numbers = sorted({1 + int(span * random()) for _ in range(count)}, reverse=True)
        server.strike = self.strike
        server.struck_at = self._numbers.pop()

    def strike(self, process: Lives) -> None:
        """Arrange that a fault strikes at, or soon after, the request that this process is just sending."""
        assert isinstance(process, Process)
        timeline, random = self.timeline, self.timeline.random
        self.server.struck_at = self._numbers.pop() if self._numbers else -1
        fault = FAULTS[int(random() * len(FAULTS))]
        moment = int(random() * 5)
        delay = 3 * random() ** 2 if moment > 3 else self.server.latency * (0.0, 0.7, 1.5, 2.2)[moment]  # noqa: PLR2004 - the last is later
        timeline.at(timeline.now + delay, self._befall, fault, process)

    def _befall(self, fault: Callable[[Strikes, Process], str], process: Process) -> None:
        timeline = self.timeline
        timeline.faults += 1
        said = fault(self, process)
        if timeline.trace is not None:
            timeline.say(f"{process.name:9} FAULT {said}")

    def stop(self, process: Process) -> str:
        """SIGSTOP, and SIGCONT later."""
        seconds = 8 * self.timeline.random() ** 2
        process.stop(seconds)
        return f"stopped for {seconds:.3f} s"

    def suspend(self, process: Process) -> str:
        """A machine sleeps, with all processes on it: all but the first, and this one."""
        seconds = 8 * self.timeline.random()
        for other in self.processes:
            if other is process or other is not self.processes[0]:
                other.stop(seconds)
        return f"machine suspended for {seconds:.3f} s"

    def die(self, process: Process) -> str:
        """SIGKILL, or the host goes down; another takes over what was left to do."""
        if process.dead or process.user is None:
            return "was dead already"
        noticed = self.timeline.random() < 0.7  # noqa: PLR2004 - mostly
        process.die(noticed=noticed)
        again = Process(process.name + "'", self.timeline, self.server, self._connect(process.store.capabilities))
        self.processes.append(again)
        again.begin(process.work, process.todo, 2 * self.timeline.random())
        return "killed" if noticed else "its host went down"

    def interrupt(self, process: Process) -> str:
        """A cancellation, Ctrl-C, a soft time limit."""
        if process.user is not None and not process.dead:
            self.timeline.throw(process.user, InterruptedByUserError())
        return "interrupted"

    def cut(self, process: Process) -> str:
        """No packet comes through for a while."""
        timeline, store = self.timeline, process.store
        until = timeline.now + 5 * timeline.random() ** 2
        store.cut, store.weather = True, NEVER
        timeline.history.append({"at": timeline.now, "what": "stalled", "who": process.name, "until": until})

        def restore(_: object, __: object) -> None:
            store.cut = process.dead
            store.weather = NEVER if self.server.down or process.dead else self.server.weather

        timeline.at(until, restore)
        return f"cut off for {until - timeline.now:.3f} s"

    def restart(self, process: Process) -> str:
        """The server restarts, and has its data."""
        if self.server.down:
            return "server was down already"
        until = self.timeline.now + 4 * self.timeline.random() ** 3
        self.server.crash(until, self.server.model.copy())
        return f"server down for {until - self.timeline.now:.3f} s"

    def empty(self, process: Process) -> str:
        """The server restarts without its data."""
        if self.server.down or self._unsure:
            return "server was spared"
        self._unsure = True
        self._amnesty("emptied")
        model = Model(self.server.new_baton)
        until = self.timeline.now + 2 * self.timeline.random() ** 3
        self.server.crash(until, model)
        return f"server emptied, down for {until - self.timeline.now:.3f} s"

    def fail_over(self, process: Process) -> str:
        """A replica takes over that hasn't heard of the last moments."""
        if self.server.down or self._unsure:
            return "server was spared"
        self._unsure = True
        behind = self.server.model.copy()
        lag = (0.001, 0.05, 1.0)[int(self.timeline.random() * 3)] * self.timeline.random()
        self.timeline.at(self.timeline.now + lag, self._promote, behind)
        return f"a replica will take over in {lag:.3f} s, and know no more than now"

    def _promote(self, behind: Model, _: object) -> None:
        timeline, server = self.timeline, self.server
        if server.down:
            return
        now = server.now()
        knows, had = _holds(behind, now), {holder.token for holder in _holds(server.model, now)}
        self._amnesty("failover")
        for holder in knows:
            timeline.history.append(
                {"at": timeline.now, "what": "revived", "key": holder.key, "token": holder.token, "ttl": holder.ttl / server.rate}
            )
        if had - {holder.token for holder in knows}:
            timeline.see("a failover lost a hold")
        server.crash(timeline.now + 0.3 * timeline.random(), behind)

    def step(self, process: Process) -> str:
        """Somebody sets the server's clock."""
        if self._unsure:
            return "the clock was left alone"
        self._unsure = True
        timeline, server = self.timeline, self.server
        seconds = 10 * (timeline.random() - 0.5)
        server.offset += seconds
        now = server.now()
        left = [(holder.key, holder.token, holder.ttl) for holder in _holds(server.model, now)]  # an ended one may be back again
        left += [(key, "", until - now) for key, until in server.lying.items() if until > now]
        for key, token, ttl in left:
            timeline.history.append({"at": timeline.now, "what": "revived", "key": key, "token": token, "ttl": ttl / server.rate})
        self._amnesty("step")
        return f"the server's clock was set by {seconds:.3f} s"

    def force(self, process: Process) -> str:
        """An operator frees a key."""
        operator = Process("operator", self.timeline, self.server, self._connect(CAPABILITIES))
        task = Task(operator, self._free(operator, KEYS[self.timeline.random() < 0.3]))  # noqa: PLR2004 - as users ask
        self.timeline.start(task)
        return "an operator frees a key"

    async def _free(self, operator: Process, key: str) -> None:
        timeline = self.timeline
        call = timeline.now
        try:
            await locking.force(operator.world, operator.store, key, None, "operator", within=PATIENCE)
        except StoreError:
            timeline.see("an operator got no answer")
        timeline.history.append({"at": timeline.now, "what": "forced", "key": key, "call": call})

    def _connect(self, capabilities: Capabilities) -> SimStore:
        return SimStore(self.timeline, self.server, capabilities)

    def _amnesty(self, why: str) -> None:
        self.timeline.history.append({"at": self.timeline.now, "what": "amnesty", "why": why})


def _holds(model: Model, now: float) -> tuple[Holder, ...]:
    return model.listing(now, "", None, 1000).holders


FAULTS: list[Callable[[Strikes, Process], str]] = [
    *[Strikes.stop] * 4,
    *[Strikes.die] * 4,
    *[Strikes.interrupt] * 4,
    *[Strikes.cut] * 3,
    *[Strikes.restart] * 2,
    *[Strikes.fail_over] * 2,
    Strikes.suspend,
    Strikes.empty,
    Strikes.step,
    Strikes.force,
]
