"""The Lua scripts beside this file, and commands packed as Redis reads them. No I/O but reading those files, once."""

from __future__ import annotations

import re
from hashlib import sha1
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Command: TypeAlias = tuple[str | bytes | int, ...]

try:
    hiredis: Any = import_module("hiredis")
except ImportError:
    hiredis = None


def _packed(command: Command) -> bytes:
    parts = [b"*%d\r\n" % len(command)]
    for argument in command:
        raw = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


pack: Callable[[Command], bytes] = hiredis.pack_command if hiredis else _packed


class Script:
    """A script, which the server knows by the SHA-1 of its text once it has been sent it."""

    def __init__(self, name: str) -> None:
        self.text = _spliced(_file("record"), _file(name)).encode()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def with_text(self, command: Command) -> Command:
        """The same command with the script's text, from which the server also learns it."""
        return (b"EVAL", self.text, *command[2:])


def _file(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / f"{name}.lua").read_text(encoding="utf-8")


def _spliced(library: str, script: str) -> str:
    """The script behind the library's head and those of its functions that it uses; a function uses only earlier ones."""
    head, *functions = re.split(r"^(?=local function )", library, flags=re.MULTILINE)
    used = script
    for function in reversed(functions):
        name = function[len("local function ") : function.index("(")]
        if re.search(rf"\b{name}\(", used):
            used = function + used
    return head + used


CLAIM = Script("claim")
RENEW = Script("renew")
RELEASE = Script("release")
LOOK = Script("look")
LISTING = Script("listing")
