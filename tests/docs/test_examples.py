"""Every python block of README and docs runs as printed. The blocks of a page share their names, from top to bottom.

    ```python                runs, in an empty folder
    ```python alone          the same, with names of its own
    ```python needs redis    the same as the first, and only where a Redis can be had, whose URL takes the place of REDIS

A page has to end what it begins: whatever client a block leaves behind is closed here.
"""

import logging
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from soloist import AsyncSoloist, Soloist
from tools.tables import ROOT, pages

BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KINDS = {"", "alone", "needs redis"}
REDIS = "redis://localhost:6379/0"
PATIENCE = 20


@dataclass(frozen=True, slots=True)
class Block:
    """One example."""

    page: Path
    line: int
    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The examples of a page."""
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2]) for found in BLOCK.finditer(text)]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


with_examples = [page for page in pages() if blocks(page)]
without_server = [page for page in with_examples if any(block.kind != "needs redis" for block in blocks(page))]
with_server = [page for page in with_examples if any(block.kind == "needs redis" for block in blocks(page))]


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder and an environment without our settings; afterwards the log is as it was."""
    monkeypatch.chdir(tmp_path)
    for name in ("SOLOIST_URL", "SOLOIST_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    level = logging.getLogger("soloist").level
    yield tmp_path
    logging.getLogger("soloist").setLevel(level)


def run(block: Block, names: dict[str, object], redis: str = "") -> None:
    """Run one, so that a traceback shows its line in the page."""
    code = compile("\n" * block.line + block.text.replace(REDIS, redis or REDIS), str(block.page), "exec")
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE)
    try:
        exec(code, names)  # noqa: S102 - our own pages
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def too_long(*_: object) -> None:
    raise TimeoutError(f"an example took more than {PATIENCE} s")


def close(names: dict[str, object]) -> None:
    for value in list(names.values()):
        if isinstance(value, Soloist):
            value.close()
        elif isinstance(value, AsyncSoloist):
            value._desks.clear()


def fresh(page: Path) -> dict[str, object]:
    return {"__name__": f"page {named(page)}"}


@pytest.mark.parametrize("page", without_server, ids=named)
def test_examples_run(page: Path, in_a_folder: Path) -> None:
    shared = fresh(page)
    for block in blocks(page):
        if block.kind != "needs redis":
            names = fresh(page) if block.kind == "alone" else shared
            run(block, names)
            if names is not shared:
                close(names)
    close(shared)


@pytest.mark.parametrize("page", with_server, ids=named)
def test_examples_run_with_redis(page: Path, in_a_folder: Path, redis_url: str) -> None:
    names = fresh(page)
    for block in blocks(page):
        if block.kind != "alone":
            run(block, names, redis_url)
    close(names)


def test_examples_are_marked_with_a_known_word() -> None:
    assert not [f"{named(block.page)}:{block.line}" for page in with_examples for block in blocks(page) if block.kind not in KINDS]


def test_examples_need_a_server_only_where_they_say_so() -> None:
    unmarked = [block for page in with_examples for block in blocks(page) if block.kind != "needs redis" and "redis://" in block.text]
    assert not [f"{named(block.page)}:{block.line}" for block in unmarked if re.search(r"Soloist\(\s*f?.redis", block.text)]


def test_the_readme_has_one_python_block_first_and_it_stands_alone() -> None:
    first = blocks(ROOT / "README.md")[0]
    assert first.kind == ""
    assert "from soloist import" in first.text
