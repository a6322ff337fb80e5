"""The asyncio wire, with hiredis and with redis-py's own streams."""

from __future__ import annotations

import asyncio
import time

import pytest

from soloist.errors import ConfigError
from soloist.stores import open_store
from soloist.stores._redis import aio, links, scripts
from soloist.stores._redis.scripts import _packed
from tests.stores.redises import TTL, blocked
from tools.servers import redis_server

pytest_plugins = ("tests.stores.redis_fixtures",)


@pytest.fixture(params=["hiredis", "streams"])
def native(request, server, space, monkeypatch):
    if request.param == "streams":
        monkeypatch.setattr(aio, "LINK", links.StreamLink)
        monkeypatch.setattr(scripts, "pack", _packed)

    def driven(work):
        async def main():
            store = open_store(server.url, space, aio=True)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(main())

    return driven


def test_many_tasks_share_few_connections(native, cli, monkeypatch):
    monkeypatch.setattr(aio, "MOST", 4)

    async def work(store):
        await asyncio.gather(*(store.claim(f"m{number}", "a/1", TTL, info={}) for number in range(60)))
        return len(store._wire._pool().idle), len(await store.listing("m"))

    before = cli.info("clients")["connected_clients"]
    assert native(work)[0] <= 4
    assert cli.info("clients")["connected_clients"] <= before + 4


def test_a_cancelled_call_closes_its_connection_and_no_other(native):
    async def work(store):
        await store.ping()
        (link,) = store._wire._pool().idle
        task = asyncio.create_task(store.ping())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert link.closed
        assert store._wire._pool().idle == []
        assert store._wire._pool().busy == 0
        return await store.ping()

    assert native(work) > 0


def test_siblings_share_one_blocked_connection_and_are_served_in_turn(native, cli):
    async def work(store):
        grant = await store.claim("k", "a/1", TTL, info={})
        order = []

        async def waiter(number):
            busy = await store.claim("k", f"w{number}/1", TTL, info={}, will_wait=True)
            baton = await store.wait("k", busy.seen, within=2)
            order.append((number, baton is not None))
            await store.release(baton)

        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(waiter(number)))
            await asyncio.sleep(0.03)
        assert blocked(cli) == 1
        await store.release(grant)
        await asyncio.gather(*tasks)
        return order

    assert native(work) == [(0, True), (1, True), (2, True)]


def test_a_cancelled_wait_leaves_the_baton_to_its_sibling(native, cli):
    async def work(store):
        grant = await store.claim("k", "a/1", TTL, info={})
        seen = (await store.claim("k", "w/1", TTL, info={}, will_wait=True)).seen
        first, second = (asyncio.create_task(store.wait("k", seen, within=2)) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.sleep(0.02)
        await store.release(grant)
        assert (await second) is not None
        assert first.cancelled()

    native(work)


def test_a_baton_in_the_hand_of_a_cancelled_wait_goes_to_its_sibling(native):
    async def work(store):
        seen = await store.ping()
        first, second = (asyncio.create_task(store.wait("k", seen, within=2)) for _ in range(2))
        await asyncio.sleep(0.05)
        (turns,) = store._wire._pool().turns.values()
        turns.give(b"0 7 baton/7 1763500801001")
        first.cancel()
        assert (await second).fence == 7
        with pytest.raises(asyncio.CancelledError):
            await first

    native(work)


def test_the_last_wait_that_is_cancelled_ends_its_connection(native, cli):
    async def work(store):
        seen = await store.ping()
        for pause in (0, 0.05):
            task = asyncio.create_task(store.wait("k", seen, within=2))
            await asyncio.sleep(pause)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert store._wire._pool().turns == {}
            await asyncio.sleep(0.02)
            assert blocked(cli) == 0

    native(work)


def test_a_wait_without_room_or_time_comes_back_at_once(native, monkeypatch):
    monkeypatch.setattr(aio, "MOST", 1)

    async def work(store):
        seen = await store.ping()
        task = asyncio.create_task(store.wait("k", seen, within=2))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert [await store.wait("other", seen, within=within) for within in (2, 0.11, 0)] == [None] * 3
        assert time.monotonic() - began < 0.02
        task.cancel()

    native(work)


def test_a_wait_is_as_long_as_it_was_asked_for(native, monkeypatch):
    asked = []
    monkeypatch.setattr(aio, "pack", lambda command: asked.append(command) or scripts.pack(command))

    async def work(store):
        task = asyncio.create_task(store.wait("k", await store.ping(), within=20))
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()

    native(work)
    assert float(asked[-1][2]) == pytest.approx(19.9, abs=0.1)


def test_a_wait_with_a_refused_password_says_so(space):
    async def work(url):
        store = open_store(url, space, aio=True)
        with pytest.raises(ConfigError, match="wants a password"):
            await store.wait("k", 1.0, within=1)

    with redis_server("--requirepass", "word") as own:
        asyncio.run(work(own.url))


def test_each_event_loop_has_its_own_connections(server, space):
    store = open_store(server.url, space, aio=True)

    async def once():
        try:
            return await store.ping()
        finally:
            await store.close()

    assert asyncio.run(once()) <= asyncio.run(once())
