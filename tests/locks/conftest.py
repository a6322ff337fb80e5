"""A store of each kind, fresh keys, and waiting for what other threads and processes do."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable

import pytest

from soloist import AsyncSoloist, Soloist
from tests.subjects import KINDS, SHARED, STORES

COUNT = itertools.count()


@pytest.fixture
def key(request) -> str:
    """A key that no other test uses."""
    return f"{request.node.name[:60]}:{os.getpid()}:{next(COUNT)}"


@pytest.fixture(params=STORES)
def url(request, tmp_path) -> str:
    """A store of each kind."""
    return KINDS[request.param].url(request, tmp_path)


@pytest.fixture(params=SHARED)
def shared_url(request, tmp_path) -> str:
    """A store that several processes share."""
    return KINDS[request.param].url(request, tmp_path)


@pytest.fixture
def events() -> list:
    """What the client under test told."""
    return []


@pytest.fixture
def solo(url, events):
    """A client on each kind of store."""
    with Soloist(url, listeners=[events.append]) as client:
        yield client


@pytest.fixture
def local(tmp_path, events):
    """A client on memory, for what doesn't depend on the store."""
    with Soloist(f"memory://{tmp_path.name}", listeners=[events.append]) as client:
        yield client


@pytest.fixture
def aio(url, events):
    """An asyncio client on each kind of store; the test closes it in its own loop."""
    return AsyncSoloist(url, listeners=[events.append])


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until something is so; fail if it isn't in time."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it didn't happen in time"
        time.sleep(0.005)


async def until_in_loop(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """The same, without blocking the loop."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it didn't happen in time"
        await asyncio.sleep(0.005)
