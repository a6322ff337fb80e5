"""A counter in a file that refuses smaller fences: what a lock's users write to, outside every store."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def _locked(path: Path) -> Iterator[tuple[list[int], Callable[[list[int]], None]]]:
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()

        def write(state: list[int]) -> None:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(state))
            file.flush()

        yield (json.loads(text) if text else [0, 0]), write


def read(path: Path) -> int:
    """Its value."""
    with _locked(path) as (state, _):
        return state[1]


def write(path: Path, fence: int, value: int, tell: Callable[[bool], None]) -> bool:
    """Set it, unless a greater fence was here; `tell` is called before anybody else can look."""
    with _locked(path) as (state, put):
        accepted = fence >= state[0]
        if accepted:
            put([fence, value])
        tell(accepted)
        return accepted
