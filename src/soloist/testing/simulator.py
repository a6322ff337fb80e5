"""Thousands of schedules: the algorithms of this library under faults far denser than life.

    python -m soloist.testing.simulator --seconds 60

One schedule has three processes and two keys, ten acquisitions or more, two faults or more, and runs until all leases are
over. Its seed decides everything. The flows that it drives are the very ones that a user's locks run on; what happened is
judged by `soloist.testing.checker`. `--replay SEED` shows one schedule step by step.

Rare paths are counted (`SOMETIMES`): a run of enough schedules that never reached one of them has failed.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from soloist.stores.memory import CAPABILITIES
from soloist.testing._simulation.network import HANGS, SimStore
from soloist.testing._simulation.process import LONGEST, PATIENCE, Process
from soloist.testing._simulation.server import Server
from soloist.testing._simulation.strikes import Strikes
from soloist.testing._simulation.timeline import Timeline
from soloist.testing._simulation.work import Registers, Worker
from soloist.testing.checker import Bounds, Violation, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soloist.testing.history import Line

SOMETIMES = (
    "a claim landed and its reply was lost",
    "a late claim was refused by its not_after",
    "an own token was answered as it stands",
    "a request was delivered twice",
    "an abandoned token was evicted twice",
    "a user was interrupted",
    "a section was interrupted",
    "a failed release was told",
    "an extension got no answer",
    "a baton was delivered",
    "a baton was taken by a claim",
    "a baton was handed to a dead waiter",
    "a baton was handed to a stopped waiter",
    "a baton was lost on its way",
    "a baton met a closed connection",
    "a renewal was unknown and then succeeded",
    "a hold was lost: taken",
    "a hold was lost: vanished",
    "a hold was lost: unknown",
    "a process that stood still noticed at its check",
    "an older fence was refused",
    "a run went on without protection",
    "a degraded run was protected",
    "an outage was told",
    "a semaphore was full",
    "a failover lost a hold",
    "a jump of the server's clock was told",
)
"""Each must be reached in a run of `ENOUGH` schedules."""

ENOUGH = 10_000

BOUNDS = Bounds(patience=PATIENCE, lease=LONGEST, waits=2 * PATIENCE + HANGS + 2.5, told=PATIENCE + 1)
"""What the checker may rely on here."""

POLLING = replace(CAPABILITIES, push="", poll=0.5)
"""A store that can't wake its waiters."""

LATENCIES = (0.001, 0.001, 0.01, 0.05)
"""Seconds that a request takes each way, about; one of these for a whole schedule."""

SLOTS = ((1, 1), (1, 2), (2, 1), (3, 2))
"""How many slots the two keys have."""

MOST = 20_000
"""Events after which a schedule is taken for one that never ends."""

COLLECT = 500
"""Schedules between two collections of garbage."""

SHOWN = 10
"""Failing seeds that a report names."""


class Outcome(NamedTuple):
    """What became of one schedule."""

    violations: list[Violation]
    steps: int
    faults: int
    tried: int
    acquired: int
    history: list[Line]


class Sum(NamedTuple):
    """What became of many."""

    schedules: int
    seconds: float
    steps: int
    faults: int
    tried: int
    acquired: int
    saw: Counter[str]
    failed: list[tuple[int, list[Violation]]]

    def plus(self, other: Sum) -> Sum:
        """Both together, run side by side."""
        return Sum(
            self.schedules + other.schedules,
            max(self.seconds, other.seconds),
            self.steps + other.steps,
            self.faults + other.faults,
            self.tried + other.tried,
            self.acquired + other.acquired,
            self.saw + other.saw,
            self.failed + other.failed,
        )


def simulate(seed: int, saw: Counter[str] | None = None, trace: list[str] | None = None) -> Outcome:
    """Run the schedule of one seed. `saw` counts the rare paths; in `trace` every step is written."""
    timeline = Timeline(seed, Counter() if saw is None else saw, trace)
    chance = timeline.random
    calm = chance() < 0.4  # noqa: PLR2004 - many have no trouble but what strikes them
    server = Server(timeline, 0.0 if calm else 0.22 * chance() ** 2, LATENCIES[int(chance() * len(LATENCIES))])
    slots = dict(zip("ab", SLOTS[int(chance() * len(SLOTS))], strict=True))
    worker = Worker(Registers(timeline.history), slots, 3.0 * chance())
    capabilities = POLLING if chance() < 0.1 else CAPABILITIES  # noqa: PLR2004 - one of ten
    processes = [Process(f"p{number}", timeline, server, SimStore(timeline, server, capabilities)) for number in range(3)]
    strikes = Strikes(timeline, server, processes, 2 + int(chance() * 1.6), 35)
    for process in processes:
        process.begin(worker.work, 4 if process is processes[0] else 3, 0.5 * chance())
    found: list[Violation] = []
    try:
        timeline.run(MOST)
    except Exception as error:  # whatever a flow raises is a finding
        if trace is not None:
            raise
        found.append(Violation("error", timeline.now, repr(error)))
    for holder in server.model.listing(server.now(), "", None, 1000).holders:
        ttl = holder.ttl / server.rate
        timeline.history.append({"at": timeline.now, "what": "left", "key": holder.key, "token": holder.token, "ttl": ttl})
    found += check(timeline.history, BOUNDS)
    found += [Violation("ends", timeline.now, f"{one.name} never ended") for one in processes if not one.dead and one.unfinished]
    for one in processes:
        if one.unfinished:
            one.close()
    outcome = Outcome(found, server.asked, timeline.faults, worker.tried, timeline.acquired, timeline.history)
    for each in (*processes, server, strikes):  # all of them know each other: this spares the collector of garbage its work
        each.__dict__.clear()
    return outcome


def run(seed: int, *, seconds: float = math.inf, schedules: float = math.inf, step: int = 1) -> Sum:
    """Run schedules with the seeds `seed`, `seed + step`, …, until the time or their number is up."""
    saw: Counter[str] = Counter()
    failed: list[tuple[int, list[Violation]]] = []
    steps = faults = tried = acquired = done = 0
    collecting = gc.isenabled()
    gc.collect()
    gc.freeze()  # what was there before needn't be looked through again and again
    gc.disable()
    began = time.perf_counter()
    try:
        while done < schedules and time.perf_counter() - began < seconds:
            outcome = simulate(seed + done * step, saw)
            steps += outcome.steps
            faults += outcome.faults
            tried += outcome.tried
            acquired += outcome.acquired
            if outcome.violations:
                failed.append((seed + done * step, outcome.violations))
            done += 1
            if done % COLLECT == 0:
                gc.collect()
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()
    return Sum(done, time.perf_counter() - began, steps, faults, tried, acquired, saw, failed)


def replay(seed: int) -> tuple[list[str], list[Violation]]:
    """The trace of one schedule, and what is wrong with it."""
    trace: list[str] = []
    violations = simulate(seed, None, trace).violations
    return trace + [f"{one.at:10.4f}  VIOLATION of {one.rule}: {one.text}" for one in violations], violations


def report(seed: int, result: Sum, jobs: int) -> bool:
    """Say what was found; the last line sums it up. True if nothing is wrong."""
    for failing, violations in result.failed[:SHOWN]:
        print(f"seed {failing}: see it with --replay {failing}")
        for one in violations[:3]:
            print(f"  {one.at:10.4f}  {one.rule}: {one.text}")
    for what in (*SOMETIMES, *sorted(set(result.saw) - set(SOMETIMES))):
        print(f"{result.saw[what]:9} {what}")
    missing = unmet(result)
    for what in missing:
        print(f"never: {what}")
    count = max(result.schedules, 1)
    speed = result.schedules / max(result.seconds, 1e-9)
    print(
        f"seed {seed}: {result.schedules} schedules, {len(result.failed)} with violations, {len(missing)} of {len(SOMETIMES)} rare paths"
        f" not reached; {speed:.0f} schedules a second, {speed / jobs:.0f} a core; on average {result.steps / count:.1f} steps,"
        f" {result.faults / count:.1f} faults, {result.tried / count:.1f} acquisitions tried and {result.acquired / count:.1f} made"
    )
    return not result.failed and not missing


def unmet(result: Sum) -> list[str]:
    """The rare paths that should have been reached, and were not."""
    return [what for what in SOMETIMES if not result.saw[what]] if result.schedules >= ENOUGH else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(prog="python -m soloist.testing.simulator", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--schedules", type=int, default=0, help="how many, instead")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; chosen and printed if it isn't given")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--replay", type=int, default=None, metavar="SEED", help="show the schedule of this seed, step by step")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        lines, violations = replay(options.replay)
        print("\n".join(lines))
        return 1 if violations else 0
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    schedules = options.schedules or math.inf
    result = _spread(seed, math.inf if options.schedules else options.seconds, schedules, max(options.jobs, 1))
    return 0 if report(seed, result, max(options.jobs, 1)) else 1


def _spread(seed: int, seconds: float, schedules: float, jobs: int) -> Sum:
    if jobs == 1:
        return run(seed, seconds=seconds, schedules=schedules)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        share = {"seconds": seconds, "schedules": math.ceil(schedules / jobs) if schedules < math.inf else schedules, "step": jobs}
        first, *others = [pool.apply_async(run, (seed + job,), share) for job in range(jobs)]
        result = first.get()
        for other in others:
            result = result.plus(other.get())
        return result


if __name__ == "__main__":
    sys.exit(main())
