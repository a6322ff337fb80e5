"""The contract between Soloist and a database: what a store's author reads, and all they read.

A store holds *records*, one per (key, slot). A live record with a token is a hold. An *empty record* is a vacancy that
remembers the last token; an expired or absent one is a vacancy that remembers nothing. The verbs below are all that
the algorithms ever ask; they neither retry, nor sleep, nor log. Every rule has tests in `soloist.testing.contract`, by number:

1.  Expiry is judged by the server's clock, or natively. Never by the client's clock alone.
2.  No lease ends early: TTLs round up, by one second more where the store's clock ticks in whole seconds.
    How late one may end is declared (`late_by`).
3.  A timeout or a lost reply is *unknown*, not refused: `OutcomeUnknown`. `StoreUnavailable` says: surely not done.
    Asking again with the same token *is* reading back: it answers with what stands, and neither shortens it nor takes its
    state or info back.
4.  Release, renew and evict never touch somebody else's hold. A `version` that doesn't match is no verdict: read, and
    compare the token.
5.  Fences grow strictly per key, across release, expiry and eviction: `max(previous + 1, server time in µs)`, or natively.
    What is less is declared; none is faked.
6.  A claim that comes after its `not_after` (a time of the server's) is refused with `Late`, or the store declares that
    it can't (`refuses_late`), and caps the first TTL: the grant says for how long it is, and is renewed to its full lease.
7.  Keys, prefixes and table names are escaped or hashed to what the store accepts. Two different keys never collide;
    keys of 1,000 characters, non-ASCII ones, ones with NUL, newlines or braces work.
8.  Nothing grows for ever: what is abandoned disappears by native expiry or by `cleanup()`, which lets no fence fall.
9.  A record over the store's limit is refused with `TooLarge`.
10. Every record, header and table begins with a format version; a newer one than we know is refused with `ConfigError`.
11. Tables and indexes are made by whoever writes first, never by a reader. An operator's own deletion is legal: indexes
    heal, waiters notice within 2 s, the holder at its next renewal.
12. `Capabilities` says what a store gives; it is tested both ways: a promise that fails and an unpromised thing that
    works are both errors.
15. In a batch each line is judged apart, in order: one that fails keeps no other out. A batch need not be atomic.

Rules 13 and 14 speak of saved records: `save`, `load`, `drop`, `watch`, the chord verbs, `append` and `read` stand here
once results and the audit trail need them. They take the same `within`, raise the same errors, and join `Line`.

Replies are named tuples: frozen, and made in a third of the time that a frozen dataclass needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from soloist._world import boottime
from soloist.errors import ConfigError, StoreError, StoreUnavailable

State: TypeAlias = Literal["publishing", "queued", "running", "kept"]
"""`publishing`: the message isn't surely sent yet. `queued`: it waits for its start. `running`. `kept`: nobody acts under
it any more, yet it shuts others out until its end (`min_hold`)."""

Loss: TypeAlias = Literal["taken", "vanished", "unknown"]
"""Why a hold is no longer ours: another took it; nobody holds it; or its deadline passed and nothing is known."""

Info: TypeAlias = Mapping[str, str | int | float]
"""What an operator reads of a holder: host, pid, task, since, … Kept short: it is stored with each hold."""

Opaque: TypeAlias = str | int | float | None
"""A value that only the store itself reads."""


class Last(NamedTuple):
    """What a vacancy that remembers knows of the hold before."""

    token: str
    state: State


class Holder(NamedTuple):
    """Who holds a key, as anybody may see it.

    `ttl` is in seconds from the moment the store answered; `fence` is None where the store gives none.
    """

    key: str
    slot: int
    token: str
    fence: int | None
    ttl: float
    state: State
    info: Info


class Grant(NamedTuple):
    """The key is ours. A value that travels: whoever has it may renew or release the hold.

    `now` is the server's time from which `ttl` counts. `version` spares a store's renewal and release a look (a CAS
    number, an ETag, a lease id). `last` is what the vacancy remembered, or None.
    """

    key: str
    token: str
    fence: int | None
    version: Opaque
    slot: int
    ttl: float
    now: float
    last: Last | None = None


class Busy(NamedTuple):
    """Somebody else holds the key. Without holders: ask again soon. `seen` is for `wait`, so that no wake-up is lost."""

    holders: tuple[Holder, ...]
    seen: Opaque
    now: float


class Gone(NamedTuple):
    """An `expect` met a vacancy that remembers another token; or nothing of ours is left to renew."""

    last: str | None
    state: State | None
    now: float


class Late(NamedTuple):
    """The claim came after its `not_after`; ask again with a fresh estimate of the server's clock."""

    now: float


class Page(NamedTuple):
    """A page of a listing. `cursor` is for the next page, None at the end."""

    holders: tuple[Holder, ...]
    cursor: str | None


class Renew(NamedTuple):
    """The arguments of `renew`, for `batch`."""

    grant: Grant
    ttl: float
    state: State | None = None
    info: Info | None = None


class Release(NamedTuple):
    """The arguments of `release`, for `batch`."""

    grant: Grant
    keep: float = 0
    last: Last | None = None


class Evict(NamedTuple):
    """The arguments of `evict`, for `batch`."""

    key: str
    token: str
    slots: int = 1


class Look(NamedTuple):
    """The arguments of `look`, for `batch`."""

    key: str
    slots: int = 1


Line: TypeAlias = Renew | Release | Evict | Look
Claimed: TypeAlias = Grant | Busy | Gone | Late
Renewed: TypeAlias = Grant | Busy | Gone
Verdict: TypeAlias = Grant | Busy | Gone | bool | tuple[Holder, ...] | StoreError
"""What a line of a batch comes to: the verb's own answer, or the error that it met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store gives. Docs and tests are checked against it (rule 12).

    Attributes:
        fence: `strict`; `until restart`: may fall when the server restarts; `none`: no fence at all.
        push: How a waiter is woken, in a word; empty where it can't be and polls.
        poll: Seconds between a waiter's questions where the store can't push.
        listing: Holders can be listed by prefix.
        slots: Semaphores.
        refuses_late: `not_after` is honoured.
        remembers_last: `release(keep=)` leaves a vacancy that remembers.
        shortest_ttl: The shortest lease in seconds; a shorter one is a `ConfigError`.
        longest_ttl: The longest one.
        late_by: How many seconds late a lease may end.
        clock_step: By how many seconds the `now` of a reply may be behind: 0 for an exact clock, 1 for an HTTP `Date`
            header, infinity for a store that has no time to offer.
        max_record: The largest info in bytes.
        linearizable: Under which configuration; in words.
        failover: What happens to a hold; in words.
        needs: The server's version and rights; in words.
    """

    fence: Literal["strict", "until restart", "none"]
    push: str
    poll: float = 0.1
    listing: bool
    slots: bool
    refuses_late: bool
    remembers_last: bool
    shortest_ttl: float
    longest_ttl: float
    late_by: float
    clock_step: float = 0.0
    max_record: int
    linearizable: str
    failover: str
    needs: str


class Store(ABC):
    """A database behind the contract. `within`, everywhere: seconds that the request may take.

    The methods are coroutines for both uses. In blocking use they never suspend; see `soloist._world.run`.
    """

    capabilities: Capabilities

    @abstractmethod
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
        """Ask for a hold of `key`: granted if a slot is vacant, expired, or held by `token` already (rule 3).

        Args:
            key: What is guarded.
            token: Random, one per acquisition; `owner/nonce`, or `owner/publication/nonce`.
            ttl: Seconds that the hold shall live.
            info: What others see of the holder.
            state: The state that the hold begins in.
            expect: Take over from the hold of that very token, or from the vacancy that remembers it. A vacancy that
                remembers nothing is granted; one that remembers another is `Gone`; another's live hold is `Busy`.
            not_after: A time of the server's after which the claim is refused (rule 6).
            slots: How many may hold the key at once. `Busy` if the token's owner has one of several already.
            will_wait: The caller will `wait` if refused. Not together with `expect`.
            within: Seconds that the request may take.
        """

    @abstractmethod
    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """Let the hold end `ttl` seconds from now, or later if it did already: no renewal brings an end nearer, but for one
        that sets `kept`; and one without a state leaves a `kept` hold alone. May change `version`, never token or fence."""

    @abstractmethod
    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """Give the hold back; False if it wasn't ours any more. `keep`: leave a vacancy that remembers the token and state
        (or `last`) for so many seconds. By default nothing stays."""

    @abstractmethod
    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """Take the hold of that very token away, whichever of the slots it has; False if there was none."""

    @abstractmethod
    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """Who holds the key now, slot by slot."""

    @abstractmethod
    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """Holders of keys that begin with `prefix`, page by page, in no promised order; every slot. A hold that stands all the
        while is on one page."""

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """Wait until something has changed since `seen`, for at most `within` seconds; it may come back early.

        It may return a grant: a released hold that was handed on, short, with a token of its own and without info;
        `ttl` and `now` count from the refusal that gave `seen`. A store that can't push leaves this as it is.
        """
        raise AssertionError(f"{type(self).__name__} can't push: who waits asks again every {self.capabilities.poll} s")

    @abstractmethod
    async def ping(self, *, within: float = 3) -> float:
        """The server's time, in seconds since 1970 or since another fixed moment."""

    async def batch(self, lines: Sequence[Line], *, within: float = 3) -> tuple[Verdict, ...]:
        """Each line's own verdict, in order (rule 15). A store that can do it in one trip does better than this."""
        ends = boottime() + within
        return tuple([await self._single(line, ends - boottime()) for line in lines])

    async def cleanup(self, *, within: float = 60) -> int:
        """Remove what has ended, and say how many records that was; no fence falls. Zero where expiry is native."""
        return 0

    async def close(self) -> None:
        """Close what is open. A closed store opens again when it is asked something."""

    async def _single(self, line: Line, within: float) -> Verdict:
        try:
            if within <= 0:
                raise StoreUnavailable("the time for this batch was up before this line was sent")
            match line:
                case Renew(grant, ttl, state, info):
                    return await self.renew(grant, ttl, state=state, info=info, within=within)
                case Release(grant, keep, last):
                    return await self.release(grant, keep, last, within=within)
                case Evict(key, token, slots):
                    return await self.evict(key, token, slots=slots, within=within)
                case Look(key, slots):
                    return await self.look(key, slots=slots, within=within)
        except StoreError as error:
            return error
        except ConfigError as error:  # a record that can't be read, for example: it keeps no other line out
            return StoreUnavailable(str(error))


def owner(token: str) -> str:
    """Whose token it is: what stands before its last two parts, or before its last one.

    >>> owner("fjord/1"), owner("a/task/id/5.0/x")
    ('fjord', 'a/task/id')
    """
    return token.rsplit("/", 2)[0]
