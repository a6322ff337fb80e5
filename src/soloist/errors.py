"""Every error that Soloist raises, as a tree. A type per decision that a caller takes; the facts are attributes.

    SoloistError
    ├── ConfigError            wrong settings: change them and start again
    │   └── MissingExtra       a store's client library isn't installed; also an ImportError
    ├── StoreError             the store gave no answer that counts
    │   ├── StoreUnavailable   it can't be reached, in time: surely nothing was done
    │   ├── OutcomeUnknown     sent, no answer, and asking again failed too: it may have been done
    │   └── TooLarge           the record is over the store's limit
    └── LockError              the store answered, and the answer is no
        ├── NotAcquired        somebody else holds the key
        │   └── AlreadyHeldHere    it is this very thread or task
        └── LockLost           the hold is no longer ours

Messages say what happened and what to do. No client library's exception leaks through: it is the `__cause__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from soloist.contract import Holder, Loss

__all__ = [
    "AlreadyHeldHere",
    "ConfigError",
    "LockError",
    "LockLost",
    "MissingExtra",
    "NotAcquired",
    "OutcomeUnknown",
    "SoloistError",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
]


class SoloistError(Exception):
    """What all errors of this library have in common."""


class ConfigError(SoloistError):
    """A setting, an argument or a store that can't work as it is. Nothing was sent, or nothing was changed."""


class MissingExtra(ConfigError, ImportError):
    """The store of this URL needs a client library that isn't installed; the message says how to get it."""


class StoreError(SoloistError):
    """The store gave no answer that counts."""


class StoreUnavailable(StoreError):
    """The store can't be reached, or not in time. What was asked was surely not done."""


class OutcomeUnknown(StoreError):
    """The request was sent, no answer came, and asking again failed too. It may have been done."""


class TooLarge(StoreError):
    """A record is over the limit of its store.

    Attributes:
        size: The record's size in bytes.
        limit: The store's limit in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.args, self.__dict__))


class LockError(SoloistError):
    """The store answered, and the answer is no."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.args, self.__dict__))


class NotAcquired(LockError):
    """Somebody else holds the key.

    Attributes:
        key: The key that was asked for.
        holder: Who holds it, or None where the store can't tell. Of a semaphore the one whose time is up first.
    """

    def __init__(self, key: str, holders: tuple[Holder, ...] = ()) -> None:
        self.key = key
        self.holder = min(holders, key=lambda holder: holder.ttl, default=None)
        super().__init__(f"{key!r} is held{_by(self.holder)}: pass wait= to wait, or free it with solo.force_release({key!r})")


class AlreadyHeldHere(NotAcquired):
    """This very thread or task holds the key already: waiting for it would never end.

    Attributes:
        line: The place that took it, as `file:line`.
    """

    def __init__(self, key: str, line: str) -> None:
        super().__init__(key)
        self.line = line
        self.args = (f"{key!r} is already held by this very thread or task, taken at {line}: release it first, or use another key",)


class LockLost(LockError):
    """The hold is no longer ours.

    Attributes:
        key: The key of the hold.
        fence: The hold's fencing token, or None.
        why: `taken` (another holds the key, or did), `vanished` (nobody does: an emptied store, an operator's
            deletion) or `unknown` (the deadline passed while the store was silent or this process stood still).
            Also `released`, by this process, and `forked`: a child doesn't have what its parent holds.
        since: Seconds since it was lost, as far as this process can tell.
    """

    def __init__(self, key: str, *, fence: int | None, why: Loss | Literal["released", "forked"], since: float) -> None:
        self.key = key
        self.fence = fence
        self.why = why
        self.since = since
        ago = f" since {since:.1f} s" if since > 0 else ""
        super().__init__(f"{key!r} (fence {fence}) is no longer ours{ago}: {_WHY[why]}. Stop, and write nothing more under it")


_WHY = {
    "taken": "another took it",
    "vanished": "nobody holds it any more; the store was emptied, or an operator freed it",
    "unknown": "its time was up before a renewal was confirmed",
    "released": "this process released it",
    "forked": "the parent process has it, and a forked child doesn't; take it anew in the child",
}


def _by(holder: Holder | None) -> str:
    if holder is None:
        return ""
    who = ", ".join(f"{name} {holder.info[name]}" for name in ("task", "pid", "host") if name in holder.info)
    return f" by {who or 'somebody unnamed'} (fence {holder.fence}) for {holder.ttl:.1f} s more"


def _rebuilt(kind: type[Exception], args: tuple[object, ...], facts: dict[str, object]) -> Exception:
    """Unpickle an error whose constructor takes facts, not a message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error
