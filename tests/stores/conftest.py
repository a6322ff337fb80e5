"""Fixtures of the stores' own tests."""

import pytest

from soloist._world import run
from soloist.stores import open_store
from tests.stores.sqlites import Host


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


@pytest.fixture
def opened():
    stores = []

    def open_(path, query="", *, aio=False):
        stores.append(open_store(f"sqlite:///{path}{query}", "so", aio=aio))
        return stores[-1]

    yield open_
    for store in stores:
        if not store._file._aio:
            run(store.close())


@pytest.fixture
def host():
    return Host()
