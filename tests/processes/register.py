"""A counter in a file that refuses smaller fences: what a lock's users write to, outside every store.

Who reads in order to write brings the fence already then: the late write of an older holder, landing between the two, would
be lost. The file is its own history: a line per attempt, appended by one `write`, so that a process killed at any moment has
either written or not.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from soloist._world import boottime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAIL = 65536


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _state(file: int) -> tuple[int, int]:
    """The greatest fence and the value."""
    size = os.fstat(file).st_size
    lines = os.pread(file, TAIL, max(0, size - TAIL)).splitlines()
    accepted = [line for line in lines if b'"ours": true' in line and line.startswith(b"{")]
    last = json.loads(accepted[-1]) if accepted else {"fence": 0, "value": 0}
    return last["fence"], last["value"]


def value(path: Path) -> int:
    """What it came to."""
    with _locked(path) as file:
        return _state(file)[1]


def read(path: Path, fence: int) -> int:
    """Its value; smaller fences than this are refused from now on."""
    with _locked(path) as file:
        greatest, found = _state(file)
        _append(file, {"what": "read", "fence": fence, "value": found, "ours": fence >= greatest})
        return found


def write(path: Path, facts: dict[str, Any]) -> bool:
    """Set it to `facts["value"]`, unless a fence greater than `facts["fence"]` was here."""
    with _locked(path) as file:
        accepted: bool = facts["fence"] >= _state(file)[0]
        _append(file, {"what": "wrote", **facts, "ours": accepted})
        return accepted


def _append(file: int, line: dict[str, Any]) -> None:
    os.write(file, json.dumps({"at": boottime(), **line}).encode() + b"\n")
