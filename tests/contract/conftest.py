"""The contract's subjects, and its table: `python -m pytest tests/contract --matrix`."""

from collections.abc import Generator

import pytest

from soloist.testing.contract import Subject
from tests.contract.matrix import Matrix, explained, rules_of
from tests.subjects import KINDS, STORES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="print the contract's cases per rule, store and world; an empty cell fails")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--matrix", default=False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Matrix(STORES), "matrix")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "subject" in item.fixturenames:
            params = item.callspec.params
            facts = {"rules": rules_of(item), "store": params["subject"], "world": params.get("world", "blocking")}
            item.user_properties += facts.items()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if isinstance(item, pytest.Function) and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        report.user_properties += [("reason", reason), ("explained", report.when == "call" and explained(item, reason))]
    return report


@pytest.fixture(scope="session", params=STORES)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Subject]:
    """The stores under test, one after another."""
    kind = KINDS[request.param]
    with kind.subject(kind.url(request, tmp_path_factory.mktemp(request.param))) as one:
        yield one
