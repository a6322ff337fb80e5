"""What a URL says: `redis://[user:password@]host:port/db`, `rediss://…`, `unix://[user:password@]/path?db=0`. No I/O.

The query holds connection options only. No message repeats what may be a part of a password: a `/`, `?` or `#` in one that
isn't percent-encoded moves its rest into the path or the query.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from ssl import TLSVersion
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from soloist.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from urllib.parse import SplitResult

SHAPES = {
    "redis": "redis://[user:password@]host:port/db",
    "rediss": "rediss://[user:password@]host:port/db",
    "unix": "unix://[user:password@]/path/of/the/socket?db=0",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a connection: `kind` is tcp, tls or unix, `where` may be shown, `arguments` are those of redis-py's connections."""

    kind: str
    where: str
    arguments: dict[str, Any] = field(repr=False)


def parse(url: str) -> Options:
    """The options of a URL; `ConfigError` if it can't be read."""
    scheme = url.partition(":")[0].lower()
    parts, host, port = _split(url)
    if parts is None:
        raise _unreadable(scheme, "the host and port can't be read")
    if "@" in parts.query + parts.fragment or ("@" in parts.path and (scheme != "unix" or parts.netloc)):
        raise _unreadable(scheme, "a '@' stands behind the host")
    if parts.fragment or not url.lower().startswith(f"{scheme}://"):
        raise _unreadable(scheme, "it has another shape")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    arguments: dict[str, Any] = {"username": unquote(parts.username or "") or None, "password": unquote(parts.password or "") or None}
    if scheme == "unix":
        if not parts.path or host or port:
            raise _unreadable(scheme, "it names a host, or no path")
        arguments |= {"path": unquote(parts.path), "db": _database(scheme, query.pop("db", ""))}
        where = f"unix://{unquote(parts.path)}?db={arguments['db']}"
    else:
        _check_path(scheme, parts)
        arguments |= {"host": host or "localhost", "port": port or 6379, "db": _database(scheme, parts.path.strip("/"))}
        shown = f"[{host}]" if host and ":" in host else arguments["host"]
        where = f"{scheme}://{shown}:{arguments['port']}/{arguments['db']}"
    arguments |= _queried(scheme, query)
    return Options({"redis": "tcp", "rediss": "tls", "unix": "unix"}[scheme], where, arguments)


def _split(url: str) -> tuple[SplitResult | None, str | None, int | None]:
    """Its parts, or nothing: the library's error would repeat a part of the URL, and stay with ours."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts, parts.hostname, parts.port
    return None, None, None


def _check_path(scheme: str, parts: SplitResult) -> None:
    if parts.path.count("/") > 1 or not parts.netloc.rpartition("@")[2]:
        raise _unreadable(scheme, "the host is missing, or the path is more than a database's number")


def _database(scheme: str, text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise _unreadable(scheme, "the database isn't a number")
    return int(text or 0)


def _unreadable(scheme: str, why: str) -> ConfigError:
    return ConfigError(
        f"this {scheme}:// URL can't be used: {why}. Write {SHAPES[scheme]}, and in the user or the password percent-encode / ? # @ and :"
    )


def _yes(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]


def _file(text: str) -> str:
    if not Path(text).exists():
        raise ValueError
    return text


def _needed(text: str) -> str:
    return {"none": "none", "optional": "optional", "required": "required"}[text.lower()]


READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "client_name": (str, "a name"),
    "socket_keepalive": (_yes, "true or false"),
    "ssl_ca_certs": (_file, "an existing file"),
    "ssl_certfile": (_file, "an existing file"),
    "ssl_keyfile": (_file, "an existing file"),
    "ssl_cert_reqs": (_needed, "none, optional or required"),
    "ssl_check_hostname": (_yes, "true or false"),
    "ssl_ciphers": (str, "OpenSSL's names"),
    "ssl_min_version": (lambda text: TLSVersion[text.replace(".", "_")], "TLSv1.2 or TLSv1.3"),
}


def _queried(scheme: str, query: dict[str, str]) -> dict[str, object]:
    allowed = [name for name in READERS if scheme == "rediss" or not name.startswith("ssl_")]
    found: dict[str, object] = {"ssl_check_hostname": True} if scheme == "rediss" else {}
    for name, text in query.items():
        if name not in allowed:
            raise ConfigError(f"{scheme}:// has no option {name!r}: the query of the URL takes {', '.join(allowed)}")
        read, values = READERS[name]
        try:
            found[name] = read(text)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{scheme}:// takes {values} for {name}") from error
    if found.get("ssl_cert_reqs") == "none":
        found["ssl_check_hostname"] = False
    return found
