"""The wire between a store and its database, made bad: a relay before a server, a wrapper around a store without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from soloist.contract import Store
from soloist.errors import OutcomeUnknown
from soloist.testing._contract.asking import granted
from soloist.testing.relay import Plan, Relay

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from soloist.contract import Claimed, Grant, Holder, Info, Last, Line, Opaque, Page, Renewed, State, Verdict
    from soloist.testing._contract.asking import Ask
    from soloist.testing.relay import Fault

T = TypeVar("T")


class Wire(Protocol):
    """What can befall the requests of a store."""

    def next(self, fault: Fault) -> None:
        """The next request suffers this fault."""
        ...

    def at_random(self, odds: Mapping[Fault, float], *, seed: int) -> None:
        """From now on each request suffers each fault with these odds."""
        ...

    def deliver(self) -> None:
        """What is held arrives; returns once it was answered."""
        ...


class Faulty(Store):
    """A store that loses requests and replies as a network does; for those that have no network."""

    def __init__(self, ask: Ask, store: Store) -> None:
        self.capabilities = store.capabilities
        self._ask = ask
        self._store = store
        self._plan = Plan()
        self._held: list[Callable[[], Awaitable[object]]] = []
        self.next = self._plan.next
        self.at_random = self._plan.at_random

    def deliver(self) -> None:
        """See `Wire.deliver`."""
        while self._held:
            self._ask(_finished(self._held.pop(0)))

    async def _over(self, verb: Callable[[], Awaitable[T]]) -> T:
        fault, by_chance = self._plan.take()
        if fault == "hold" and not by_chance:
            self._held.append(verb)
        if fault in ("lose request", "hold"):
            raise OutcomeUnknown("the request was lost")
        if fault == "duplicate":
            await verb()
        answer = await verb()
        if fault == "lose reply":
            raise OutcomeUnknown("the reply was lost")
        return answer

    async def claim(
        self,
        key: str,
        token: str,
        ttl: float,
        *,
        info: Info,
        state: State = "running",
        expect: str | None = None,
        not_after: float | None = None,
        slots: int = 1,
        will_wait: bool = False,
        within: float = 3,
    ) -> Claimed:
        """See `Store.claim`."""
        return await self._over(
            lambda: self._store.claim(
                key,
                token,
                ttl,
                info=info,
                state=state,
                expect=expect,
                not_after=not_after,
                slots=slots,
                will_wait=will_wait,
                within=within,
            )
        )

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        return await self._over(lambda: self._store.renew(grant, ttl, state=state, info=info, within=within))

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        return await self._over(lambda: self._store.release(grant, keep, last, within=within))

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        return await self._over(lambda: self._store.evict(key, token, slots=slots, within=within))

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        return await self._over(lambda: self._store.look(key, slots=slots, within=within))

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`."""
        return await self._over(lambda: self._store.listing(prefix, cursor, limit, within=within))

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """See `Store.wait`."""
        return await self._over(lambda: self._store.wait(key, seen, within=within))

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        return await self._over(lambda: self._store.ping(within=within))

    async def batch(self, lines: Sequence[Line], *, within: float = 3) -> tuple[Verdict, ...]:
        """See `Store.batch`."""
        return await self._over(lambda: self._store.batch(lines, within=within))


async def _finished(verb: Callable[[], Awaitable[T]]) -> T:
    return await verb()


class Bad(NamedTuple):
    """A store behind a bad wire. `relay` is None where there is no server to put one before."""

    store: Store
    wire: Wire
    relay: Relay | None


def bad_wire(ask: Ask, key: str) -> Bad:
    """A store behind a bad wire that is still good; it is connected, and has used its verbs on `key`."""
    subject = ask.subject
    if subject.server is None or subject.through is None:
        faulty = Faulty(ask, ask.open())
        return Bad(faulty, faulty, None)
    relay = Relay(*subject.server, greeting=subject.greeting)
    store = ask.open(url=subject.through(relay.host, relay.port))
    warm = granted(ask(store.claim(key, "warm/1", 60, info={})))
    ask(store.renew(warm, 60))
    ask(store.release(warm))
    return Bad(store, relay, relay)
