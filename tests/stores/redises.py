"""What the tests of Redis say again and again."""

from __future__ import annotations

import threading
import time
from zlib import crc32

from soloist._world import run
from soloist.stores import open_store

TTL = 30


def claim(store, who="a/1", key="k", ttl=TTL, **more):
    return run(store.claim(key, who, ttl, **{"info": {}, **more}))


def bucket(space, key="k"):
    return f"{space}:{{{crc32(key.encode()) & 255:02x}}}"


def record(space, key="k"):
    return f"{bucket(space, key)}:{key}"


def blocked(cli):
    return cli.info("clients")["blocked_clients"]


def eventually(condition, within=3.0):
    ends = time.monotonic() + within
    while not condition():
        assert time.monotonic() < ends, "this should have happened long ago"
        time.sleep(0.005)


def beside(work):
    got = []
    thread = threading.Thread(target=lambda: got.append(work()))
    thread.start()
    return thread, got


async def natively(url, space, who="b/1"):
    """What a claim by asyncio is answered."""
    store = open_store(url, space, aio=True)
    try:
        return await store.claim("k", who, TTL, info={})
    finally:
        await store.close()
