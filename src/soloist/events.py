"""What happened, as values. Give `Soloist(..., listeners=[f])` a function of one event; it must return quickly.

The standard library's logger `soloist` hears of them without being asked: losses and outages as warnings,
their end (`Protected`, `StoreBack`) at INFO, what is everyday (`Acquired`, `Released`, `Refused`) at DEBUG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from soloist.contract import Holder, Loss


class Acquired(NamedTuple):
    """A key is ours, after `waited` seconds."""

    key: str
    fence: int | None
    slot: int
    waited: float


class Refused(NamedTuple):
    """Somebody else holds the key, and our time to wait is over."""

    key: str
    holder: Holder | None
    waited: float


class Released(NamedTuple):
    """A key was given back. `ours` is False if it wasn't ours any more; `kept` says for how many seconds more it shuts
    others out."""

    key: str
    fence: int | None
    ours: bool
    kept: float


class ReleaseFailed(NamedTuple):
    """The store didn't confirm a release: the keeper goes on trying, and the lease ends by itself."""

    key: str
    fence: int | None
    error: str


class Lost(NamedTuple):
    """A hold is no longer ours, and why."""

    key: str
    fence: int | None
    why: Loss


class Dropped(NamedTuple):
    """A hold was forgotten without a release: it is renewed no more, and ends with its lease."""

    key: str
    fence: int | None


class Degraded(NamedTuple):
    """The store is down, and the work runs without protection, as `if_store_down="run"` asks."""

    key: str
    error: str


class Protected(NamedTuple):
    """The store answers again, and a degraded run has its key now."""

    key: str
    fence: int | None


class StoreDown(NamedTuple):
    """The store can't be reached. Said once per outage."""

    error: str


class StoreBack(NamedTuple):
    """The store answers again, after so many seconds."""

    seconds: float


class ClockJump(NamedTuple):
    """The wall clock of the server or of this host jumped by so many seconds."""

    whose: str
    seconds: float


class LimitsDiffer(NamedTuple):
    """A semaphore is asked for with one limit, and held with another: each claim's own limit decides."""

    key: str
    ours: int
    theirs: int


class ForceReleased(NamedTuple):
    """An operator took a hold away."""

    holder: Holder
    by: str


class CallbackFailed(NamedTuple):
    """A function that we were given, `on_lost` or a listener, raised."""

    what: str
    error: str


Event: TypeAlias = (
    Acquired
    | Refused
    | Released
    | ReleaseFailed
    | Lost
    | Dropped
    | Degraded
    | Protected
    | StoreDown
    | StoreBack
    | ClockJump
    | LimitsDiffer
    | ForceReleased
    | CallbackFailed
)
