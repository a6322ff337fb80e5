"""The asyncio wire: pools of connections (`links.py`), and who waits for what.

1. One request at a time on a connection. One whose call failed, timed out or was cancelled is closed, never used again, and
   one that failed takes every idle one with it.
2. Each event loop has its own connections, MOST at once; who finds none free waits in line.
3. Who waits for a key shares one blocked connection with its siblings of this loop, and they are served in turn.
4. Nothing is awaited while unwinding. A baton that comes for nobody runs out by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError

from soloist.errors import SoloistError, StoreError, StoreUnavailable
from soloist.stores._redis.links import KINDS, LINK, Link, Opened
from soloist.stores._redis.replies import Refusal, broken, misfit, refusal
from soloist.stores._redis.scripts import pack
from soloist.stores._redis.wire import LATE, MOST, SHORTEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soloist.stores._redis.options import Options


class Turns:
    """Who waits for one list in this loop, in order, and the task that waits for all of them."""

    def __init__(self) -> None:
        self.waiters: deque[tuple[asyncio.Future[bytes | None], float]] = deque()
        self.task: asyncio.Task[None] | None = None

    def give(self, baton: bytes) -> None:
        """To whoever has waited longest; to nobody if nobody does."""
        while self.waiters:
            turn, _ = self.waiters.popleft()
            if not turn.done():
                turn.set_result(baton)
                return

    def leave(self, turn: asyncio.Future[bytes | None]) -> None:
        """Wait no longer."""
        self.waiters = deque(waiter for waiter in self.waiters if waiter[0] is not turn)

    def dismiss(self, error: SoloistError | Refusal | None) -> None:
        """Let all of them go."""
        while self.waiters:
            turn, _ = self.waiters.popleft()
            if turn.done():
                continue
            if error is None:
                turn.set_result(None)
            else:
                turn.set_exception(error)


class Pool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[Link] = []
        self.spare: list[Link] = []
        self.busy = 0
        self.line: deque[asyncio.Future[None]] = deque()
        self.turns: dict[bytes, Turns] = {}

    def next_in_line(self) -> None:
        """Somebody may have the place that has become free."""
        while self.line:
            turn = self.line.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def drop(self) -> None:
        """Close the idle ones."""
        for links in (self.idle, self.spare):
            while links:
                links.pop().close()


class AsyncWire:
    """Requests and replies on pooled connections, for the running event loop."""

    def __init__(self, options: Options) -> None:
        self.where = options.where
        self._kind = KINDS[options.kind]
        self._arguments: dict[str, Any] = {**options.arguments, "protocol": 2}
        self._known = False
        self.forget()
        _WIRES.add(self)

    def forget(self) -> None:
        """Begin with no pools, and touch no connection of the old ones."""
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = WeakKeyDictionary()
        self._latest: Pool | None = None

    async def ask(self, request: bytes, within: float) -> Any:
        """The reply. `Refusal`: it is an error."""
        (reply,) = await self._exchange(request, 1, within)
        if reply.__class__ is Refusal:
            if reply.stale:
                self._pool().drop()
            raise reply
        return reply

    async def ask_all(self, requests: Sequence[bytes], within: float) -> list[Any]:
        """A reply for each request, in one trip: what the server said, its `Refusal`, or the `StoreError` that it met."""
        try:
            return await self._exchange(b"".join(requests), len(requests), within)
        except StoreUnavailable as error:
            return [error] * len(requests)

    async def pop(self, name: bytes, within: float) -> bytes | None:
        """What whoever hands on puts into this list next; None after `within` seconds, or at once if there is no room or time."""
        pool = self._pool()
        turns = pool.turns.get(name)
        if within - LATE < SHORTEST or (turns is None and len(pool.turns) >= MOST):
            return None
        if turns is None:
            turns = pool.turns[name] = Turns()
            turns.task = pool.loop.create_task(self._serve(pool, name, turns))
        assert turns.task is not None, "who made the turns began to serve them"
        turn: asyncio.Future[bytes | None] = pool.loop.create_future()
        turns.waiters.append((turn, pool.loop.time() + within))
        timer = pool.loop.call_later(within, _resolve, turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None and (baton := turn.result()) is not None:
                turns.give(baton)
            raise
        finally:
            timer.cancel()
            turns.leave(turn)
            if not turns.waiters and pool.turns.get(name) is turns:  # the last one takes the connection with it
                del pool.turns[name]
                turns.task.cancel()

    async def close(self) -> None:
        """Close the connections of this loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        self._latest = None
        if pool is not None:
            for turns in list(pool.turns.values()):
                turns.dismiss(None)
                if turns.task is not None:
                    turns.task.cancel()
            pool.drop()
            await asyncio.sleep(0)  # in which the transports close their sockets

    def _pool(self) -> Pool:
        loop, pool = asyncio.get_running_loop(), self._latest
        if pool is not None and pool.loop is loop:
            return pool
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = Pool(loop)
        self._latest = pool
        return pool

    async def _exchange(self, request: bytes, count: int, within: float) -> list[Any]:
        pool = self._pool()
        if pool.busy >= MOST:
            within = await self._in_line(pool, within)
        pool.busy += 1
        try:
            link = None
            while link is None or link.closed:
                if not pool.idle:
                    link, within = await self._opened(pool, within)
                    break
                link = pool.idle.pop()
            try:
                replies = await link.exchange(request, count, within)
            except BaseException as error:
                if (failure := self._failed(pool, link, error, within)) is None:
                    raise
                if count == 1:
                    raise failure from error
                return link.replies + [failure] * (count - len(link.replies))
        finally:
            pool.busy -= 1
            if pool.line:
                pool.next_in_line()
        pool.idle.append(link)
        return replies

    async def _in_line(self, pool: Pool, within: float) -> float:
        """Wait until one of the connections is free; how many seconds are left then."""
        ends = pool.loop.time() + within
        while pool.busy >= MOST:
            turn: asyncio.Future[None] = pool.loop.create_future()
            pool.line.append(turn)
            try:
                async with asyncio.timeout_at(ends):
                    await turn
            except BaseException as error:
                if turn.done() and not turn.cancelled():
                    pool.next_in_line()
                if isinstance(error, TimeoutError):
                    raise StoreUnavailable(f"{self.where}: all {MOST} connections were in use for {within:.1f} s") from error
                raise
        return max(ends - pool.loop.time(), 0.001)

    async def _serve(self, pool: Pool, name: bytes, turns: Turns) -> None:
        """Wait on one connection for all who wait for this list (rule 3)."""
        link: Link | None = None
        error: SoloistError | Refusal | None = None
        left = 0.0
        try:
            while turns.waiters:
                left = max(ends for _, ends in turns.waiters) - pool.loop.time()
                if left - LATE < SHORTEST:
                    break
                if link is None:
                    link = pool.spare.pop() if pool.spare else (await self._opened(pool, left))[0]
                reply = (await link.exchange(pack((b"BLPOP", name, f"{left - LATE:.3f}")), 1, left + LATE))[0]
                if isinstance(reply, Refusal):
                    error = reply
                    break
                if reply is not None:
                    turns.give(bytes(reply[1]))
            if link is not None:
                pool.spare.append(link)
                link = None
        except (RedisError, OSError, SoloistError) as failure:
            if not isinstance(failure, TimeoutError):  # a BLPOP that never ended: they ask again
                error = failure if isinstance(failure, SoloistError) else broken(failure, self.where, left, sent=True)
            pool.drop()
        finally:
            if link is not None:
                link.close()
            if pool.turns.get(name) is turns:
                del pool.turns[name]
            turns.dismiss(error)

    async def _opened(self, pool: Pool, within: float) -> tuple[Link, float]:
        """A new connection, and how many seconds are left. redis-py is given no time limits of its own: to keep them it uses
        `asyncio.wait_for`, which swallows a cancellation before Python 3.12."""
        began = pool.loop.time()
        opened = self._kind(**self._arguments, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=None)
        try:
            async with asyncio.timeout(within):
                await opened.connect()  # type: ignore[no-untyped-call]  # redis-py's
                if not self._known:
                    await self._meet(opened)
        except BaseException as error:
            opened.give_up()
            if not isinstance(error, RedisError | OSError):
                raise
            pool.drop()
            refused = refusal(error)
            raise (refused.meaning(self.where) if refused else broken(error, self.where, within, sent=False)) from error
        return LINK(opened, pool.loop), max(within - (pool.loop.time() - began), 0.001)

    async def _meet(self, opened: Opened) -> None:
        """Ask the first connection whether this server will do."""
        await opened.send_packed_command([pack((b"INFO", b"server"))], check_health=False)
        try:
            info = cast("Any", await opened.read_response())
        except NoPermissionError:
            info = b""
        if reason := misfit(bytes(info).decode(errors="replace"), self.where):
            raise reason
        self._known = True

    def _failed(self, pool: Pool, link: Link, error: BaseException, within: float) -> StoreError | None:
        """What this error means; None: it isn't the connection's, and is raised as it is. Rule 1."""
        link.close()
        if not isinstance(error, RedisError | OSError):
            return None
        pool.drop()
        return broken(error, self.where, within, sent=True)


def _resolve(turn: asyncio.Future[bytes | None]) -> None:
    if not turn.done():
        turn.set_result(None)


_WIRES: WeakSet[AsyncWire] = WeakSet()


def _after_fork_in_child() -> None:
    for wire in list(_WIRES):
        wire.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
