"""A connection in an event loop: redis-py opens it, then a protocol of ours with hiredis takes its transport over.

1. One call at a time; whose call failed, or was given up, is closed by its user.
2. Without hiredis redis-py's own streams serve instead, half as fast.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError

from soloist.stores._redis.replies import Refusal, refusal
from soloist.stores._redis.scripts import hiredis

MISSING = object()


class Opened(AbstractConnection):
    """A connection that gives its streams away once it is open."""

    def hand_over(self) -> asyncio.StreamWriter:
        """Its writer, whose transport is the caller's to close from now on."""
        writer, self._writer, self._reader = self._writer, None, None
        assert writer is not None, "it was opened before"
        return writer

    def give_up(self) -> None:
        """Close it at once."""
        if self.is_connected:
            writer = self.hand_over()  # a name of its own: a writer that goes before its transport closes complains
            writer.transport.abort()


class Tcp(Opened, Connection):
    """By TCP."""


class Tls(Opened, SSLConnection):
    """By TCP, encrypted."""


class Unix(Opened, UnixDomainSocketConnection):
    """On one host."""


KINDS: dict[str, type[Tcp | Tls | Unix]] = {"tcp": Tcp, "tls": Tls, "unix": Unix}


class FastLink(asyncio.Protocol):
    """One connection, read by hiredis. A timer runs only while a call does, and one serves many calls."""

    def __init__(self, opened: Opened, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = opened.hand_over()  # kept: some versions close the transport when the writer goes
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        self._reader: Any = hiredis.Reader(replyError=Refusal, notEnoughData=MISSING)
        self._loop = loop
        self._left = 0
        self._answer: asyncio.Future[list[Any]] | None = None
        self._ends = self._rings = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.replies: list[Any] = []
        self.closed = False

    def exchange(self, request: bytes, count: int, within: float) -> asyncio.Future[list[Any]]:
        """The replies to these requests; `replies` has those that came before a failure."""
        loop = self._loop
        self._answer = answer = loop.create_future()
        self._left = count
        self._ends = ends = loop.time() + within
        if self._timer is None or self._rings > ends:
            self._watch()
        self._transport.write(request)
        return answer

    def data_received(self, data: bytes) -> None:
        """Count the replies; the last one ends the call."""
        reader = self._reader
        reader.feed(data)
        while self._left:
            reply = reader.gets()
            if reply is MISSING:
                return
            self.replies.append(reply)
            self._left -= 1
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            replies, self.replies = self.replies, []
            answer.set_result(replies)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, or we, closed it."""
        self._fail(exc or ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close it at once; what wasn't sent yet isn't."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.closed = True
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = self._ends
        self._timer = self._loop.call_at(self._rings, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._answer is None:
            return
        if self._loop.time() < self._ends:
            self._watch()
        else:
            self._fail(TimeoutError("no reply in time"))


class StreamLink:
    """One connection, used through redis-py's own methods."""

    def __init__(self, opened: Opened, loop: asyncio.AbstractEventLoop) -> None:
        self._opened = opened
        self.replies: list[Any] = []
        self.closed = False

    async def exchange(self, request: bytes, count: int, within: float) -> list[Any]:
        """The replies to these requests; `replies` has those that came before a failure."""
        replies: list[Any] = []
        self.replies = replies
        async with asyncio.timeout(within):
            await self._opened.send_packed_command([request], check_health=False)
            while len(replies) < count:
                try:
                    replies.append(await self._opened.read_response())
                except ResponseError as error:
                    replies.append(refusal(error))
        return replies

    def close(self) -> None:
        """Close it at once."""
        self.closed = True
        self._opened.give_up()


Link: TypeAlias = FastLink | StreamLink
LINK: type[FastLink | StreamLink] = FastLink if hiredis else StreamLink
