"""What is generated in the pages is current: `./dev docs --write` makes it so."""

from tools import tables


def test_generated_tables_are_current() -> None:
    assert not [page.relative_to(tables.ROOT).as_posix() for page in tables.stale()]


def test_every_store_stands_in_the_readme() -> None:
    readme = (tables.ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- generated: stores -->" in readme
    assert all(f"`{scheme}://`" in readme for family in tables.TABLE for scheme in family.schemes)


def test_every_store_page_shows_its_capabilities() -> None:
    pages = {family.module: tables.ROOT / "docs" / "stores" / f"{family.module}.md" for family in tables.TABLE}
    assert not [name for name, page in pages.items() if f"<!-- generated: capabilities {name} -->" not in page.read_text(encoding="utf-8")]
