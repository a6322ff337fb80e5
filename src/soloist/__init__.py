"""Soloist: one task, one performer. Distributed locks and semaphores on the database that you already run."""

from soloist._client import AsyncSoloist, Soloist
from soloist._lock import AsyncHold, AsyncLock, AsyncSemaphore, Hold, Lock, Semaphore
from soloist.contract import Capabilities, Holder
from soloist.errors import (
    AlreadyHeldHere,
    ConfigError,
    LockError,
    LockLost,
    MissingExtra,
    NotAcquired,
    OutcomeUnknown,
    SoloistError,
    StoreError,
    StoreUnavailable,
    TooLarge,
)

__all__ = [
    "AlreadyHeldHere",
    "AsyncHold",
    "AsyncLock",
    "AsyncSemaphore",
    "AsyncSoloist",
    "Capabilities",
    "ConfigError",
    "Hold",
    "Holder",
    "Lock",
    "LockError",
    "LockLost",
    "MissingExtra",
    "NotAcquired",
    "OutcomeUnknown",
    "Semaphore",
    "Soloist",
    "SoloistError",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
]
