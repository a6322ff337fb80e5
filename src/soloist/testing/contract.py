# ruff: noqa: F403 - the cases are many, and their names are their own
"""The proof of `soloist.contract`: one case after another that every store passes, in blocking use and in an event loop.

For a store of your own, a test module of three lines and a fixture:

    import pytest
    from soloist.testing.contract import *

    @pytest.fixture(scope="session")
    def subject():
        return Subject(url="duckdb:///tmp/locks.db", connect=soloist_duckdb.connect)

Every case runs twice, as `[blocking]` and as `[asyncio]`, and its docstring cites the rules that it proves. A case that needs a
capability which the store doesn't declare is skipped, and names it; another asserts that what isn't declared isn't there.
`Subject` says what else you can offer: a case that needs a hook which isn't there is skipped, and names it, too.

Every case takes a fresh key and cleans up nothing: run them in parallel (pytest-xdist), and on a server that is in use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from soloist.testing._contract.asking import Ask, Asyncio, Blocking, Connects, Subject, Untouched
from soloist.testing._contract.batches import *
from soloist.testing._contract.claiming import *
from soloist.testing._contract.failing import *
from soloist.testing._contract.fencing import *
from soloist.testing._contract.holding import *
from soloist.testing._contract.naming import *
from soloist.testing._contract.reading import *
from soloist.testing._contract.semaphores import *
from soloist.testing._contract.waiting import *
from soloist.testing._contract.wires import Bad, bad_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from soloist.contract import Store

FIXTURES = ("world", "ask", "store", "key", "bad", "set_clock")

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604 - too many to be named, and made to be taken all at once
    "Ask",
    "Connects",
    "Subject",
    "Untouched",
    *FIXTURES,
    *(name for name in globals() if name.startswith("test_")),
]


@pytest.fixture(params=["blocking", "asyncio"])
def world(request: pytest.FixtureRequest) -> str:
    """In which use the store is asked."""
    return str(request.param)


@pytest.fixture
def ask(world: str, subject: Subject) -> Iterator[Ask]:
    """Asks the store under test."""
    asking: Ask = Asyncio(subject) if world == "asyncio" else Blocking(subject)
    try:
        yield asking
    finally:
        asking.close()


@pytest.fixture
def store(ask: Ask) -> Store:
    """The store under test."""
    return ask.open()


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key that nobody ever used; it names its case to whoever meets it on a shared server."""
    return f"{request.function.__name__}/{os.urandom(6).hex()}"


@pytest.fixture
def bad(ask: Ask, key: str) -> Iterator[Bad]:
    """The store under test behind a wire that can be made bad."""
    behind = bad_wire(ask, key)
    try:
        yield behind
    finally:
        if behind.relay is not None:
            behind.relay.close()
