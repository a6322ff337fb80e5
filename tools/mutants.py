"""Broken stores and flows, each of which an ordinary test or seed must catch: `./dev test mutants [name ...]`.

tests/mutants/*.toml names them: a file, the lines as they are, the lines as they would be wrong (lists, where they lie apart),
and where to look first.

1. A mutant is made in a copy of `src`, which the tests import instead. Only one with its lines there exactly once, and with
   five changed ones at most, is a mutant. The tests are copied, too, so that nobody's editing catches anything.
2. The parts are asked one after the other until one of their tests fails. One that none catches has survived, and fails the run.
3. What can't even be collected has caught nothing, nor has a test that fails without the mutant, too: all that caught one
   are asked again with the source as it is.
4. Each mutant has a Redis of its own: a broken store writes nonsense.
"""

import compileall
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tools.binaries import ServerNotHadError
from tools.lint import ROOT
from tools.servers import MISSING, NO_SERVER, URL, redis_server
from tools.told import FILE

LINES = 5
"""A mutant's diff changes no more lines than this."""

PATIENCE = 300
"""Seconds that a part may take with a mutant. What hangs has caught nothing: a busy machine looks the same."""

AT_ONCE = 3
"""Mutants that are judged at a time; some tests wait more than they work."""

SEEDS = "seeds"
"""The part that isn't a folder: schedules of the simulator, `SCHEDULES` of them or as many as stand behind it."""

SCHEDULES = 3000
FIRST_SEED = 700_001  # as in tests/simulation

SEED_FAILED = 3
SIMULATE = f"""
import sys
from soloist.testing.simulator import simulate
first, many = map(int, sys.argv[1:])
for seed in range(first, first + many):
    for one in simulate(seed).violations:
        print(f"seed {{seed}}: {{one.rule}}: {{one.text}}")
        sys.exit({SEED_FAILED})
"""

COPIED = ("src", "tests", "tools", "pyproject.toml")
"""All that a test needs."""

FIRST = ("flows", SEEDS, "simulation", "contract", "stores", "locks")
"""Parts, in the order in which they are asked after those that the mutant names."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken piece."""

    name: str
    file: str
    hunks: tuple[tuple[str, str], ...]
    look: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """The lines that differ."""
        pairs = [(before.splitlines(), after.splitlines()) for before, after in self.hunks]
        lines = [line for before, after in pairs for line in difflib.unified_diff(before, after, lineterm="", n=0)]
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]

    @property
    def changed(self) -> int:
        """How many lines it changes, takes away or adds."""
        return max(sum(line.startswith(sign) for line in self.diff) for sign in "+-")

    def made(self, text: str) -> str:
        """The broken text."""
        for before, after in self.hunks:
            text = text.replace(before, after)
        return text

    def fault(self, text: str) -> str:
        """Why it can't be made of this text; empty if it can."""
        for before, _ in self.hunks:
            if (found := text.count(before)) != 1:
                return f"its lines are found {found} times in {self.file}"
        if not 0 < self.changed <= LINES:
            return f"it changes {self.changed} lines"
        return unreadable(self.made(text)) if self.file.endswith(".py") else ""


def unreadable(text: str) -> str:
    """Why this is no Python; empty if it is."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"it can't be read as Python: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant: who caught it, or what is wrong; neither if nothing could be said here."""

    mutant: Mutant
    caught: str = ""
    wrong: str = ""
    unsaid: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        shown = "\n".join(f"      {line}" for line in self.mutant.diff)
        verdict = f"caught by {self.caught}" if self.caught else self.wrong or f"skipped, {self.unsaid}"
        return f"{self.mutant.name}  ({self.mutant.file}, {self.seconds:.1f} s)\n{shown}\n    {verdict}"


def load(names: Sequence[str]) -> Iterator[Mutant]:
    """The mutants of that name, or all; a page's name stands for all of its mutants."""
    for page in sorted((ROOT / "tests/mutants").glob("*.toml")):
        for entry in tomllib.loads(page.read_text())["mutant"]:
            hunks = zip(texts(entry["before"]), texts(entry["after"]), strict=True)
            mutant = Mutant(entry["name"], entry["file"], tuple(hunks), tuple(entry["look"]))
            if not names or {mutant.name, page.stem} & set(names):
                yield mutant


def texts(found: str | list[str]) -> list[str]:
    """What lies in one place or in several."""
    return [text.strip("\n") for text in ([found] if isinstance(found, str) else found)]


@dataclass(frozen=True, slots=True)
class Asked:
    """The tests, and what they are asked about: a copy of the project, and a source that may be another's."""

    project: Path
    source: Path
    environ: dict[str, str]


def judge(mutant: Mutant, project: Path) -> Fate:
    """Make it, and ask part after part."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soloist-mutant-") as folder, servers() as environ:
        asked = Asked(project, Path(folder, "src"), environ)
        shutil.copytree(project / "src", asked.source)
        target = Path(folder, mutant.file)
        text = target.read_text()
        nowhere = [part for part in mutant.look if not part.startswith(SEEDS) and not (project / "tests" / part.partition(" ")[0]).exists()]
        if fault := mutant.fault(text) or ", ".join(f"there is no {part}" for part in nowhere):
            return Fate(mutant, wrong=f"NOT APPLICABLE: {fault}")
        target.write_text(mutant.made(text))
        for stale in target.parent.glob(f"__pycache__/{target.stem}.*"):
            stale.unlink()
        for part in dict.fromkeys((*mutant.look, *FIRST)):
            if caught := ask(part, asked):
                return Fate(mutant, caught, seconds=time.monotonic() - began)
    if MISSING in environ and "redis" in mutant.file:
        return Fate(mutant, unsaid=f"{NO_SERVER}{environ[MISSING]}", seconds=time.monotonic() - began)
    return Fate(mutant, wrong="SURVIVED", seconds=time.monotonic() - began)


@contextmanager
def servers() -> Generator[dict[str, str]]:
    """The tests' environment, with a Redis that nobody else uses."""
    environ = {name: value for name, value in os.environ.items() if name not in {URL, "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"}}
    try:
        with redis_server() as server:
            yield environ | {URL: server.url}
    except ServerNotHadError as error:
        yield environ | {MISSING: str(error)}


def ask(part: str, asked: Asked) -> str:
    """The first test or seed of a part that fails with this source, or nothing.

    A part is a folder or a file of tests, with words behind it those that pytest's -k selects; or `seeds`, and how many.
    """
    place, _, words = part.partition(" ")
    if place == SEEDS:
        return next(iter(failing_seeds(FIRST_SEED, int(words or SCHEDULES), asked)), "")
    if not (asked.project / "tests" / place).exists():
        return ""
    selection = [f"tests/{place}", "-x"] + (["-k", words] if words else [])
    return next(iter(failing_tests(selection, asked)), "")


def failing_tests(selection: Sequence[str], asked: Asked) -> list[str]:
    """The tests that fail with this source. Those that need a plugin from elsewhere aren't among them: to load it takes a second."""
    options = ("-m", "pytest", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "tools.told")
    with tempfile.NamedTemporaryFile(prefix="soloist-told-") as told:
        done((*options, *selection), asked, {FILE: told.name, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        events = [json.loads(line) for line in Path(told.name).read_text().splitlines()]
    return [event["test"] for event in events if event.get("outcome") == "failed" and "::" in event["test"]]


def failing_seeds(first: int, many: int, asked: Asked) -> list[str]:
    """The first of these seeds whose schedule goes wrong with this source, and how."""
    status, said = done(("-c", SIMULATE, str(first), str(many)), asked)
    return said.splitlines() if status == SEED_FAILED else []


def done(arguments: Sequence[str], asked: Asked, more: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """A Python's status and what it said; no status if it had to be ended, with all that it had started."""
    process = subprocess.Popen(
        (sys.executable, *arguments),
        cwd=asked.project,
        env={**asked.environ, **(more or {}), "PYTHONPATH": str(asked.source)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, said


def faithless(catches: Sequence[str], project: Path) -> set[str]:
    """Those of the tests and seeds that fail with this source, which nobody broke."""
    tests = sorted({catch for catch in catches if catch.startswith("tests/") and "::" in catch})
    seeds = {int(match[1]): catch for catch in catches if (match := re.match(r"seed (\d+):", catch))}
    with servers() as environ:
        asked = Asked(project, project / "src", environ)
        failed = set(failing_tests(tests, asked)) if tests else set[str]()
        return failed | {catch for seed, catch in seeds.items() if failing_seeds(seed, 1, asked)}


def main(names: Sequence[str]) -> int:
    """Judge them, some at a time; 1 if one survives."""
    mutants = list(load(names))
    fates: list[Fate] = []
    sys.pycache_prefix = None  # the copies' bytecode lies beside them
    with tempfile.TemporaryDirectory(prefix="soloist-mutants-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, Path(folder, name))
        compileall.compile_dir(folder, quiet=2)
        for fate in pool.map(judge, mutants, [Path(folder)] * len(mutants)):
            print(fate, flush=True)
            fates.append(fate)
        doubtful = faithless([fate.caught for fate in fates], Path(folder))
    fates = [replace(fate, caught="", wrong=f"{fate.caught} fails without it, too") if fate.caught in doubtful else fate for fate in fates]
    wrong = [fate for fate in fates if fate.wrong]
    for fate in wrong:
        print(f"{fate.mutant.name}: {fate.wrong}")
    skipped = sum(bool(fate.unsaid) for fate in fates)
    print(f"{len(fates) - len(wrong) - skipped} passed, {len(wrong)} failed, {skipped} skipped")
    return 1 if wrong or not fates else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
