"""Broken stores and flows, each of which an ordinary test or seed must catch: `./dev test mutants [name ...]`.

tests/mutants/*.toml names them: a file, the lines as they are, the lines as they would be wrong, and where to look first.
A mutant is made in a copy of `src`; the parts are asked one after the other until one of their tests fails. One that no
part catches survives, and fails the run; so does one whose lines are no longer there, or that is longer than five lines.
"""

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools.lint import ROOT
from tools.servers import redis_url

LINES = 5
"""A mutant's diff changes no more lines than this."""

PATIENCE = 120
"""Seconds that a part may take with a mutant; one that hangs has been noticed, too."""

FIRST = ("flows", "simulation", "contract", "stores", "locks")
"""Parts, in the order in which they are asked after those that the mutant names."""

TESTS_FAILED = 1
"""pytest's status; with any other one it could not even begin, which catches nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken piece."""

    name: str
    file: str
    before: str
    after: str
    look: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """The lines that differ."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=0)
        return [line for line in lines if not line.startswith(("---", "+++", "@@"))]

    @property
    def changed(self) -> int:
        """How many lines it changes, takes away or adds."""
        return max(sum(line.startswith(sign) for line in self.diff) for sign in "+-")


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant."""

    mutant: Mutant
    caught: str
    seconds: float

    def __str__(self) -> str:
        shown = "\n".join(f"      {line}" for line in self.mutant.diff)
        verdict = f"caught by {self.caught}" if self.caught else "SURVIVED"
        return f"{self.mutant.name}  ({self.mutant.file}, {self.seconds:.1f} s)\n{shown}\n    {verdict}"


def load(names: Sequence[str]) -> Iterator[Mutant]:
    """The mutants of that name, or all."""
    for page in sorted((ROOT / "tests/mutants").glob("*.toml")):
        for entry in tomllib.loads(page.read_text())["mutant"]:
            mutant = Mutant(entry["name"], entry["file"], entry["before"].strip("\n"), entry["after"].strip("\n"), tuple(entry["look"]))
            if not names or mutant.name in names:
                yield mutant


def judge(mutant: Mutant) -> Fate:
    """Make it, and ask part after part."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soloist-mutant-") as copy:
        shutil.copytree(ROOT / "src", f"{copy}/src", ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(copy, mutant.file)
        text = target.read_text()
        if text.count(mutant.before) != 1 or not 0 < mutant.changed <= LINES:
            return Fate(mutant, "", 0.0)
        target.write_text(text.replace(mutant.before, mutant.after))
        for part in dict.fromkeys((*mutant.look, *FIRST)):
            if caught := ask(part, f"{copy}/src"):
                return Fate(mutant, caught, time.monotonic() - began)
    return Fate(mutant, "", time.monotonic() - began)


def ask(part: str, source: str) -> str:
    """The first test of a part that fails with this source, or nothing. `part` may go on with a file: `contract/test_x.py`."""
    folder, _, words = part.partition(" ")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:xdist", "-p", "no:cacheprovider", f"tests/{folder}"]
    command += ["-k", words] if words else []
    environ = os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"tests/{folder}, which never ended"
    if done.returncode != TESTS_FAILED:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found[1] if found else f"tests/{folder}"


def main(names: Sequence[str]) -> int:
    """Judge them, two at a time; 1 if one survives."""
    mutants = list(load(names))
    with ExitStack() as stack:
        if "SOLOIST_TEST_REDIS_URL" not in os.environ:
            os.environ["SOLOIST_TEST_REDIS_URL"] = stack.enter_context(redis_url())
        with ThreadPoolExecutor(2) as pool:
            fates = []
            for fate in pool.map(judge, mutants):
                print(fate, flush=True)
                fates.append(fate)
    survived = [fate for fate in fates if not fate.caught]
    for fate in survived:
        print(f"SURVIVED, or not applicable any more: {fate.mutant.name}")
    print(f"{len(fates) - len(survived)} passed, {len(survived)} failed, 0 skipped")
    return 1 if survived or not fates else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
