"""A pytest plugin that tells the runner what happens: one line of JSON per event, in the file that SOLOIST_TEST_TOLD names.

{"total": 120}   {"test": "tests/flows/…", "outcome": "passed"}   {"test": …, "outcome": "skipped", "reason": "…"}
"""

import json
import os
from typing import cast

import pytest

FILE = "SOLOIST_TEST_TOLD"


def tell(**facts: str | int) -> None:
    """Append one event."""
    with open(os.environ[FILE], "a", encoding="utf-8") as told:  # noqa: PTH123 - this line runs once per test, and a Path costs more
        told.write(json.dumps(facts) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Listen in the process that hears of every test: pytest itself, or the one that distributes tests over workers."""
    if FILE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Teller(config), "soloist-told")


class Teller:
    """The hooks. A test with an error in its setup or teardown has failed, whatever its body did."""

    def __init__(self, config: pytest.Config) -> None:
        self.distributes = bool(config.getoption("numprocesses", None))
        self.passed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many tests there are."""
        if not self.distributes:
            tell(total=len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Tell it when the workers collect."""
        tell(total=len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a file that can't be imported, or that skips itself."""
        if not report.passed:
            self.conclude(report.nodeid, report.outcome, report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a test's end, or of what went wrong on the way there."""
        if report.when == "teardown" and report.passed:
            if report.nodeid in self.passed:
                tell(test=report.nodeid, outcome="passed")
        elif not report.passed:
            self.passed.discard(report.nodeid)
            self.conclude(report.nodeid, report.outcome, report.longrepr, getattr(report, "wasxfail", None))
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def conclude(self, test: str, outcome: str, why: object, expected: str | None = None) -> None:
        """Tell of what didn't pass; `expected` is the reason of an xfail."""
        if outcome == "failed":
            tell(test=test, outcome="failed")
        elif expected is not None:
            tell(test=test, outcome="skipped", reason=f"expected to fail: {expected}")
        else:
            _, _, reason = cast("tuple[str, int, str]", why)  # where, and why
            tell(test=test, outcome="skipped", reason=reason.removeprefix("Skipped: "))
