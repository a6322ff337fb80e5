"""Asking a store under test, in blocking use or in an event loop: the same cases for both."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import pytest

from soloist._world import run
from soloist.contract import Busy, Gone, Grant
from soloist.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence

    from soloist.contract import Holder, Store, Verdict

T = TypeVar("T")

NAMESPACE = "contract"
PATIENCE = 20.0
"""Seconds after which something that should have happened is said to hang."""

GRAIN = 0.005
"""Seconds by which two readings of one server's clocks may differ."""


class Connects(Protocol):
    """How a store is opened; nothing is sent yet."""

    def __call__(self, url: str, namespace: str, *, aio: bool) -> Store:
        """A store whose verbs suspend in the running loop, or never."""
        ...


class Untouched(NamedTuple):
    """A place where nothing was ever written; `traces` names what lies there now: tables, records, entries of an index."""

    url: str
    namespace: str
    traces: Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A store under test: its URL, and what only its own client can do to it.

    Attributes:
        url: The store's URL. The server may be shared, and in use; the cases touch their own keys alone.
        connect: Opens it; by default by its URL's scheme.
        server: Host and port, if a server is reached by TCP: the cases then put a bad line before it. Without one they lose
            requests and replies between themselves and the store.
        through: The URL that leads to the same database by another host and port.
        greeting: What a new connection to the server must send before a request (a password, a database's number).
        delete: An operator's own deletion of a record, given namespace, key and slot.
        delete_index: An operator's own deletion of whatever finds the record of a namespace and key for a listing.
        untouched: A place where nothing was ever written.
        plant_newer: Turns what lies at such a place, under its namespace and this key, into a format that doesn't exist yet.
        without: Why this store can't have a hook, by the hook's name. In this repository a hook that is missing without a
            word here fails the run.

    A hook that is None skips the cases that need it, with a reason that names it.
    """

    url: str
    connect: Connects = open_store
    server: tuple[str, int] | None = None
    through: Callable[[str, int], str] | None = None
    greeting: bytes = b""
    delete: Callable[[str, str, int], None] | None = None
    delete_index: Callable[[str, str], None] | None = None
    untouched: Callable[[], Untouched] | None = None
    plant_newer: Callable[[Untouched, str], None] | None = None
    without: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """What it says that it can't have isn't there, and each has its reason."""
        for name, reason in self.without.items():
            assert getattr(self, name, "") is None, f"without={{{name!r}: …}}, and yet it is there, or no hook has this name"
            assert reason, f"without={{{name!r}: ''}} doesn't say why"


class Ask(ABC):
    """Asks: `ask(store.claim(…))` gives the answer, whatever kind of store it is."""

    aio: bool

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._opened: list[Store] = []
        self._looker: Store | None = None

    @abstractmethod
    def __call__(self, verb: Coroutine[Any, Any, T]) -> T:
        """The verb's answer."""

    @abstractmethod
    def beside(self, verb: Coroutine[Any, Any, T]) -> Future[T]:
        """Ask without waiting for the answer."""

    @abstractmethod
    def racing(self, verbs: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """Ask all at once: in threads, or in tasks of one loop. The answers, in the order of the verbs."""

    def open(self, *, url: str | None = None, namespace: str = NAMESPACE) -> Store:
        """One more store, as another process would have it; closed when the case is over."""
        store = self.subject.connect(url or self.subject.url, namespace, aio=self.aio)
        self._opened.append(store)
        return store

    def until(self, condition: Callable[[], T], *, within: float = PATIENCE) -> T:
        """Wait for an event: what `condition` says once that is true."""
        ends = time.monotonic() + within
        while not (said := condition()):
            assert time.monotonic() < ends, "this should have happened long ago"
            time.sleep(0.01)
        return said

    def until_vacant(self, key: str, *, slots: int = 1) -> None:
        """Wait until nobody holds the key."""
        looker = self._looker = self._looker or self.open()
        self.until(lambda: not self(looker.look(key, slots=slots)), within=PATIENCE + looker.capabilities.late_by)

    def close(self) -> None:
        """Close all stores that were opened."""
        for store in self._opened:
            self(store.close())


class Blocking(Ask):
    """Blocking use: a verb runs to its end where it is asked."""

    aio = False

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._pool = ThreadPoolExecutor(32)

    def __call__(self, verb: Coroutine[Any, Any, T]) -> T:
        """See `Ask.__call__`."""
        return run(verb)

    def beside(self, verb: Coroutine[Any, Any, T]) -> Future[T]:
        """See `Ask.beside`."""
        return self._pool.submit(run, verb)

    def racing(self, verbs: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """See `Ask.racing`."""
        gate = threading.Barrier(len(verbs))

        def racer(verb: Callable[[], Coroutine[Any, Any, T]]) -> T:
            gate.wait(PATIENCE)
            return run(verb())

        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads give way to one another wherever they can
        try:
            return [racer.result(PATIENCE) for racer in [self._pool.submit(racer, verb) for verb in verbs]]
        finally:
            sys.setswitchinterval(usual)

    def close(self) -> None:
        """See `Ask.close`."""
        self._pool.shutdown()
        super().close()


class Asyncio(Ask):
    """Use in an event loop: one loop for each case, in a thread of its own, so that cases read the same."""

    aio = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.loop = asyncio.new_event_loop()
        self._asked: list[Future[Any]] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def __call__(self, verb: Coroutine[Any, Any, T]) -> T:
        """See `Ask.__call__`."""
        return self.beside(verb).result(PATIENCE)

    def beside(self, verb: Coroutine[Any, Any, T]) -> Future[T]:
        """See `Ask.beside`."""
        future = asyncio.run_coroutine_threadsafe(verb, self.loop)
        self._asked.append(future)
        return future

    def racing(self, verbs: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        """See `Ask.racing`."""

        async def together() -> list[T]:
            return await asyncio.gather(*(verb() for verb in verbs))

        return self(together())

    def close(self) -> None:
        """See `Ask.close`."""
        for future in self._asked:
            future.cancel()
        super().close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def needs(store: Store, capability: str) -> None:
    """Skip where a capability isn't declared. A case elsewhere asserts that it isn't there, either."""
    if not getattr(store.capabilities, capability):
        pytest.skip(f"capability: {capability}")


def needs_fences(store: Store) -> None:
    """Skip where there are no fences, by declaration."""
    if store.capabilities.fence == "none":
        pytest.skip("capability: fence")


def offered(hook: T | None, name: str) -> T:
    """A subject's hook; skip where it has none."""
    if hook is None:
        pytest.skip(f"hook: {name}")
    return hook


def brief(store: Store) -> float:
    """A lease that ends soon, yet not before the next few requests."""
    return max(store.capabilities.shortest_ttl, 0.5)


def token() -> str:
    """A new token, of an owner of its own."""
    return f"{os.urandom(6).hex()}/{os.urandom(6).hex()}"


def granted(answer: object) -> Grant:
    """The answer, which must be a grant."""
    assert isinstance(answer, Grant)
    return answer


def refused(answer: object) -> Busy:
    """The answer, which must be a refusal since somebody else holds the key."""
    assert isinstance(answer, Busy)
    return answer


def fence_of(answer: object) -> int:
    """A grant's fence."""
    fence = granted(answer).fence
    assert fence is not None
    return fence


def looked(verdict: Verdict) -> tuple[Holder, ...]:
    """The holders that a Look of a batch comes to."""
    assert isinstance(verdict, tuple)
    assert not isinstance(verdict, Grant | Busy | Gone)
    return verdict


def only(holders: Sequence[Holder]) -> Holder:
    """The one holder that there must be."""
    assert len(holders) == 1
    return holders[0]


def who(ask: Ask, store: Store, key: str) -> str:
    """The token of the one holder."""
    return only(ask(store.look(key))).token


def named(answer: object) -> str:
    """The token of the one holder that a refusal names."""
    return only(refused(answer).holders).token


def listed(ask: Ask, store: Store, prefix: str, limit: int = 100) -> list[Holder]:
    """All holders of a listing, over all its pages."""
    found: list[Holder] = []
    cursor: str | None = None
    for _ in range(10_000):
        page = ask(store.listing(prefix, cursor, limit))
        assert len(page.holders) <= limit
        found += page.holders
        if (cursor := page.cursor) is None:
            return found
    raise AssertionError("a listing that never ends")


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """Fails if what stands in it takes longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began <= seconds
