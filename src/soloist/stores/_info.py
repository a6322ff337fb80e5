"""A holder's info as every store keeps it, and how large it may be (rule 9). No I/O.

    {"host":"web-1","pid":4242,"since":1763500800}

It is JSON in ASCII, so that a character is a byte, and holds no newline and no lone surrogate.
"""

from __future__ import annotations

from functools import lru_cache
from json import JSONEncoder
from typing import TYPE_CHECKING

from soloist.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_INFO = 64 * 1024
"""Bytes of info that each store takes: what fits into one store shall fit into all."""

_json = JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encoded(info: Mapping[str, str | int | float]) -> str:
    """The info as it is stored; `TooLarge` if that is over the limit."""
    return _encoded(tuple(info.items()))


@lru_cache(maxsize=8)  # a process says much the same of itself each time
def _encoded(items: tuple[tuple[str, str | int | float], ...]) -> str:
    text = _json(dict(items))
    if len(text) > MAX_INFO:
        raise TooLarge(f"the holder's info has {len(text)} bytes, and {MAX_INFO} may be stored: shorten it", size=len(text), limit=MAX_INFO)
    return text
