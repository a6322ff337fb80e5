"""The table of stores: scheme, file, extra, an example, a line. Extras, docs and tests are checked against it.

Somebody else's store joins through the entry point group `soloist.stores`: its name is the URL scheme, and it loads a
module with `connect(url, namespace, *, aio)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from soloist.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from soloist.contract import Store


@dataclass(frozen=True, slots=True)
class Family:
    """One line of the table.

    Attributes:
        schemes: The URL schemes; each is an extra, too.
        module: The file in this folder.
        client: The client library that the extra brings, None if there is none.
        example: A URL.
        line: What it is, in a line.
    """

    schemes: tuple[str, ...]
    module: str
    client: str | None
    example: str
    line: str


TABLE = (
    Family(("memory",), "memory", None, "memory://", "one process, for tests"),
    Family(("sqlite",), "sqlite", None, "sqlite:///soloist.db", "several processes of one host, in a file"),
    Family(
        ("redis", "rediss", "unix"), "redis", "redis", "redis://localhost:6379/0", "one Redis or Valkey server, by TCP, TLS or unix socket"
    ),
)


class Connects(Protocol):
    """What a store's module offers."""

    def connect(self, url: str, namespace: str, *, aio: bool) -> Store:
        """A store for this URL; nothing is sent yet. `aio`: its verbs suspend in the running loop, else never."""
        ...


def open_store(url: str, namespace: str, *, aio: bool) -> Store:
    """The store that the URL's scheme names. Nothing is sent yet."""
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    for family in TABLE:
        if scheme in family.schemes:
            return _imported(family, scheme).connect(url, namespace, aio=aio)
    return _third_party(scheme).connect(url, namespace, aio=aio)


def _imported(family: Family, scheme: str) -> Connects:
    try:
        return cast("Connects", import_module(f"soloist.stores.{family.module}"))
    except ImportError as error:
        if family.client is None or (error.name or "").partition(".")[0] != family.client:
            raise
        raise MissingExtra(f"{scheme}:// needs an extra: pip install 'soloist[{scheme}]'") from error


def _third_party(scheme: str) -> Connects:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms that only an unknown scheme costs

    for entry in entry_points(group="soloist.stores", name=scheme):
        return cast("Connects", entry.load())
    known = ", ".join(f"{known}://" for family in TABLE for known in family.schemes)
    raise ConfigError(f"no store is known for the scheme {scheme!r}: use one of {known}")
