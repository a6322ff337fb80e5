"""A server that nobody else uses, and a store on it; the tests of Redis name this file as their plugin."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest
import redis

from soloist._world import run
from soloist.stores import open_store
from tools.binaries import ServerNotHadError
from tools.servers import NO_SERVER, redis_server


@pytest.fixture(scope="module")
def server():
    """A server that nobody else uses: what it counts, we did."""
    try:
        with redis_server() as own:
            yield own
    except ServerNotHadError as error:
        pytest.skip(f"{NO_SERVER}{error}")


@pytest.fixture
def space():
    return uuid4().hex[:12]


@pytest.fixture
def store(server, space):
    opened = open_store(server.url, space, aio=False)
    yield opened
    run(opened.close())


@pytest.fixture
def cli(server):
    with closing(redis.Redis(port=server.port, decode_responses=True)) as client:
        yield client
