"""The relay does to a request what it was told to, and nothing to the next one."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing, suppress

import pytest

from soloist.testing.relay import Fault, Relay

WITHIN = 0.2


class Echo:
    """A server that answers each request with itself, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.welcome, daemon=True).start()

    def welcome(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            while data := client.recv(1 << 16):
                self.asked.append(data)
                client.sendall(data)


@pytest.fixture
def echo() -> Generator[Echo]:
    server = Echo()
    with closing(server.listener):
        yield server
        server.listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(echo: Echo) -> Generator[Relay]:
    with Relay("127.0.0.1", echo.port) as between:
        yield between


def ask(relay: Relay, request: bytes) -> bytes:
    """The answer to a request on a connection of its own; empty if it was cut."""
    with socket.create_connection((relay.host, relay.port), timeout=WITHIN) as client:
        client.sendall(request)
        return client.recv(1 << 16)


def test_what_suffers_nothing_is_carried(relay: Relay, echo: Echo) -> None:
    assert [ask(relay, b"one"), ask(relay, b"two")] == [b"one", b"two"]
    assert echo.asked == [b"one", b"two"]


@pytest.mark.parametrize(("fault", "arrived"), [("lose request", []), ("lose reply", [b"one"]), ("hold", [])])
def test_a_loss_is_silent_and_ends_with_its_connection(relay: Relay, echo: Echo, fault: Fault, arrived: list[bytes]) -> None:
    relay.next(fault)
    with pytest.raises(TimeoutError):
        ask(relay, b"one")
    assert echo.asked == arrived
    assert ask(relay, b"two") == b"two"


def test_what_is_held_arrives_when_it_is_delivered(relay: Relay, echo: Echo) -> None:
    relay.next("hold")
    with pytest.raises(TimeoutError):
        ask(relay, b"late")
    ask(relay, b"early")
    relay.deliver()
    assert echo.asked == [b"early", b"late"]
    relay.deliver()
    assert echo.asked == [b"early", b"late"]


def test_a_duplicate_arrives_twice_and_is_answered_once(relay: Relay, echo: Echo) -> None:
    relay.next("duplicate")
    assert ask(relay, b"one") == b"one"
    assert echo.asked == [b"one", b"one"]


def test_a_delay_takes_its_time(relay: Relay) -> None:
    relay.delay = 0.1
    relay.next("delay")
    began = time.monotonic()
    assert ask(relay, b"one") == b"one"
    assert time.monotonic() - began >= 0.1


def test_nobody_listens_until_it_accepts_again(relay: Relay) -> None:
    with socket.create_connection((relay.host, relay.port), timeout=WITHIN) as client:
        client.sendall(b"one")
        assert client.recv(10) == b"one"
        relay.refuse()
        assert client.recv(10) == b""
        with pytest.raises(ConnectionRefusedError):
            ask(relay, b"two")
    relay.accept()
    assert ask(relay, b"three") == b"three"


def test_chance_comes_from_the_seed(relay: Relay, echo: Echo) -> None:
    def run(seed: int) -> list[bytes]:
        echo.asked.clear()
        relay.at_random({"duplicate": 0.5}, seed=seed)
        return [ask(relay, b"%d" % i) for i in range(12)] and list(echo.asked)

    assert run(7) == run(7) != run(8)
