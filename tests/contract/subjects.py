"""The stores under test, and what their own clients can do to them."""

import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

from soloist.stores.memory import _NAMED
from soloist.testing.contract import Subject, Untouched

FOLDER = "folder"
"""What SQLite is given of the run: a folder. Redis gets a URL, memory nothing."""


def memory() -> Subject:
    def delete(namespace: str, key: str, slot: int) -> None:
        shared = _NAMED["memory://contract", namespace]
        with shared.lock:
            shared.model._remove(key, slot)

    def untouched() -> Untouched:
        at = (f"memory://{os.urandom(6).hex()}", "contract")
        return Untouched(*at, lambda: [f"{key}/{slot}" for key, slots in _NAMED[at].model._slots.items() for slot in slots])

    without = {
        "server": "it is this very process",
        "plant_newer": "no record outlives the process that wrote it",
        "delete_index": "a listing reads the records themselves",
    }
    return Subject(url="memory://contract", delete=delete, untouched=untouched, without=without)


def sqlite(folder: Path) -> Subject:
    file = folder / "shared.db"

    def execute(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as db:
            return db.execute(statement, values).fetchall()

    def delete(namespace: str, key: str, slot: int) -> None:
        statement = "delete from soloist_lock where namespace = ? and key = cast(? as text) and slot = ?"
        execute(file, statement, namespace, key.encode(), slot)

    def untouched() -> Untouched:
        path = folder / f"{os.urandom(6).hex()}.db"

        def traces() -> list[str]:
            if not path.exists():
                return []
            tables = [str(name) for (name,) in execute(path, "select name from sqlite_schema where type = 'table'")]
            return [*tables, *(repr(row) for row in execute(path, "select key, slot from soloist_lock"))] if tables else ["an empty file"]

        return Untouched(f"sqlite:///{path}", "contract", traces)

    def plant_newer(place: Untouched, key: str) -> None:
        execute(Path(place.url.removeprefix("sqlite:///")), "update soloist_store set format = format + 1")

    without = {"server": "it is a file", "delete_index": "a listing reads the records themselves"}
    return Subject(url=f"sqlite:///{file}", delete=delete, untouched=untouched, plant_newer=plant_newer, without=without)


@contextmanager
def redis(url: str) -> Generator[Subject]:
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
