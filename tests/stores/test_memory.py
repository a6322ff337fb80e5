"""What memory alone promises: one store per URL and process, first come first served, and no growth."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from uuid import uuid4

import pytest

from soloist._world import run
from soloist.contract import Busy, Grant
from soloist.errors import ConfigError
from soloist.stores import open_store
from soloist.stores.memory import BATON, Model, Ticket


@pytest.fixture
def url():
    return f"memory://{uuid4().hex}"


def claim(store, token, key="k", **more):
    return run(store.claim(key, token, 30, info={}, **more))


def test_the_same_url_is_the_same_store(url):
    assert isinstance(claim(open_store(url, "so", aio=False), "a/1"), Grant)
    assert isinstance(claim(open_store(url, "so", aio=False), "b/1"), Busy)


@pytest.mark.parametrize("other", [("x", "so"), ("", "staging")], ids=["name", "namespace"])
def test_another_name_or_namespace_is_another_store(url, other):
    assert isinstance(claim(open_store(url, "so", aio=False), "a/1"), Grant)
    assert isinstance(claim(open_store(url + other[0], other[1], aio=False), "b/1"), Grant)


def test_a_forked_child_is_refused(url):
    store = open_store(url, "so", aio=False)
    claim(store, "a/1")
    child = os.fork()
    if child == 0:
        try:
            claim(store, "b/1")
        except ConfigError as error:
            os._exit(0 if "sqlite:///" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_may_open_a_store_of_its_own(url):
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(claim(open_store(url, "so", aio=False), "b/1"), Grant) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_waiters_get_in_in_the_order_in_which_they_came(url):
    store, order = open_store(url, "so", aio=False), []
    grant = claim(store, "first/1")
    waiting = [threading.Thread(target=take_turn, args=(store, number, order)) for number in range(5)]
    for thread in waiting:
        queued = len(store._shared.model._queues.get("k", ()))
        thread.start()
        while len(store._shared.model._queues.get("k", ())) == queued:  # until it is in the queue, or the order would be chance
            thread.join(0.001)
    run(store.release(grant))
    for thread in waiting:
        thread.join(10)
    assert order == [0, 1, 2, 3, 4]


def take_turn(store, number, order):
    refusal = claim(store, f"w{number}/1", will_wait=True)
    baton = run(store.wait("k", refusal.seen, within=5))
    order.append(number)
    run(store.release(baton))


def test_a_thread_and_a_task_wait_in_one_queue(url):
    blocking = open_store(url, "so", aio=False)
    grant = claim(blocking, "a/1")

    async def wait():
        store = open_store(url, "so", aio=True)
        refusal = await store.claim("k", "b/1", 30, info={}, will_wait=True)
        asyncio.get_running_loop().call_later(0.01, lambda: threading.Thread(target=run, args=(blocking.release(grant),)).start())
        return await store.wait("k", refusal.seen, within=5)

    assert asyncio.run(wait()).fence > grant.fence


def test_a_cancelled_wait_leaves_the_queue(url):
    async def main():
        store = open_store(url, "so", aio=True)
        await store.claim("k", "a/1", 30, info={})
        refusal = await store.claim("k", "b/1", 30, info={}, will_wait=True)
        waiting = asyncio.create_task(store.wait("k", refusal.seen, within=60))
        await asyncio.sleep(0)  # it runs as far as it can: into the queue
        assert "k" in store._shared.model._queues
        waiting.cancel()
        await asyncio.wait([waiting])
        return store._shared.model._queues

    assert asyncio.run(main()) == {}


def test_a_waiter_interrupted_after_it_was_served_passes_the_baton_on(url):
    """The worst moment: the baton is in hand, and the wait ends by an exception."""
    store = open_store(url, "so", aio=False)
    grant = claim(store, "a/1")
    refusal = claim(store, "b/1", will_wait=True)

    def interrupted():
        async def released_then_interrupted(_seconds):
            await store.release(grant)
            raise KeyboardInterrupt

        return lambda: None, released_then_interrupted

    store._bell = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(store.wait("k", refusal.seen, within=1))
    assert isinstance(claim(store, "c/1"), Grant)


def test_what_has_ended_is_swept():
    model = Model(lambda: "baton/1")
    for number in range(10_000):
        model.claim(float(number), f"key:{number}", "a/1", 1.5, info={})
    assert model.count() < 200


def test_a_baton_nobody_uses_ends():
    model, got = Model(lambda: "baton/1"), []
    grant = model.claim(0.0, "k", "a/1", 30, info={})
    model.claim(0.0, "k", "b/1", 30, info={}, will_wait=True)
    model.enter(0.0, "k", Ticket(got.append))
    model.release(1.0, grant)
    assert [(baton.token, baton.until) for baton in got] == [("baton/1", 1.0 + BATON)]
    assert isinstance(model.claim(1.5, "k", "c/1", 30, info={}), Busy)
    assert isinstance(model.claim(1.0 + BATON, "k", "c/1", 30, info={}), Grant)


def test_the_shortest_lease_outlives_a_moment_in_which_another_thread_runs():
    """The interpreter lets a thread run for 5 ms, and then the next: a lease of two of these ended on a busy machine."""
    assert open_store("memory://", "so", aio=False).capabilities.shortest_ttl >= 10 * sys.getswitchinterval()
