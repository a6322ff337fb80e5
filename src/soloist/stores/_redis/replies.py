"""What an error of the server or of the client library means to a caller. No I/O.

1. An error *reply* says that nothing was done: the scripts read before they write.
2. A failure before the request was handed over completely says the same. After that, the outcome is unknown.
3. Messages name the server without its password, and say what to do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redis import exceptions as client

from soloist.errors import ConfigError, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from soloist.errors import SoloistError, StoreError

NAMES: tuple[tuple[type[Exception], str], ...] = (
    (client.NoScriptError, "NOSCRIPT "),
    (client.ReadOnlyError, "READONLY "),
    (client.BusyLoadingError, "LOADING "),
    (client.AuthenticationError, ""),
    (client.NoPermissionError, "NOPERM "),
    (client.OutOfMemoryError, "OOM "),
    (client.MasterDownError, "MASTERDOWN "),
    (client.ClusterDownError, "CLUSTERDOWN "),
    (client.MovedError, "MOVED "),
    (client.AskError, "ASK "),
    (client.TryAgainError, "TRYAGAIN "),
    (client.ClusterCrossSlotError, "CROSSSLOT "),
    (client.ResponseError, ""),
)
"""redis-py takes the code off the message and makes a class of it."""

CLUSTER = "is a Redis Cluster, which isn't supported: use the URL of a server of its own"
MEANINGS: dict[str, tuple[type[SoloistError], str]] = {
    "LOADING": (StoreUnavailable, "is still loading its data: wait until it has"),
    "BUSY": (StoreUnavailable, "is busy with somebody's script: `redis-cli SCRIPT KILL` ends it"),
    "READONLY": (StoreUnavailable, "is a read-only replica: use the URL of its primary"),
    "MASTERDOWN": (StoreUnavailable, "is a replica that has lost its primary: use the URL of the primary"),
    "NOREPLICAS": (StoreUnavailable, "has fewer replicas than min-replicas-to-write wants: bring them back"),
    "OOM": (StoreUnavailable, "is out of memory: raise maxmemory, or give the locks a server of their own"),
    "MISCONF": (StoreUnavailable, "can't save to its disk, and so refuses to write: see its log, and free the disk"),
    "max number of clients": (StoreUnavailable, "takes no more connections: raise maxclients"),
    **dict.fromkeys(("NOAUTH", "Authentication required"), (ConfigError, "wants a password: write it into the URL, as user:password@host")),
    **dict.fromkeys(("WRONGPASS", "invalid username-password"), (ConfigError, "refused the user or the password of the URL")),
    "AUTH <password>": (ConfigError, "has no password set: take it out of the URL"),
    **dict.fromkeys(
        ("NOPERM", "The user executing the script"),
        (ConfigError, "doesn't allow this user what a lock needs: see 'Set it up' on the page about Redis for the rights"),
    ),
    "DB index": (ConfigError, "has no database of this number"),
    "invalid DB index": (ConfigError, "has no database of this number"),
    "CERTIFICATE_VERIFY_FAILED": (ConfigError, "shows a certificate that isn't trusted: name its authority by ssl_ca_certs= in the URL"),
    **dict.fromkeys(("MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN"), (ConfigError, CLUSTER)),
}
ADDRESSED = {
    "FOREIGN": (
        "which isn't a lock of Soloist's, or is a damaged one: look at it with `redis-cli TYPE` and `GET`, delete it, "
        "or choose another namespace="
    ),
    "NEWER": "which a newer version of Soloist wrote: upgrade this one",
}
_KNOWN = re.compile("|".join(rf"\b{code}\b" if code.isalpha() else re.escape(code) for code in MEANINGS))


class Refusal(Exception):
    """The server answered with an error. `stale`: this server can't serve us; another may stand behind its address by now."""

    @property
    def text(self) -> str:
        """The reply, which begins with its code."""
        return str(self.args[0])

    @property
    def stale(self) -> bool:
        """Whether the connection had better be opened anew."""
        return self.text.startswith(("READONLY", "MASTERDOWN", "LOADING")) or "-READONLY" in self.text

    def meaning(self, where: str, bucket: str = "") -> SoloistError:
        """As the error that a caller sees."""
        code, _, name = self.text.partition(" ")
        if code in ADDRESSED:
            return ConfigError(f"{where} has something at {name!r}, {ADDRESSED[code]}")
        if "WRONGTYPE" in self.text:
            return ConfigError(f"{where} has something at {bucket!r} (or in the list {bucket + 'w:'!r} + key), {ADDRESSED['FOREIGN']}")
        found = MEANINGS.get(code)
        if found is None and (inside := _KNOWN.search(self.text)):  # before version 7, errors inside a script are wrapped
            found = MEANINGS[inside.group()]
        if found is None:
            return ConfigError(f"{where} doesn't do what a lock needs, and answered: {self.text}")
        kind, what = found
        return kind(f"{where} {what} ({self.text})")


def refusal(error: BaseException) -> Refusal | None:
    """The server's error reply that this error of the client library was made of; None if it is something else."""
    if isinstance(error, client.ConnectionError) and ("max number of clients" in str(error) or "CERTIFICATE_VERIFY_FAILED" in str(error)):
        return Refusal(f"ERR {error}")
    for kind, code in NAMES:
        if isinstance(error, kind):
            return Refusal(f"{code}{error}")
    return None


def broken(error: BaseException, where: str, within: float, *, sent: bool) -> StoreError:
    """What a failed connection means, in an attempt that had `within` seconds."""
    why = f"({str(error).rstrip('.') or 'no answer in time'}; this attempt had {within:.3g} s)"
    if sent:
        return OutcomeUnknown(
            f"{where} didn't answer, and what was asked may have been done: see whether the server stands still or is cut off, "
            f"or raise store_timeout= if it is slow {why}"
        )
    return StoreUnavailable(
        f"{where} can't be reached: see that the server runs and that the URL is right, or raise store_timeout= if it is slow {why}"
    )


_MODE = re.compile(r"^(?:redis|server)_mode:(\w+)", re.MULTILINE)
_VERSION = re.compile(r"^redis_version:(\d+)\.(\d+)", re.MULTILINE)


def misfit(info: str, where: str) -> ConfigError | None:
    """Why a server with this INFO can't be used, if it can't."""
    mode, version = _MODE.search(info), _VERSION.search(info)
    if mode and mode.group(1) == "cluster":
        return ConfigError(f"{where} {CLUSTER}")
    if mode and mode.group(1) == "sentinel":
        return ConfigError(f"{where} is a Sentinel, which holds no data: use the URL of the primary that it watches")
    if version and (int(version.group(1)), int(version.group(2))) < (6, 2):
        return ConfigError(f"{where} is Redis {version.group(1)}.{version.group(2)}: a lock needs 6.2 or newer, or Valkey")
    return None
