"""The table of stores agrees with the files, the extras, the docs and the tests."""

import re
import subprocess
import sys
import tomllib

import pytest

from soloist.stores import TABLE, Family
from tests.house.source import PACKAGE, ROOT
from tests.subjects import SHARED, STORES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHER_EXTRAS: set[str] = set()  # those that are no scheme's

every_family = pytest.mark.parametrize("family", TABLE, ids=lambda family: family.module)


def test_each_public_file_is_a_line_of_the_table() -> None:
    assert {path.stem for path in (PACKAGE / "stores").glob("[a-z]*.py")} == {family.module for family in TABLE}


def test_no_scheme_stands_in_two_lines() -> None:
    schemes = [scheme for family in TABLE for scheme in family.schemes]
    assert len(schemes) == len(set(schemes))


def test_each_scheme_is_an_extra() -> None:
    assert {scheme for family in TABLE for scheme in family.schemes} | OTHER_EXTRAS == set(PROJECT["optional-dependencies"])


@every_family
def test_an_extra_brings_the_client_that_the_table_names(family: Family) -> None:
    for scheme in family.schemes:
        extra = PROJECT["optional-dependencies"][scheme]
        if family.client is None:
            assert extra == []
        else:
            assert any(need.startswith(family.client) or need == f"soloist[{family.schemes[0]}]" for need in extra)


def test_nothing_is_installed_unasked() -> None:
    assert PROJECT["dependencies"] == []


@every_family
def test_each_store_has_a_page(family: Family) -> None:
    page = ROOT / "docs" / "stores" / f"{family.module}.md"
    assert page.exists()
    assert all(f"{scheme}://" in page.read_text(encoding="utf-8") for scheme in family.schemes)


@every_family
def test_each_store_has_tests_of_its_own(family: Family) -> None:
    assert list((ROOT / "tests" / "stores").glob(f"test_{family.module}*.py"))


@every_family
def test_each_store_has_mutants(family: Family) -> None:
    assert (ROOT / "tests" / "mutants" / f"{family.module}.toml").exists()


@every_family
def test_each_example_is_of_its_store(family: Family) -> None:
    assert family.example.partition(":")[0] == family.schemes[0]


def test_each_file_of_subjects_is_a_store_of_the_table() -> None:
    assert {path.stem for path in (ROOT / "tests" / "subjects").glob("[a-z]*.py")} == {family.module for family in TABLE}


RUN_ON = {"contract": STORES, "locks": STORES, "refinement": STORES, "processes": SHARED}


@pytest.fixture(scope="module")
def collected() -> str:
    """The tests of those folders, a line each, with their parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-m", "", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *(f"tests/{folder}" for folder in RUN_ON)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("folder", RUN_ON)
def test_every_store_is_under_test(folder: str, collected: str) -> None:
    words = {word for words in re.findall(rf"^tests/{folder}/.+\[(.+)\]$", collected, re.MULTILINE) for word in words.split("-")}
    assert {family.module for family in TABLE} & words == set(RUN_ON[folder])


@every_family
def test_each_store_runs_the_contract_in_both_worlds(family: Family, collected: str) -> None:
    assert all(f"[{family.module}-{world}" in collected for world in ("blocking", "asyncio"))
