"""The table of what was proved: cases per rule, store and world.

A rule of which no case ran on a store must be explained by what the store declares, and so must every case that was skipped:
`capability: x` by its capabilities, `hook: x` by its subject's `without`, which says why it can't have one. Anything else
fails the run. Only a store whose server can't be had at all is left out, and the table says so.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from soloist import contract
from tools.servers import NO_SERVER

RULES = {int(number): " ".join(text.split()) for number, text in re.findall(r"^(\d+)\. +(.+?)[.:;(]", contract.__doc__ or "", re.MULTILINE)}
CITED = re.compile(r"\ARules? ((?:\d+(?:, | and )?)+)")
WORLDS = ("blocking", "asyncio")
WIDTH = 46


def rules_of(item: pytest.Function) -> list[int]:
    """The rules that a case cites."""
    cited = CITED.match(item.function.__doc__ or "")
    return [int(number) for number in re.findall(r"\d+", cited.group(1))] if cited else []


def explained(item: pytest.Function, reason: str) -> bool:
    """Whether what a store or its subject declares is the reason of a skip."""
    kind, _, name = reason.removeprefix("Skipped: ").partition(": ")
    subject = item.funcargs["ask"].subject
    if kind == "capability":
        return getattr(subject.connect(subject.url, "contract", aio=False).capabilities, name) in (False, "", "none")
    return kind == "hook" and name in subject.without


class Matrix:
    """Gathers every report, in the process that prints."""

    def __init__(self, stores: Iterable[str]) -> None:
        self.columns = [(store, world) for store in stores for world in WORLDS]
        self.cells: dict[tuple[int, str, str], Counter[str]] = {}
        self.unexplained: Counter[str] = Counter()
        self.absent: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case: passed, failed, or skipped with or without a reason that counts."""
        facts = dict(report.user_properties)
        if "rules" not in facts or (report.when != "call" and report.passed):
            return
        reason = str(facts.get("reason")).removeprefix("Skipped: ")
        if report.when == "setup" and reason.startswith(NO_SERVER):
            self.absent[facts["store"]] = reason
            return
        outcome = "explained" if report.skipped and facts.get("explained") else report.outcome
        if outcome == "skipped":
            self.unexplained[f"{facts['store']}: {reason}"] += 1
        if not facts["rules"]:
            self.unexplained[f"{report.nodeid} cites no rule"] += 1
        for rule in facts["rules"]:
            self.cells.setdefault((rule, facts["store"], facts["world"]), Counter())[outcome] += 1

    def wrong(self) -> list[str]:
        """What makes the table less than a proof."""
        empty = [
            f"{store}, {world}: rule {rule} is proved by no case"
            for store, world in self.columns
            for rule in RULES
            if store not in self.absent and self.empty(rule, store, world)
        ]
        return [f"{reason} ({cases} cases, which nothing declared explains)" for reason, cases in self.unexplained.items()] + empty

    def empty(self, rule: int, store: str, world: str) -> bool:
        """Whether no case passed, and what is declared isn't why."""
        cell = self.cells.get((rule, store, world), Counter())
        return not cell["passed"] and set(cell) != {"explained"}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """An empty cell fails the run."""
        if self.wrong() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and what is wrong with it."""
        terminalreporter.section("cases per rule, store and world (+n: skipped, as declared)")
        for line in self.lines():
            terminalreporter.write_line(line)
        for line in self.wrong():
            terminalreporter.write_line(line, red=True)

    def lines(self) -> Iterator[str]:
        """The table."""
        yield " " * WIDTH + "".join(f"{store:>10}" for store, _ in self.columns)
        yield " " * WIDTH + "".join(f"{world:>10}" for _, world in self.columns)
        for rule, text in RULES.items():
            cells = (self.cells.get((rule, *column), Counter()) for column in self.columns)
            yield f"{rule:>2} {text[: WIDTH - 4]:<{WIDTH - 3}}" + "".join(f"{shown(cell):>10}" for cell in cells)
        yield from (f"{store} is left out, {reason}" for store, reason in self.absent.items())


def shown(cell: Counter[str]) -> str:
    """A cell: how many cases passed, failed, were skipped."""
    parts = [str(cell["passed"]), f"!{cell['failed']}" * bool(cell["failed"]), f"?{cell['skipped']}" * bool(cell["skipped"])]
    return "".join(parts) + f"+{cell['explained']}" * bool(cell["explained"])
