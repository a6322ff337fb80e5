"""Memory: nothing to set up, and nothing that could be broken."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from soloist.stores.memory import _NAMED
from soloist.testing.contract import Subject, Untouched
from tests.subjects._kind import Broken

SHARED = False
BROKEN: Mapping[str, Broken] = {}


def url(request: pytest.FixtureRequest, folder: Path) -> str:
    return f"memory://{folder.name}"


@contextmanager
def subject(url: str) -> Generator[Subject]:
    def delete(namespace: str, key: str, slot: int) -> None:
        shared = _NAMED[url, namespace]
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
    yield Subject(url=url, delete=delete, untouched=untouched, without=without)
