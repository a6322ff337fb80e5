"""Whatever a user can meet has its place in the docs: events, errors, settings, stores, decisions."""

import re
from collections.abc import Iterable
from pathlib import Path

from soloist.stores import TABLE
from tests.house.source import PACKAGE, ROOT, Function, classes, functions, short, tree

DOCS = ROOT / "docs"
DECISION = ["Question", "Choice", "Why", "Rejected", "Price", "Come back if"]
STORE_PAGE = ["In one minute", "What it gives", "How it works", "Set it up", "When it fails", "What it can't do", "Look inside"]
LONGEST_STORE_PAGE = 100
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"```.*?```", re.DOTALL)
WORD_OF_DECISION = re.compile(r"^(?:#+ +|\*\*|\*)([A-Z][a-z ]+?)[.:]?(?:\*|\s*$)", re.MULTILINE)


def pages(folder: str = "") -> list[Path]:
    """The pages below a folder; with none, the README and its kin, too."""
    return [*([] if folder else sorted(ROOT.glob("*.md"))), *sorted((DOCS / folder).rglob("*.md"))]


def without_a_place(words: Iterable[str]) -> list[str]:
    """Those that no heading and no first cell of a table's row in docs/reference names, in backticks."""
    reference = "\n".join(page.read_text(encoding="utf-8") for page in pages("reference"))
    return [word for word in words if not re.search(rf"^(#+ .*|\|[^|]*)`{re.escape(word)}\b", reference, re.MULTILINE)]


def settings() -> set[str]:
    """What can be set: the keywords of Soloist, and those of a lock and of a semaphore."""
    named = [node for node in functions(tree(PACKAGE / "_client.py")) if node.name in {"__init__", "lock", "semaphore", "exclusive"}]
    return {argument for node in named for argument in keywords(node)}


def keywords(node: Function) -> list[str]:
    """A function's keyword-only arguments."""
    return [argument.arg for argument in node.args.kwonlyargs if not argument.arg.startswith("_")]


def test_docs_name_each_event() -> None:
    assert not without_a_place(classes(PACKAGE / "events.py"))


def test_docs_name_each_error() -> None:
    assert not without_a_place(name for name in classes(PACKAGE / "errors.py") if not name.startswith("_"))


def test_docs_name_each_setting() -> None:
    assert not without_a_place(sorted(settings()))


def test_docs_name_each_variable() -> None:
    assert not without_a_place(["SOLOIST_URL", "SOLOIST_NAMESPACE"])


def test_docs_name_each_scheme() -> None:
    assert not without_a_place(scheme for family in TABLE for scheme in family.schemes)


def test_the_map_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where things are")[2]
    drawn: set[str] = set()
    above: list[str] = []
    for line in text.split("```")[1].strip().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [line.split()[0]]
        drawn |= {"".join([*above[:depth], name]) for name in re.findall(r"(?:^ *|  )([a-z_]+/|[a-z_]+\.py|src/soloist/)(?= |$)", line)}
    found = [path for path in [*PACKAGE.glob("*"), *PACKAGE.glob("*/*"), *(ROOT / "tests").glob("*/")] if path.name[:2] != "__"]
    folders = {path for path in found if path.is_dir() and any(inner.name != "__pycache__" for inner in path.iterdir())}
    here = {f"{short(path)}/" for path in folders} | {short(path) for path in found if path.suffix == ".py"}
    assert here - {"tests/conftest.py"} == drawn - {"src/soloist/", "tests/", "tools/"}


def test_docs_of_stores_have_the_same_headings() -> None:
    for page in (DOCS / "stores" / f"{family.module}.md" for family in TABLE):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^## (.*?)\s*$", FENCE.sub("", text), re.MULTILINE) == STORE_PAGE, short(page)
        assert len(text.splitlines()) <= LONGEST_STORE_PAGE, short(page)


def test_docs_of_decisions_have_the_same_headings() -> None:
    for page in pages("decisions"):
        if page.name[0].isdigit():
            found = WORD_OF_DECISION.findall(page.read_text(encoding="utf-8"))
            assert [word for word in found if word in DECISION] == DECISION, short(page)


def test_docs_link_to_what_is_there() -> None:
    links = [(page, link.partition("#")[0]) for page in pages() for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))]
    ours = [(page, link) for page, link in links if link and "://" not in link and not link.startswith("mailto:")]
    assert not [f"{short(page)}: {link}" for page, link in ours if not (page.parent / link).exists()]
