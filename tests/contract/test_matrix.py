"""The table of the contract fails for whatever nothing declared explains."""

from types import SimpleNamespace

import pytest

from soloist.testing.contract import Subject
from tests.contract.matrix import RULES, WORLDS, Matrix, explained


def told(outcome, world, *, rules=tuple(RULES), why="", declared=False, when="call"):
    facts = {"rules": rules, "store": "some", "world": world} | ({"reason": f"Skipped: {why}", "explained": declared} if why else {})
    flags = {name: name == outcome for name in ("passed", "failed", "skipped")}
    return SimpleNamespace(user_properties=list(facts.items()), when=when, outcome=outcome, nodeid="a case", **flags)


@pytest.fixture
def matrix():
    """One in which all is proved in blocking use, and nothing is said of asyncio."""
    table = Matrix(["some"])
    table.pytest_runtest_logreport(told("passed", WORLDS[0]))
    return table


def test_a_rule_without_a_case_is_wrong(matrix):
    assert matrix.wrong() == [f"some, asyncio: rule {rule} is proved by no case" for rule in RULES]


def test_a_passed_case_fills_its_cells(matrix):
    matrix.pytest_runtest_logreport(told("passed", "asyncio"))
    assert matrix.wrong() == []


def test_a_skip_that_is_declared_explains_an_empty_cell(matrix):
    matrix.pytest_runtest_logreport(told("skipped", "asyncio", why="capability: push", declared=True))
    assert matrix.wrong() == []


def test_a_skip_that_nothing_declares_is_wrong_even_where_another_case_passed(matrix):
    matrix.pytest_runtest_logreport(told("passed", "asyncio"))
    matrix.pytest_runtest_logreport(told("skipped", "asyncio", why="hook: delete"))
    assert matrix.wrong() == ["some: hook: delete (1 cases, which nothing declared explains)"]


def test_a_case_that_cites_no_rule_is_wrong(matrix):
    matrix.pytest_runtest_logreport(told("passed", "asyncio"))
    matrix.pytest_runtest_logreport(told("passed", "asyncio", rules=()))
    assert matrix.wrong() == ["a case cites no rule (1 cases, which nothing declared explains)"]


def test_a_store_whose_server_cannot_be_had_is_left_out_by_name():
    matrix = Matrix(["some"])
    matrix.pytest_runtest_logreport(told("skipped", "asyncio", why="no server: none on PATH", when="setup"))
    assert matrix.wrong() == []
    assert list(matrix.lines())[-1] == "some is left out, no server: none on PATH"


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("capability: push", True),
        ("capability: listing", False),
        ("hook: server", True),
        ("hook: delete", False),
        ("it is slow", False),
    ],
)
def test_what_counts_as_a_reason(reason, counts):
    class Polled:
        capabilities = SimpleNamespace(push="", listing=True)

    subject = Subject(url="some://", connect=lambda *_, **__: Polled(), without={"server": "it is a file"})
    assert explained(SimpleNamespace(funcargs={"ask": SimpleNamespace(subject=subject)}), f"Skipped: {reason}") is counts


@pytest.mark.parametrize("without", [{"server": ""}, {"delete": "we have none"}, {"bell": "there is no such hook"}])
def test_a_subject_lacks_only_what_is_not_there_and_says_why(without):
    with pytest.raises(AssertionError, match="without="):
        Subject(url="some://", delete=print, without=without)
