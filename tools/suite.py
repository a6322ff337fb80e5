"""All that must be true, in parts: `./dev test [long|all] [part ...] [pytest's options]`.

1. `./dev test` runs the short tests; `long` runs only what it adds; `all` runs everything, what is marked `full` too.
   A part can be named, in each size: `./dev test flows`, `./dev test all processes`.
2. A part is a process or several: checks (each ends well or fails), a folder of tests, or a program whose last line
   reads `N passed, N failed, N skipped`.
3. One Redis serves the whole run. Where none can be had, the tests that need it are skipped, with the reason;
   with CI=true that is a failure.
4. A part that is missing or empty has failed, unless the user's own options chose nothing.
5. The last line is `N passed, N failed, N skipped`, over all parts; the status is 0 only if nothing failed.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tools import lint
from tools.binaries import ServerNotHadError
from tools.lint import ROOT, Check
from tools.running import Counts, watch
from tools.screen import Screen
from tools.servers import MISSING, NO_SERVER, URL, redis_url

SHORT = "not long and not full"
DECLARED = ("capability: ", "hook: ")
"""How the reason of a skip begins that a store, or its subject, has declared: the contract's matrix fails for any other."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part; `name` is what `./dev test NAME` takes."""

    name: str
    what: str
    folder: str = ""  # of tests
    program: str = ""  # a module
    checks: str = ""  # lint or types
    whole: tuple[str, ...] = ()  # pytest's options where all its tests run
    workers: int = 0  # processes that share its tests
    long: bool = False  # no part of `./dev test`
    server: bool = False  # it needs a Redis
    shows: bool = False  # its output is worth reading when all is well
    minutes: int = 10  # after which it hangs; no limit for `all`


PARTS = (
    Part("lint", "ruff: rules and format", checks="lint"),
    Part("types", "mypy and pyright, strict", checks="types"),
    Part("house", "the rules of style that a machine can keep", "tests/house"),
    Part("flows", "each algorithm, step by step, without I/O", "tests/flows"),
    Part("simulation", "seeded schedules with faults", "tests/simulation"),
    Part("contract", "every rule on every store, blocking and asyncio", "tests/contract", whole=("--matrix",), workers=2, server=True),
    Part("stores", "what one store alone promises", "tests/stores", workers=2, server=True),
    Part("locks", "the faces, the keeper, bad input", "tests/locks", workers=2, server=True),
    Part("docs", "every example runs", "tests/docs", server=True),
    Part("refinement", "random programs: every store answers as the model does", "tests/refinement", long=True, server=True),
    Part(
        "mutants", "broken stores and flows: each must be caught", program="tools.mutants", long=True, server=True, shows=True, minutes=20
    ),
    Part("processes", "real processes, killed and stopped", "tests/processes", long=True, server=True, shows=True),
    Part("package", "the wheel, in an empty environment", "tests/package", long=True, server=True),
)
# The tests marked `long` of all short parts, in one run.
SLICES = Part("slices", "the slower tests of the short parts", "tests", workers=2, long=True, server=True)


@dataclass(slots=True)
class Result:
    """How a part went."""

    part: Part
    counts: Counts
    seconds: float
    output: str = ""

    @property
    def line(self) -> str:
        """In one line."""
        counts = [f"{self.counts.passed} passed"] if self.counts.passed else []
        counts += [f"{len(self.counts.failed)} FAILED"] if self.counts.failed else []
        counts += [f"{len(self.counts.skipped)} skipped"] if self.counts.skipped else []
        return f"{self.part.name:<12}{self.seconds:7.1f} s   {', '.join(counts) or 'nothing to run'}"


@dataclass(slots=True)
class Run:
    """One run of some parts, in one size."""

    size: str
    parts: Sequence[Part]
    options: Sequence[str]
    screen: Screen = field(default_factory=Screen)
    results: list[Result] = field(default_factory=list[Result])

    def go(self) -> int:
        """Run all parts; 0 if nothing failed."""
        began = time.monotonic()
        with server_for(self.parts, self.screen):
            for index, part in enumerate(self.parts, 1):
                result = self.part(part, f"[{index}/{len(self.parts)}] {part.name}")
                self.results.append(result)
                self.screen.line(result.line)
                if result.output:
                    self.screen.line(result.output.rstrip() + "\n")
        return self.summary(time.monotonic() - began)

    def part(self, part: Part, head: str) -> Result:
        """Run one part."""
        self.screen.begin()
        began, counts, output = time.monotonic(), Counts(), ""
        if is_missing(part):
            counts.failed.append(f"{part.name}: it is missing")
            return Result(part, counts, 0.0)
        for check in self.checks(part):
            done = watch(check, counts, self.limit(part), lambda: self.progress(head, counts, began))
            output += done.output if done.failed or part.shows else ""
        if not (counts.done or self.options or (self.size == "long" and not part.long)):  # not every short part has long tests
            counts.failed.append(f"{part.name}: nothing ran")
        return Result(part, counts, time.monotonic() - began, output)

    def checks(self, part: Part) -> list[Check]:
        """The processes of a part."""
        if part.checks:
            return lint.lint() if part.checks == "lint" else lint.types()
        if part.program:
            return [Check(part.program, (sys.executable, "-m", part.program), kind="program")]
        selection = {"short": "not full" if part.long else SHORT, "long": "not full" if part.long else "long", "all": ""}[self.size]
        selection = "long and not full" if part is SLICES else selection
        spread = ("-n", str(part.workers)) if part.workers else ("-p", "no:xdist")
        command = (sys.executable, "-m", "pytest", "-p", "tools.told", "--quiet", "--tb=short", "-rN", *spread, "-m", selection)
        options = self.options if self.options or self.size == "long" else part.whole
        return [Check(part.folder, (*command, *self.folders(part), *options), kind="tests")]

    def folders(self, part: Part) -> list[str]:
        """Where a part's tests lie."""
        if part is not SLICES:
            return [part.folder]
        return [other.folder for other in PARTS if other.folder and not other.long and (ROOT / other.folder).exists()]

    def limit(self, part: Part) -> float:
        """Seconds after which a part hangs."""
        return float("inf") if self.size == "all" else part.minutes * 60.0

    def progress(self, head: str, counts: Counts, began: float) -> None:
        """Show how far a part is."""
        failed = f"{len(counts.failed)} FAILED  " if counts.failed else ""
        self.screen.progress(head, counts.done, counts.total, f"{failed}{time.monotonic() - began:.0f} s")

    def summary(self, seconds: float) -> int:
        """Name what was skipped and what failed; the last line is the sum."""
        failed = [test for result in self.results for test in result.counts.failed]
        skipped = [skip for result in self.results for skip in result.counts.skipped]
        if os.environ.get("CI") == "true":
            without = [test for test, reason in skipped if reason.startswith(NO_SERVER)]
            failed += [f"{test} (skipped, since there is no server; with CI=true that is a failure)" for test in without]
            skipped = [skip for skip in skipped if skip[0] not in set(without)]
        self.screen.line()
        for line in reasons(skipped):
            self.screen.line(line)
        for test in failed:
            self.screen.line(f"FAILED {test}")
        passed = sum(result.counts.passed for result in self.results)
        self.screen.line(f"{seconds:.0f} s in all")
        self.screen.line(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
        return 1 if failed else 0


@contextmanager
def server_for(parts: Sequence[Part], screen: Screen) -> Generator[None]:
    """One Redis for all parts that need one; without one the tests are told why."""
    if os.environ.get(URL) or not any(part.server for part in parts):
        yield
        return
    screen.begin()
    screen.progress("a Redis for the tests", 0, 0, "")
    with ExitStack() as stack:
        try:
            os.environ[URL] = stack.enter_context(redis_url())
        except ServerNotHadError as error:
            os.environ[MISSING] = str(error)
            screen.line(f"{NO_SERVER}{error}")
        yield


def reasons(skipped: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Why something was skipped: what a store has declared in a line, anything else with the names of the tests."""
    for reason in sorted({reason for _, reason in skipped}):
        tests = Counter(test.partition("[")[0] for test, why in skipped if why == reason)
        if reason.startswith(DECLARED):
            yield f"skipped, as declared: {reason} ({tests.total()} cases)"
            continue
        yield f"skipped, {reason}:"
        yield from (f"  {test}{f' ({cases} cases)' if cases > 1 else ''}" for test, cases in tests.items())


def is_missing(part: Part) -> bool:
    """Whether there is nothing to run for a part."""
    if part.folder:
        return not any((ROOT / part.folder).glob("**/test_*.py"))
    return bool(part.program) and not (ROOT / f"{part.program.replace('.', '/')}.py").exists()


def chosen(size: str, names: Sequence[str]) -> list[Part]:
    """The parts of a run, in order."""
    if names:
        return [part for part in (*PARTS, SLICES) if part.name in names]
    if size == "long":
        return [SLICES, *(part for part in PARTS if part.long)]
    return [part for part in PARTS if size == "all" or not part.long]


def main(arguments: Sequence[str]) -> int:
    """Read the command line, and run."""
    cut = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    words, options = list(arguments[:cut]), list(arguments[cut:])
    if options[:1] in (["--list"], ["--help"], ["-h"]):
        print(__doc__)
        print("\n".join(f"  {part.name:<12}{part.what}{' (long)' if part.long else ''}" for part in (*PARTS, SLICES)))
        return 0
    size = words.pop(0) if words[:1] in (["short"], ["long"], ["all"]) else "short"
    unknown = set(words) - {part.name for part in (*PARTS, SLICES)}
    if unknown:
        print(f"./dev test: there is no part named {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    try:
        return Run(size, chosen(size, words), options).go()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
