"""Running a process of a part while its progress is shown, and counting what it says."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from tools.lint import ROOT, Check
from tools.told import FILE

LOOK = 0.1  # seconds between two looks at a process
GRACE = 10.0  # seconds that an interrupted one has to clean up
NOTHING_COLLECTED = 5  # pytest's status
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


@dataclass(slots=True)
class Counts:
    """What a part has done so far."""

    total: int = 0
    passed: int = 0
    failed: list[str] = field(default_factory=list[str])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # what, and why

    @property
    def done(self) -> int:
        """How much has ended."""
        return self.passed + len(self.failed) + len(self.skipped)

    def read(self, event: dict[str, str | int]) -> None:
        """Count an event that tools.told wrote."""
        match event:
            case {"total": int(total)}:
                self.total = max(self.total, total)
            case {"test": str(), "outcome": "passed"}:
                self.passed += 1
            case {"test": str(test), "outcome": "skipped", "reason": str(reason)}:
                self.skipped.append((test, reason))
            case {"test": str(test)}:
                self.failed.append(test)
            case _:
                raise AssertionError(event)


@dataclass(frozen=True, slots=True)
class Done:
    """A process that has ended."""

    failed: bool
    output: str


def watch(check: Check, counts: Counts, limit: float, show: Callable[[], None]) -> Done:
    """Run it to its end, or until `limit` seconds have passed; `show` is called all the while."""
    known = len(counts.failed)
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile(prefix="soloist-told-") as told:
        environ = dict(os.environ, PYRIGHT_PYTHON_IGNORE_WARNINGS="1", **{FILE: told.name})
        process = subprocess.Popen(
            check.command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        status = follow(process, told, counts, limit, show)
        output.seek(0)
        said = output.read().decode(errors="replace")
    if status is None:
        said += f"\n{check.name}: ended, since it took longer than {limit:.0f} s\n"
    conclude(check, status, said, counts, known)
    return Done(len(counts.failed) > known, said)


def follow(process: "subprocess.Popen[bytes]", told: "IO[bytes]", counts: Counts, limit: float, show: Callable[[], None]) -> int | None:
    """Count what is told until the process ends; its status, or None if it had to be ended."""
    ends, rest, status = time.monotonic() + limit, b"", None
    try:
        while status is None and time.monotonic() < ends:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(LOOK)
            *lines, rest = (rest + told.read()).split(b"\n")
            for line in lines:
                counts.read(json.loads(line))
            show()
    finally:
        if status is None:
            end(process)
    return status


def end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt it, as Ctrl-C does, so that it stops what it has started; then kill what is left."""
    for sign, patience in ((signal.SIGINT, GRACE), (signal.SIGKILL, GRACE)):
        if process.poll() is None:
            os.killpg(process.pid, sign)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


def conclude(check: Check, status: int | None, said: str, counts: Counts, known: int) -> None:
    """Count the process itself: a check is one thing that passes or fails, and no test may fail unheard."""
    if check.kind == "program":
        lines = said.strip().splitlines()
        if lines and (sums := SUMMARY.match(lines[-1])):
            passed, failed, skipped = map(int, sums.groups())
            counts.passed += passed
            counts.failed += [f"{check.name} {at + 1}" for at in range(failed)]
            counts.skipped += [(check.name, "see its output")] * skipped
        else:
            counts.passed += status == 0
    elif check.kind == "check":
        counts.passed += status == 0
    if check.kind == "tests" and status == NOTHING_COLLECTED:
        return
    if status != 0 and len(counts.failed) == known:
        counts.failed.append(check.name)
