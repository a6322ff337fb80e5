"""The blocking wire: redis-py opens the connections, and its public methods carry our requests. Here lies the pool.

1. One request at a time on a connection. One whose call failed, was interrupted or timed out is closed, never used again,
   and one that failed takes every idle one with it: after a restart of the server all of them are stale.
2. A single request that could not be handed over completely was surely not carried out; a timeout is no such proof.
3. A forked child opens its own. Threads share the pool: a deque's `append` and `pop` are atomic.
4. Waiters have connections of their own, and no more than MOST of them. Who finds no room comes back at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakSet

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as TimedOut
from redis.retry import Retry

from soloist.errors import StoreUnavailable
from soloist.stores._redis.replies import Refusal, broken, misfit, refusal
from soloist.stores._redis.scripts import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soloist.errors import StoreError
    from soloist.stores._redis.options import Options


class Link(Protocol):
    """What we use of redis-py's connections, and our own `limit`: its time limit, which to ask redis-py for costs a call."""

    limit: float

    def connect(self) -> None:
        """Open it, and log in."""

    def send_packed_command(self, command: Sequence[bytes], check_health: bool = True, /) -> None:  # noqa: FBT001, FBT002 - redis-py's
        """Send requests."""

    def can_read(self, timeout: float = 0) -> bool:
        """Whether a reply begins to arrive within so many seconds."""
        ...

    def read_response(self) -> Any:
        """A reply, within its time limit."""

    def disconnect(self) -> None:
        """Close it."""


class Tcp(Connection):
    """By TCP."""

    limit = 0.0


class Tls(SSLConnection):
    """By TCP, encrypted."""

    limit = 0.0


class Unix(UnixDomainSocketConnection):
    """On one host."""

    limit = 0.0


KINDS = {"tcp": Tcp, "tls": Tls, "unix": Unix}

MOST = 64
"""Connections on which waiters are blocked."""

LATE = 0.12
"""Seconds that the server may end a BLPOP late: it looks ten times a second, and a few ms go by besides."""

SHORTEST = 0.02
"""Seconds under which a BLPOP isn't worth its while; one of 0 would never end."""

LONGEST = 86400.0
"""Seconds that a socket is told to wait at most: it refuses far larger numbers."""

HURRY = 1.0
"""A connection opened for a call with fewer seconds than these isn't kept: it would always be in such a hurry."""


class BlockingWire:
    """Requests and replies on pooled connections. Coroutines that never suspend."""

    def __init__(self, options: Options) -> None:
        self.where = options.where
        self._new = cast("Callable[..., Link]", KINDS[options.kind])
        self._arguments: dict[str, Any] = {**options.arguments, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
        self._known = False
        self.forget()
        _WIRES.add(self)

    def forget(self) -> None:
        """Begin with an empty pool, and touch no connection of the old one."""
        self._idle: deque[Link] = deque()
        self._spare: deque[Link] = deque()
        self._room = threading.Semaphore(MOST)

    async def ask(self, request: bytes, within: float) -> Any:
        """The reply. `Refusal`: it is an error."""
        keep, stage = True, "sending"
        try:
            link = self._idle.pop()
        except IndexError:
            link, keep, within = self._opened(within)
        try:
            link.send_packed_command((request,), False)  # noqa: FBT003 - positional for redis-py; no health check
            stage = "reading"
            if within != link.limit and not link.can_read(min(within, LONGEST)):
                raise TimedOut("no reply in time")  # noqa: TRY301 - as if redis-py had raised it
            reply = link.read_response()
        except BaseException as error:
            if failure := self._failed(link, error, stage, within):
                raise failure from error
            raise
        if keep:
            self._idle.append(link)
        else:
            link.disconnect()
        return reply

    async def ask_all(self, requests: Sequence[bytes], within: float) -> list[Any]:
        """A reply for each request, in one trip: what the server said, its `Refusal`, or the `StoreError` that it met."""
        ends = monotonic() + within
        replies: list[Any] = []
        try:
            link = self._idle.pop() if self._idle else self._opened(within)[0]
        except StoreUnavailable as error:
            return [error] * len(requests)
        try:
            link.send_packed_command((b"".join(requests),), False)  # noqa: FBT003 - the same
            while len(replies) < len(requests):
                if not link.can_read(min(max(ends - monotonic(), 0), LONGEST)):
                    raise TimedOut("no reply in time")  # noqa: TRY301 - as if redis-py had raised it
                replies.append(self._one(link))
        except BaseException as error:
            if (failure := self._failed(link, error, "reading", within)) is None:
                raise
            return replies + [failure] * (len(requests) - len(replies))
        self._idle.append(link)
        return replies

    @staticmethod
    def _one(link: Link) -> Any:
        try:
            return link.read_response()
        except ResponseError as error:
            return refusal(error)

    async def pop(self, name: bytes, within: float) -> bytes | None:
        """What whoever hands on puts into this list next; None after `within` seconds, or at once if there is no room or time."""
        seconds, room = within - LATE, self._room
        if seconds < SHORTEST or not room.acquire(blocking=False):
            return None
        try:
            return self._popped(name, seconds, within)
        finally:
            room.release()

    def _popped(self, name: bytes, seconds: float, within: float) -> bytes | None:
        try:
            link = self._spare.pop()
        except IndexError:
            link, _, within = self._opened(within)
        try:
            link.send_packed_command((pack((b"BLPOP", name, f"{seconds:.3f}")),), False)  # noqa: FBT003 - the same
            if not link.can_read(min(within, LONGEST)):
                link.disconnect()
                return None
            reply = link.read_response()
        except BaseException as error:
            if failure := self._failed(link, error, "reading", within):
                raise failure from error
            raise
        self._spare.append(link)
        return None if reply is None else bytes(reply[1])

    async def close(self) -> None:
        """Close the idle connections."""
        for links in (self._idle, self._spare):
            while links:
                links.pop().disconnect()

    def _opened(self, within: float) -> tuple[Link, bool, float]:
        """A new connection, whether it is worth keeping, and how many seconds are left."""
        began = monotonic()
        limit = min(within, LONGEST)
        link = self._new(**self._arguments, socket_timeout=limit, socket_connect_timeout=limit)
        link.limit = limit
        try:
            link.connect()
            if not self._known:
                self._meet(link)
        except BaseException as error:
            failure = self._failed(link, error, "opening", within)
            link.disconnect()
            if failure is None:
                raise
            raise (failure.meaning(self.where) if isinstance(failure, Refusal) else failure) from error
        left = within - (monotonic() - began)
        if left <= 0:
            link.disconnect()
            raise broken(TimedOut("no connection in time"), self.where, within, sent=False)
        return link, within >= HURRY, left

    def _meet(self, link: Link) -> None:
        """Ask the first connection whether this server will do."""
        link.send_packed_command((pack((b"INFO", b"server")),), False)  # noqa: FBT003 - the same
        try:
            info = link.read_response()
        except NoPermissionError:
            info = b""
        if reason := misfit(bytes(info).decode(errors="replace"), self.where):
            raise reason
        self._known = True

    def _failed(self, link: Link, error: BaseException, stage: str, within: float) -> StoreError | Refusal | None:
        """What this error means; None: it isn't the connection's, and is raised as it is. Rules 1 and 2."""
        refused = refusal(error)
        if refused and not refused.stale and isinstance(error, ResponseError) and stage != "opening":
            self._idle.append(link)
            return refused
        link.disconnect()
        if not isinstance(error, RedisError | OSError):
            return None
        idle, self._idle = self._idle, deque()
        spare, self._spare = self._spare, deque()
        for stale in (*idle, *spare):
            stale.disconnect()
        unknown = stage == "reading" or (stage == "sending" and isinstance(error, TimedOut))
        return refused or broken(error, self.where, within, sent=unknown)


_WIRES: WeakSet[BlockingWire] = WeakSet()


def _after_fork_in_child() -> None:
    for wire in list(_WIRES):
        wire.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
