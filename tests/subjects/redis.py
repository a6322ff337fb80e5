"""Redis: the server of this run, and servers that refuse."""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest

from soloist import ConfigError, Soloist, SoloistError, StoreUnavailable
from soloist.testing.contract import Subject, Untouched
from tests.subjects._kind import SECRET, Broken
from tools.binaries import ServerNotHadError
from tools.servers import NO_SERVER, RedisServer, free_port, redis_server

SHARED = True


def url(request: pytest.FixtureRequest, folder: Path) -> str:
    return str(request.getfixturevalue("redis_url"))


@contextmanager
def subject(url: str) -> Generator[Subject]:
    from redis import Redis

    parts = urlsplit(url)
    host, port, number = parts.hostname or "localhost", parts.port or 6379, parts.path.strip("/") or "0"
    user = parts.netloc.rpartition("@")[0]

    def through(other: str, at: int) -> str:
        return parts._replace(netloc=f"{user}@{other}:{at}" if user else f"{other}:{at}").geturl()

    def bucket(namespace: str, key: str) -> str:
        return f"{namespace}:{{{crc32(key.encode()) % 256:02x}}}"

    def name(namespace: str, key: str, slot: int = 0) -> str:
        return f"{bucket(namespace, key)}{slot or ''}:{key}"

    with closing(Redis.from_url(url)) as client:

        def untouched() -> Untouched:
            namespace = f"contract-{os.urandom(6).hex()}"

            def traces() -> list[bytes]:
                names = list(client.scan_iter(f"{namespace}:*", count=1000))
                kinds = dict(zip(names, piped(client.type, names), strict=True))
                indexes = [name for name in names if kinds[name] == b"zset"]
                members = [member for index in indexes for member in client.zrange(index, 0, -1) if member]
                return [*members, *(name for name in names if kinds[name] != b"zset")]

            return Untouched(url, namespace, traces)

        def piped(command: Callable[[bytes], object], names: list[bytes]) -> list[object]:
            return [command(name) for name in names]

        def plant_newer(place: Untouched, key: str) -> None:
            record = client.get(name(place.namespace, key))
            assert isinstance(record, bytes)
            assert record.startswith(b"1 ")
            client.set(name(place.namespace, key), b"2" + record[1:], keepttl=True)

        yield Subject(
            url=url,
            server=(host, port),
            through=through,
            greeting=f"AUTH {user.replace(':', ' ').strip()}\r\nSELECT {number}\r\n".encode() if user else f"SELECT {number}\r\n".encode(),
            delete=lambda namespace, key, slot: client.delete(name(namespace, key, slot)),
            delete_index=lambda namespace, key: client.delete(bucket(namespace, key)),
            untouched=untouched,
            plant_newer=plant_newer,
        )


def server(stack: ExitStack, *settings: str) -> RedisServer:
    """One with settings of its own."""
    pytest.importorskip("redis")
    try:
        return stack.enter_context(redis_server(*settings))
    except ServerNotHadError as error:
        pytest.skip(f"{NO_SERVER}{error}")


def wrong_password(folder: Path, stack: ExitStack) -> str:
    given = server(stack, "--requirepass", "right")
    return f"redis://:{SECRET}@127.0.0.1:{given.port}/0"


def no_password(folder: Path, stack: ExitStack) -> str:
    return server(stack, "--requirepass", SECRET).url


def read_only(folder: Path, stack: ExitStack) -> str:
    primary = server(stack)
    replica = server(stack, "--replicaof", "127.0.0.1", str(primary.port))
    return replica.url


def not_there(folder: Path, stack: ExitStack) -> str:
    pytest.importorskip("redis")
    return f"redis://me:{SECRET}@127.0.0.1:{free_port()}/0"


def no_such_host(folder: Path, stack: ExitStack) -> str:
    pytest.importorskip("redis")
    return f"redis://me:{SECRET}@no-such-host.invalid/0"


def no_such_database(folder: Path, stack: ExitStack) -> str:
    return server(stack).url.replace("/0", "/99")


def occupied(write: Callable[[Any, str], object]) -> Callable[[Path, ExitStack], str]:
    """A Redis in which something else lies under the name of the key `k`."""

    def make(folder: Path, stack: ExitStack) -> str:
        given = server(stack)
        import redis

        with redis.Redis(port=given.port, decode_responses=True) as client:
            with Soloist(given.url) as solo, solo.lock("k"):
                (name,) = [name for name in client.keys("*") if name.endswith(":k")]
            client.delete(name)
            write(client, name)
        return given.url

    return make


BROKEN = {
    "a wrong password": Broken(wrong_password, ConfigError, ("refused the user or the password",)),
    "no password": Broken(no_password, ConfigError, ("wants a password", "user:password@")),
    "read-only": Broken(read_only, SoloistError, ("127.0.0.1", "replica")),
    "not there": Broken(not_there, StoreUnavailable, ("127.0.0.1",)),
    "no such host": Broken(no_such_host, StoreUnavailable, ("no-such-host.invalid",)),
    "no such database": Broken(no_such_database, ConfigError, ("no database of this number",)),
    "a wrong type under our key": Broken(occupied(lambda db, name: db.rpush(name, "theirs")), ConfigError, (":k",)),
    "something else under our key": Broken(occupied(lambda db, name: db.set(name, "theirs")), ConfigError, (":k",)),
    "a newer record under our key": Broken(
        occupied(lambda db, name: db.set(name, "99 r 7 token {}")), ConfigError, (":k", "newer", "pgrade")
    ),
}
