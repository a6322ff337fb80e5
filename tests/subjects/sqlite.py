"""SQLite: a file, and what becomes of one that isn't ours."""

import os
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from soloist import ConfigError, Soloist
from soloist.testing.contract import Subject, Untouched
from tests.subjects._kind import Broken

SHARED = True
PREFIX = "sqlite:///"


def url(request: pytest.FixtureRequest, folder: Path) -> str:
    return f"{PREFIX}{folder}/locks.db"


@contextmanager
def subject(url: str) -> Generator[Subject]:
    file = Path(url.removeprefix(PREFIX))

    def execute(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as db:
            return db.execute(statement, values).fetchall()

    def delete(namespace: str, key: str, slot: int) -> None:
        statement = "delete from soloist_lock where namespace = ? and key = cast(? as text) and slot = ?"
        execute(file, statement, namespace, key.encode(), slot)

    def untouched() -> Untouched:
        path = file.parent / f"{os.urandom(6).hex()}.db"

        def traces() -> list[str]:
            if not path.exists():
                return []
            tables = [str(name) for (name,) in execute(path, "select name from sqlite_schema where type = 'table'")]
            return [*tables, *(repr(row) for row in execute(path, "select key, slot from soloist_lock"))] if tables else ["an empty file"]

        return Untouched(f"{PREFIX}{path}", "contract", traces)

    def plant_newer(place: Untouched, key: str) -> None:
        execute(Path(place.url.removeprefix(PREFIX)), "update soloist_store set format = format + 1")

    without = {"server": "it is a file", "delete_index": "a listing reads the records themselves"}
    yield Subject(url=url, delete=delete, untouched=untouched, plant_newer=plant_newer, without=without)


def text_file(folder: Path, stack: ExitStack) -> str:
    (folder / "notes.db").write_text("not a database, but long enough to be taken for one " * 100)
    return f"{PREFIX}{folder}/notes.db"


def corrupt_file(folder: Path, stack: ExitStack) -> str:
    with Soloist(f"{PREFIX}{folder}/x.db") as solo, solo.lock("k"):
        pass
    for path in folder.glob("x.db-*"):
        path.unlink()
    data = (folder / "x.db").read_bytes()
    (folder / "x.db").write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    return f"{PREFIX}{folder}/x.db"


def a_folder(folder: Path, stack: ExitStack) -> str:
    return f"{PREFIX}{folder}"


def no_folder(folder: Path, stack: ExitStack) -> str:
    return f"{PREFIX}{folder}/missing/x.db"


def sealed(stack: ExitStack) -> Path:
    """A folder that we may enter and not write; root, who may write everywhere, is nobody for a while."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sealed-")))
    with Soloist(f"{PREFIX}{folder}/x.db") as solo, solo.lock("k"):
        pass
    (folder / "x.db").chmod(0o444)
    folder.chmod(0o555)
    stack.callback(folder.chmod, 0o700)
    if not os.geteuid():
        os.setresuid(65534, 65534, 0)
        stack.callback(os.setresuid, 0, 0, 0)
    return folder


def unwritable(folder: Path, stack: ExitStack) -> str:
    return f"{PREFIX}{sealed(stack)}/new.db"


def unwritable_file(folder: Path, stack: ExitStack) -> str:
    return f"{PREFIX}{sealed(stack)}/x.db"


def newer_file(folder: Path, stack: ExitStack) -> str:
    with Soloist(f"{PREFIX}{folder}/x.db") as solo, solo.lock("k"):
        pass
    with sqlite3.connect(folder / "x.db") as db:
        column = next(name for (_, name, *_) in db.execute("pragma table_info(soloist_store)") if name in {"format", "version"})
        db.execute(f"update soloist_store set {column} = 99")  # noqa: S608 - a column of ours
    db.close()
    return f"{PREFIX}{folder}/x.db"


BROKEN = {
    "a text file": Broken(text_file, ConfigError, ("notes.db", "no SQLite database", "use another path")),
    "a corrupt file": Broken(corrupt_file, ConfigError, ("x.db", "damaged", "use another path")),
    "a folder": Broken(a_folder, ConfigError, ("is no file", "use another path")),
    "no such folder": Broken(no_folder, ConfigError, ("missing",)),
    "an unwritable folder": Broken(unwritable, ConfigError, ("sealed",)),
    "an unwritable file": Broken(unwritable_file, ConfigError, ("x.db", "use another path")),
    "a newer format": Broken(newer_file, ConfigError, ("newer format 99", "upgrade Soloist")),
}
