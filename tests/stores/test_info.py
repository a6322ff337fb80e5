"""What a holder says of itself has one size, whatever store it lies in."""

from __future__ import annotations

import pytest

from soloist._world import run
from soloist.contract import Grant
from soloist.errors import TooLarge
from soloist.stores import open_store
from soloist.stores._info import MAX_INFO, encoded

pytest_plugins = ("tests.stores.redis_fixtures",)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def any_store(request, path, space):
    url = {"memory": lambda: "memory://info", "sqlite": lambda: f"sqlite:///{path}"}.get(request.param)
    opened = open_store(url() if url else request.getfixturevalue("server").url, space, aio=False)
    yield opened
    run(opened.close())


def test_every_store_takes_the_same_info_to_the_byte(any_store):
    fits = {"é": "é", "n": 1, "x": "x" * (MAX_INFO - len(encoded({"é": "é", "n": 1, "x": ""})))}
    grant = run(any_store.claim("k", "mine/1", 60, info=fits))
    assert isinstance(grant, Grant)
    assert run(any_store.look("k"))[0].info == fits
    larger = {**fits, "n": 10}
    for ask in (lambda: any_store.claim("k2", "mine/1", 60, info=larger), lambda: any_store.renew(grant, 60, info=larger)):
        with pytest.raises(TooLarge, match="shorten it") as caught:
            run(ask())
        assert (caught.value.size, caught.value.limit) == (MAX_INFO + 1, MAX_INFO)


def test_an_info_that_was_changed_is_encoded_anew():
    info = {"pid": 1}
    assert encoded(info) == '{"pid":1}'
    info["pid"] = 2
    assert encoded(info) == '{"pid":2}'
