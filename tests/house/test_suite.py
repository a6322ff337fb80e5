"""`./dev test` runs every folder of tests, takes nothing that is missing or empty for well, and sums up briefly."""

from pathlib import Path

import pytest

from tests.house.source import ROOT
from tools.running import Done
from tools.suite import PARTS, Part, Run, reasons

CONTRACT = next(part for part in PARTS if part.name == "contract")


def test_every_folder_with_tests_is_a_part() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert {folder.relative_to(ROOT).as_posix() for folder in folders} == {part.folder for part in PARTS if part.folder}


@pytest.mark.parametrize("long", [True, False])
def test_a_part_that_is_not_there_has_failed(long: bool) -> None:
    missing = Part("missing", "", "tests/missing", long=long)
    assert Run("all", [missing], []).part(missing, "").counts.failed == ["missing: it is missing"]


@pytest.mark.parametrize(
    ("size", "long", "options", "fails"),
    [
        ("short", False, [], True),
        ("all", False, [], True),
        ("long", True, [], True),
        ("long", False, [], False),
        ("short", False, ["-k", "nothing"], False),
    ],
)  # fmt: skip - a table
def test_a_part_in_which_nothing_ran_has_failed(
    size: str, long: bool, options: list[str], fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.suite.watch", lambda *_: Done(failed=False, output=""))
    (tmp_path / "test_empty.py").touch()
    empty = Part("empty", "", str(tmp_path), long=long)
    assert Run(size, [empty], options).part(empty, "").counts.failed == ["empty: nothing ran"] * fails


@pytest.mark.parametrize(
    ("size", "options", "asked"), [("short", [], True), ("all", [], True), ("long", [], False), ("short", ["-x"], False)]
)
def test_the_whole_contract_must_fill_its_matrix(size: str, options: list[str], asked: bool) -> None:
    (check,) = Run(size, [CONTRACT], options).checks(CONTRACT)
    assert ("--matrix" in check.command) is asked


def test_what_is_declared_is_summed_up_in_a_line() -> None:
    skipped = [(f"tests/a.py::test_{at}", "capability: push") for at in range(40)]
    assert list(reasons(skipped)) == ["skipped, as declared: capability: push (40 cases)"]


def test_what_has_no_server_is_named() -> None:
    skipped = [
        ("tests/a.py::test_a[1]", "no server: none"),
        ("tests/a.py::test_a[2]", "no server: none"),
        ("tests/a.py::test_b", "no server: none"),
    ]
    assert list(reasons(skipped)) == ["skipped, no server: none:", "  tests/a.py::test_a (2 cases)", "  tests/a.py::test_b"]
