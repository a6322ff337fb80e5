"""A bad line to a server: a small TCP relay on loopback that loses, holds back, doubles and delays what it carries.

    with Relay("127.0.0.1", 6379) as relay:
        solo = Soloist(f"redis://{relay.host}:{relay.port}/0")
        relay.next("lose reply")            # the next request is carried out, and nobody is told
        relay.at_random({"lose request": 0.05, "hold": 0.05}, seed=7)

1. A request is what the client sends before it waits for an answer: one piece of bytes, whatever the protocol.
2. A connection that lost something stays silent from there on. Its client must give it up, as one whose network broke.
3. What is held arrives when `deliver` says so, or `LATE` seconds later under `at_random`: on the connection that it was sent
   on, which stays open towards the server after the client gave up, as a kernel goes on sending a closed socket's bytes.
4. All chance comes from the seed; the order of requests of several connections doesn't.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

Fault: TypeAlias = Literal["lose request", "lose reply", "hold", "duplicate", "delay"]
"""What may befall a request: it never arrives; it is carried out, and the reply is lost; it arrives long after its sender gave
up; it arrives on another connection, too, and first there; it takes `Relay.delay` seconds."""

LATE = 0.2
"""Seconds after which a request that was held by chance arrives."""


class Plan:
    """Which fault the next request suffers: the one that was asked for, else one by chance."""

    def __init__(self) -> None:
        self._next: list[Fault] = []
        self._odds: Mapping[Fault, float] = {}
        self._chance = random.Random()
        self._lock = threading.Lock()

    def next(self, fault: Fault) -> None:
        """The next request suffers this fault; called again, the one after it."""
        with self._lock:
            self._next.append(fault)

    def at_random(self, odds: Mapping[Fault, float], *, seed: int) -> None:
        """From now on each request suffers each fault with these odds; empty odds end it."""
        with self._lock:
            self._odds, self._chance = odds, random.Random(seed)

    def take(self) -> tuple[Fault | None, bool]:
        """The fault of a request that begins now, and whether chance chose it."""
        with self._lock:
            if self._next:
                return self._next.pop(0), False
            left = self._chance.random()
            for fault, odds in self._odds.items():
                left -= odds
                if left < 0:
                    return fault, True
            return None, False


class _Connection:
    """One client's connection, and the one to the server in its place."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self.relay = relay
        self.client = client
        self.server = server
        self.held = b""
        self.lost_request = self.lost_reply = self.holding = False
        self.answered = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Carry bytes both ways until one side ends."""
        self.threads += [_beside(self.requests), _beside(self.replies)]

    def requests(self) -> None:
        """From the client to the server."""
        while data := _received(self.client):
            if not (self.lost_request or self.holding):
                self.suffer(data)
            if self.holding:
                self.held += data
            elif not self.lost_request:
                _send(self.server, data)
        _hang_up(self.client)
        if not self.holding:
            _hang_up(self.server)

    def suffer(self, data: bytes) -> None:
        """Decide what befalls this request."""
        fault, by_chance = self.relay.plan.take()
        self.lost_request = fault == "lose request"
        self.lost_reply = self.lost_reply or fault == "lose reply"
        self.holding = fault == "hold"
        if self.holding and by_chance:
            self.threads.append(_beside(self.deliver_late))
        if fault == "delay":
            time.sleep(self.relay.delay)
        if fault == "duplicate":
            self.relay.send_once_more(data)

    def replies(self) -> None:
        """From the server to the client."""
        while data := _received(self.server):
            if self.holding:
                self.answered.set()
            elif not self.lost_reply:
                _send(self.client, data)
        self.answered.set()
        _hang_up(self.client)
        _hang_up(self.server)

    def deliver_late(self) -> None:
        """Let what is held arrive after a while."""
        time.sleep(LATE)
        self.deliver()

    def deliver(self) -> None:
        """Let what is held arrive; the answer reaches nobody."""
        if self.held:
            _send(self.server, self.held)
            self.held = b""
            self.answered.wait(5)
        _hang_up(self.server)


class Relay:
    """A relay to one server. Starts to listen when it is made; `close` ends every connection."""

    def __init__(self, host: str, port: int, *, delay: float = 0.2, greeting: bytes = b"") -> None:
        """Relay to the server at `host` and `port`.

        Args:
            host: Where the server is.
            port: The server's port.
            delay: Seconds that a delayed request takes.
            greeting: What a connection of the relay's own must send first (a password, a database's number).
        """
        self.plan = Plan()
        self.delay = delay
        self._greeting = greeting
        self._upstream = (host, port)
        self._connections: list[_Connection] = []
        self.host, self.port = "127.0.0.1", 0
        self.accept()

    def next(self, fault: Fault) -> None:
        """See `Plan.next`."""
        self.plan.next(fault)

    def at_random(self, odds: Mapping[Fault, float], *, seed: int) -> None:
        """See `Plan.at_random`."""
        self.plan.at_random(odds, seed=seed)

    def deliver(self) -> None:
        """Let all that is held arrive; returns once the server has answered it."""
        for connection in list(self._connections):
            if connection.holding:
                connection.deliver()

    def cut(self) -> None:
        """Cut every connection, as a server that restarts does."""
        for connection in list(self._connections):
            _hang_up(connection.client)
            _hang_up(connection.server)

    def refuse(self) -> None:
        """Nobody listens here any more; what is connected is cut."""
        _hang_up(self._listener)
        self.cut()

    def accept(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((self.host, self.port))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        self._welcomes = _beside(self._welcome)

    def close(self) -> None:
        """End everything."""
        self.refuse()
        for thread in [self._welcomes, *(thread for connection in self._connections for thread in connection.threads)]:
            thread.join(6)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def send_once_more(self, data: bytes) -> None:
        """Send these bytes to the server on a connection of our own, and return when they have been answered."""
        with socket.create_connection(self._upstream, timeout=5) as own:
            for part in (self._greeting, data):
                if part:
                    own.sendall(part)
                    own.recv(65536)

    def _welcome(self) -> None:
        listener = self._listener
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._upstream, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(self, client, server)
            self._connections.append(connection)
            connection.start()


def _beside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="relay", daemon=True)
    thread.start()
    return thread


def _received(side: socket.socket) -> bytes:
    """The next piece; empty at the end."""
    try:
        return side.recv(1 << 20)
    except OSError:
        return b""


def _send(side: socket.socket, data: bytes) -> None:
    """Send, to whoever still listens."""
    with suppress(OSError):
        side.sendall(data)


def _hang_up(side: socket.socket) -> None:
    """Close, and wake whoever reads there: a close alone wouldn't."""
    with suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
