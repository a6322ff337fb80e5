"""The table of stores agrees with the files, the extras, the docs and the tests."""

import tomllib

import pytest

from soloist.stores import TABLE, Family
from tests.house.source import PACKAGE, ROOT

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
def test_each_store_runs_the_contract(family: Family) -> None:
    assert any(
        f"{scheme}" in path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "contract").rglob("*.py") for scheme in family.schemes
    )
