"""Workers that contend for a few keys while signals strike them, and the history of it all."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soloist._world import boottime
from tests.processes.worker import LEASE

if TYPE_CHECKING:
    from soloist.testing.history import Line

ROOT = Path(__file__).resolve().parent.parent.parent
STOPPED = LEASE * 1.3
"""Seconds that a stopped worker stands still: longer than its lease."""


@dataclass
class Strikes:
    """How many signals struck a worker that held something, by the worker's own word; and how many struck at all."""

    kills: int = 0
    stops: int = 0
    sent: int = 0


@dataclass
class Contest:
    """Eight workers, a seed, and who is alive."""

    url: str
    directory: Path
    seed: int
    workers: int = 8
    lines: list[Line] = field(default_factory=list)
    strikes: Strikes = field(default_factory=Strikes)
    alive: dict[int, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        (self.directory / "holding").write_bytes(bytes(64))
        self.page = mmap.mmap(os.open(self.directory / "holding", os.O_RDWR), 64)
        self.born = 0

    def run(self, *, sections: int, kills: int, stops: int, limit: float) -> None:
        """Until there were so many sections, and so many holders were killed, and stopped."""
        ends = time.monotonic() + limit
        try:
            for number in range(self.workers):
                self.start(number)
            while self.sections() < sections or self.strikes.kills < kills or self.strikes.stops < stops:
                assert time.monotonic() < ends, f"only {self.sections()} sections and {self.strikes} in {limit:.0f} s"
                self.strike(more_kills=self.strikes.kills < kills, more_stops=self.strikes.stops < stops)
        finally:
            self.finish()

    def start(self, number: int) -> None:
        """A new process in this worker's place."""
        self.born += 1
        name = f"{number}-{self.born}"
        command = [sys.executable, "-m", "tests.processes.worker", self.url, name, str(self.directory), str(self.seed + self.born)]
        self.alive[number] = (name, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL))

    def strike(self, *, more_kills: bool, more_stops: bool) -> None:
        """Send one signal, rather to somebody who holds something; and wake whoever has stood still long enough."""
        time.sleep(self.chance.random() * 0.1)
        for number in [number for number, since in self.stopped.items() if boottime() - since > STOPPED]:
            self.go_on(number)
        awake = [number for number in self.alive if number not in self.stopped]
        holding = [number for number in awake if self.page[number]]
        if not awake or len(self.stopped) > self.workers // 2 or not (more_kills or more_stops):
            return
        victim = self.chance.choice(holding if holding and self.chance.random() < 0.8 else awake)
        kill = self.chance.random() < 0.5 if more_kills and more_stops else more_kills
        os.kill(self.alive[victim][1].pid, signal.SIGKILL if kill else signal.SIGSTOP)
        self.strikes.sent += 1
        if kill:
            self.alive[victim][1].wait()
            self.strikes.kills += self.page[victim]
            self.lines.append({"at": boottime(), "what": "died", "who": self.alive[victim][0]})
            self.page[victim] = 0
            self.start(victim)
        else:
            os.waitid(os.P_PID, self.alive[victim][1].pid, os.WSTOPPED | os.WNOWAIT)
            self.strikes.stops += self.page[victim]
            self.stopped[victim] = boottime()

    def go_on(self, number: int) -> None:
        """Let a stopped one continue."""
        since = self.stopped.pop(number)
        self.lines.append({"at": since, "what": "stalled", "until": boottime(), "who": self.alive[number][0]})
        os.kill(self.alive[number][1].pid, signal.SIGCONT)

    def finish(self) -> None:
        """Let all come to their end."""
        for number in list(self.stopped):
            self.go_on(number)
        (self.directory / "stop").touch()
        for _, process in self.alive.values():
            try:
                assert process.wait(30) == 0
            finally:
                process.kill()

    def sections(self) -> int:
        """How many sections there were so far."""
        return sum(path.read_bytes().count(b'"wrote"') for path in self.directory.glob("*.register"))

    def history(self) -> list[Line]:
        """All lines of all processes, in the order of their clock. Who died while asking may have got the key."""
        lines = list(self.lines)
        died = {line["who"]: line["at"] for line in lines if line["what"] == "died"}
        for path in self.directory.glob("*.jsonl"):
            written = [json.loads(text) for text in path.read_text().splitlines(keepends=True) if text.endswith("\n")]
            if written and written[-1]["what"] == "asking" and (at := died.get(written[-1]["who"])):
                lines.append({**written[-1], "what": "asked", "at": at})
            lines += [line for line in written if line["what"] != "asking"]
        for path in self.directory.glob("*.register"):
            lines += map(json.loads, path.read_text().splitlines())
        return sorted(lines, key=when)


def when(line: Line) -> Any:
    """The clock's order."""
    return line["at"]
