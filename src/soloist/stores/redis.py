"""Redis and Valkey: `redis://host:port/db`, `rediss://…`, `unix:///path?db=0`.

A hold is a string whose PX is the lease itself: `GET` and `TTL` tell an operator the truth, and `DEL` is legal. Keys lie in 256
buckets, b1 = crc32(key) % 256 in hex; the kind stands before the first colon after `}`, so no user's key meets another kind:

    so:{b1}:report:42      1 r 1763500800000123 9f1c/77aa {"host":"w1"}     format, state, fence, token, info
    so:{b1}2:report:42     the same: slot 2 of a semaphore (slot 0 has the lock's own name)
    so:{b1}                ZSET `slot:key` -> end in ms: the index; '' -> minus the last fence: the counter
    so:{b1}w:report:42     LIST, only while a baton lies there: `slot fence token end`

State is p, q, r or k, in capitals while somebody waits (until when stands behind the token). `-` before a token: the record is
empty, and remembers it. b is a baton, a hold of one second that nobody has renewed. More in `_redis/record.lua`.

Claim    1. too late? 2. read every slot: ours already, as it stands; the expected token's; one of our owner's; vacant
         3. fence = max(counter + 1, µs), SET PXAT, ZADD; or refused: leave the mark of a waiter for 2.5 s
Renew    PEXPIREAT, only to a later end (but for `kept`); ZADD, which heals the index, if it can; SET where state or info are new
Release  DEL and ZREM; with `keep` an empty record; if somebody waits a baton, pushed to whoever is longest blocked in BLPOP
Wait     BLPOP on a connection of its own. Who pops holds the key; a claim that finds the baton still lying there takes it
Clock    the server's TIME, in integer µs. A fence counts from it, so it survives even an operator's DEL of the index
Traps    BLPOP ends up to 104 ms late: `wait` asks 120 ms less. `..` rounds a large number in Lua. TIME goes on within a script,
         expiry doesn't. A restart or SCRIPT FLUSH forgets scripts: NOSCRIPT is answered by sending the text, once
"""

from __future__ import annotations

import re
from functools import partial
from json import loads
from math import ceil, inf
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote
from zlib import crc32

from soloist.contract import Busy, Capabilities, Evict, Gone, Grant, Holder, Last, Late, Look, Page, Release, Renew, Store
from soloist.errors import ConfigError, StoreError, StoreUnavailable, TooLarge
from soloist.stores._info import MAX_INFO, encoded
from soloist.stores._redis.options import parse
from soloist.stores._redis.replies import Refusal
from soloist.stores._redis.scripts import CLAIM, LISTING, LOOK, RELEASE, RENEW, Command, Script, pack
from soloist.stores._redis.wire import BlockingWire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from soloist.contract import Claimed, Info, Line, Opaque, Renewed, State, Verdict
    from soloist.stores._redis.aio import AsyncWire

CHUNK = 200
"""Lines of a batch in one trip: more would keep the server from others for milliseconds."""

CAPABILITIES = Capabilities(
    fence="strict",
    push="baton",
    listing=True,
    slots=True,
    refuses_late=True,
    remembers_last=True,
    shortest_ttl=0.1,
    longest_ttl=10 * 365 * 86400,
    late_by=0,
    max_record=MAX_INFO,
    linearizable="on one server, while it keeps its data",
    failover="after the failover of an asynchronous replica two may hold a key; the fence tells who is right, if the servers' clocks agree",
    needs="Redis 6.2 or newer, or Valkey; no Cluster; maxmemory-policy noeviction; the rights to run scripts on `<namespace>:*`",
)

LETTERS: dict[State, str] = {"publishing": "p", "queued": "q", "running": "r", "kept": "k"}
STATES: dict[str, State] = {"p": "publishing", "q": "queued", "r": "running", "k": "kept", "b": "running"}
BUSY, GRANTED, GONE, LATE = 0, 1, 2, 3


class Request(NamedTuple):
    """A script's call, and what its reply means."""

    script: Script
    command: Command
    decode: Callable[[Any], Any]


class RedisStore(Store):
    """One Redis or Valkey server."""

    capabilities = CAPABILITIES

    def __init__(self, wire: BlockingWire | AsyncWire, namespace: str) -> None:
        self._wire = wire
        self._ask = wire.ask
        prefix = quote(namespace, safe=NAMESPACE, errors="surrogatepass")
        self._buckets = [f"{prefix}:{{{number:02x}}}".encode() for number in range(256)]

    def __repr__(self) -> str:
        return f"RedisStore({self._wire.where!r})"

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
        bucket, name = self._place(key)
        micros, late = int(ttl * 1e6) + 1, "" if not_after is None else int(not_after * 1e6)
        command: Command = (b"EVALSHA", CLAIM.sha, 1, bucket, name, _word(token), micros, LETTERS[state], _said(info), late)
        if slots != 1 or will_wait or expect is not None:
            command += (slots, int(will_wait)) if expect is None else (slots, int(will_wait), _word(expect))
        try:
            reply = await self._ask(pack(command), within)
        except Refusal as refused:
            reply = await self._again(CLAIM, command, refused, within)
        if reply.__class__ is int:
            return Grant(key, token, reply, None, 0, ttl, reply / 1e6)
        if reply[0] == LATE:
            return Late(reply[1] / 1e6)
        try:
            return _answered(bucket, key, token, ttl, reply)
        except Refusal as damaged:
            raise self._meaning(damaged) from damaged

    async def renew(self, grant: Grant, ttl: float, *, state: State | None = None, info: Info | None = None, within: float = 3) -> Renewed:
        """See `Store.renew`."""
        return await self._do(self._renewal(grant, ttl, state, info), within)  # type: ignore[no-any-return]  # its decoder's type

    async def release(self, grant: Grant, keep: float = 0, last: Last | None = None, *, within: float = 3) -> bool:
        """See `Store.release`."""
        command = self._giving_back(grant, keep, last)
        try:
            return bool(await self._ask(pack(command), within))
        except Refusal as refused:
            return bool(await self._again(RELEASE, command, refused, within))

    async def evict(self, key: str, token: str, *, slots: int = 1, within: float = 3) -> bool:
        """See `Store.evict`."""
        return await self._do(self._eviction(key, token, slots), within)  # type: ignore[no-any-return]  # its decoder's type

    async def look(self, key: str, *, slots: int = 1, within: float = 3) -> tuple[Holder, ...]:
        """See `Store.look`."""
        return await self._do(self._looking(key, slots), within)  # type: ignore[no-any-return]  # its decoder's type

    async def batch(self, lines: Sequence[Line], *, within: float = 3) -> tuple[Verdict, ...]:
        """See `Store.batch`. One trip for each 200 lines."""
        verdicts: list[Verdict] = []
        ends = monotonic() + within
        for start in range(0, len(lines), CHUNK):
            verdicts += await self._chunk(lines[start : start + CHUNK], ends - monotonic())
        return tuple(verdicts)

    async def listing(self, prefix: str, cursor: str | None = None, limit: int = 100, *, within: float = 3) -> Page:
        """See `Store.listing`. Two trips, or a few more where the prefix is rare; the shared keyspace is never walked."""
        ends = monotonic() + within
        bucket, after = (int(cursor[:2], 16), cursor[2:]) if cursor else (0, "")
        sizes = self._all(await self._wire.ask_all([pack((b"ZCARD", name)) for name in self._buckets], within), range(256))
        ahead = [number for number in range(bucket, 256) if sizes[number] > 1]  # the counter is a member, too
        found: list[tuple[int, bytes, Holder]] = []
        budget = limit
        while ahead and len(found) <= limit:
            now: list[int] = []
            while ahead and (not now or sum(sizes[number] for number in now) < budget):
                now.append(ahead.pop(0))
            budget *= 2
            for number, rows in zip(now, await self._members(now, prefix, (bucket, after), limit + 1, ends - monotonic()), strict=True):
                found += [(number, member, _listed(member, left, record)) for member, left, record in _threes(rows)]
        page = tuple(holder for _, _, holder in found[:limit])
        if len(found) <= limit:
            return Page(page, None)
        number, member, _ = found[limit - 1]
        return Page(page, f"{number:02x}{member.decode('utf-8', 'surrogatepass')}")

    async def wait(self, key: str, seen: Opaque, *, within: float = 3) -> Grant | None:
        """See `Store.wait`. Comes back a tenth of a second before `within` is over, or at once if all places are taken."""
        assert isinstance(seen, float)
        bucket, name = self._place(key)
        try:
            entry = await self._wire.pop(bucket + b"w:" + name, within)
        except Refusal as refused:
            raise self._meaning(refused, bucket) from refused
        if entry is None:
            return None
        try:
            slot, fence, token, until = entry.decode().split(" ")
            return Grant(key, token, int(fence), None, int(slot), int(until) / 1000 - seen, seen)
        except ValueError:  # somebody else's entry, and it is gone now: ask again
            return None

    async def ping(self, *, within: float = 3) -> float:
        """See `Store.ping`."""
        try:
            seconds, micros = await self._wire.ask(pack((b"TIME",)), within)
        except Refusal as refused:
            raise self._meaning(refused) from refused
        return int(seconds) + int(micros) / 1e6

    async def close(self) -> None:
        """See `Store.close`."""
        await self._wire.close()

    def _place(self, key: str) -> tuple[bytes, bytes]:
        name = _raw(key)
        return self._buckets[crc32(name) & 255], name

    def _renewal(self, grant: Grant, ttl: float, state: State | None, info: Info | None) -> Request:
        bucket, name = self._place(grant.key)
        letter = LETTERS[state] if state else ""
        command: Command = (b"EVALSHA", RENEW.sha, 1, bucket, name, _word(grant.token), grant.slot, ceil(ttl * 1e6), letter)
        if info is not None:
            command += ("1", _said(info))
        return Request(RENEW, command, partial(_answered, bucket, grant.key, grant.token, ttl))

    def _giving_back(self, grant: Grant, keep: float, last: Last | None) -> Command:
        bucket, name = self._place(grant.key)
        command: Command = (b"EVALSHA", RELEASE.sha, 1, bucket, name, _word(grant.token), grant.slot, grant.slot)
        if keep > 0:
            command += (ceil(keep * 1e6), LETTERS[last.state], _word(last.token)) if last else (ceil(keep * 1e6),)
        return command

    def _eviction(self, key: str, token: str, slots: int) -> Request:
        bucket, name = self._place(key)
        return Request(RELEASE, (b"EVALSHA", RELEASE.sha, 1, bucket, name, _word(token), 0, slots - 1), bool)

    def _looking(self, key: str, slots: int) -> Request:
        bucket, name = self._place(key)
        command = (b"EVALSHA", LOOK.sha, 1, bucket, name, slots)
        return Request(LOOK, command, partial(_holders, bucket, key))

    def _requested(self, line: Line) -> Request:
        match line:
            case Renew(grant, ttl, state, info):
                return self._renewal(grant, ttl, state, info)
            case Release(grant, keep, last):
                return Request(RELEASE, self._giving_back(grant, keep, last), bool)
            case Evict(key, token, slots):
                return self._eviction(key, token, slots)
            case Look(key, slots):
                return self._looking(key, slots)

    async def _do(self, request: Request, within: float) -> Any:
        try:
            reply = await self._ask(pack(request.command), within)
        except Refusal as refused:
            reply = await self._again(request.script, request.command, refused, within)
        try:
            return request.decode(reply)
        except Refusal as damaged:
            raise self._meaning(damaged) from damaged

    async def _again(self, script: Script, command: Command, refused: Refusal, within: float) -> Any:
        """Once more with the script's text, if that is what was missing."""
        if refused.text.startswith("NOSCRIPT"):
            try:
                return await self._ask(pack(script.with_text(command)), within)
            except Refusal as again:
                refused = again
        raise self._meaning(refused, command[3]) from refused

    async def _chunk(self, lines: Sequence[Line], within: float) -> list[Verdict]:
        """Some lines in one trip. The first call of each script carries its text, so that none is missing half-way."""
        verdicts: list[Any] = [None] * len(lines)
        asked: list[tuple[int, Request]] = []
        packed: list[bytes] = []
        known: set[Script] = set()
        for number, line in enumerate(lines):
            try:
                request = self._requested(line)
            except TooLarge as error:
                verdicts[number] = error
                continue
            asked.append((number, request))
            packed.append(pack(request.command if request.script in known else request.script.with_text(request.command)))
            known.add(request.script)
        if within <= 0:
            return [StoreUnavailable(f"{self._wire.where}: the batch's time was up before this line was sent")] * len(lines)
        for (number, request), reply in zip(asked, await self._wire.ask_all(packed, within), strict=True):
            try:
                if isinstance(reply, Refusal):
                    raise reply
                verdicts[number] = reply if isinstance(reply, StoreError) else request.decode(reply)
            except Refusal as refused:
                meaning = self._meaning(refused, request.command[3])
                verdicts[number] = StoreUnavailable(str(meaning)) if isinstance(meaning, ConfigError) else meaning
        return verdicts

    async def _members(self, numbers: list[int], prefix: str, start: tuple[int, str], limit: int, within: float) -> list[Any]:
        requests: list[bytes] = []
        for number in numbers:
            after = start[1] if number == start[0] else ""
            command = (b"EVALSHA", LISTING.sha, 1, self._buckets[number], _raw(prefix), _raw(after), limit)
            requests.append(pack(command if requests else LISTING.with_text(command)))
        return self._all(await self._wire.ask_all(requests, max(within, 0.01)), numbers)

    def _all(self, replies: list[Any], numbers: Sequence[int]) -> list[Any]:
        """The replies of these buckets; or the first error."""
        for reply, number in zip(replies, numbers, strict=True):
            if isinstance(reply, Refusal):
                raise self._meaning(reply, self._buckets[number])
            if isinstance(reply, StoreError):
                raise reply
        return replies

    def _meaning(self, refused: Refusal, bucket: object = b"") -> Exception:
        return refused.meaning(self._wire.where, bucket.decode() if isinstance(bucket, bytes) else "")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


NAMESPACE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`|~"
SAFE = NAMESPACE + "{}"
_safe = re.compile(r"[!-$&-,.-~][!-$&-~]*").fullmatch


def _word(token: str) -> str:
    """The token as one word of a record: without spaces, and with no `-` before it."""
    if (token.isascii() and token.replace("/", "").isalnum()) or _safe(token):
        return token
    word = quote(token, SAFE, errors="surrogatepass")
    return "%2D" + word[1:] if word[:1] == "-" else word


def _said(info: Info) -> str:
    """The info as the last word of a record, with the space before it."""
    return " " + encoded(info) if info else ""


def _answered(bucket: bytes, key: str, token: str, ttl: float, reply: list[Any]) -> Grant | Busy | Gone:
    code, micros, *rest = reply
    now = micros / 1e6
    if code == GRANTED:
        fence, slot, left, *memory = rest
        return Grant(key, token, int(fence), None, slot, ttl if left < 0 else left / 1000, now, _last(memory[0]) if memory else None)
    if code == BUSY:
        return Busy(_holders(bucket, key, rest), now, now)
    last = _last(rest[0]) if rest else None
    return Gone(last.token, last.state, now) if last else Gone(None, None, now)


def _threes(flat: list[Any]) -> Sequence[tuple[Any, Any, Any]]:
    return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def _holders(bucket: bytes, key: str, flat: list[Any]) -> tuple[Holder, ...]:
    return tuple(_holder(bucket, key, *row) for row in _threes(flat))


def _holder(bucket: bytes, key: str, slot: int, left: int, record: bytes) -> Holder:
    """`Refusal`, as of a script that meets something foreign, if the record is damaged."""
    try:
        state, fence, token, text = _record(record)
        return Holder(key, slot, token, fence, inf if left < 0 else left / 1000, state, _info(text))
    except ValueError as error:
        raise Refusal(f"FOREIGN {bucket.decode()}{slot or ''}:{key}") from error


def _listed(member: bytes, left: int, record: bytes) -> Holder:
    """A damaged record is shown as far as it can be read: it shuts others out, and who looks for the reason sees it here."""
    number, _, name = member.partition(b":")
    slot, key = int(number), name.decode("utf-8", "surrogatepass")
    try:
        return _holder(b"", key, slot, left, record)
    except Refusal:
        state, fence, token, _ = _record(record, "backslashreplace")
        return Holder(key, slot, token, fence, inf if left < 0 else left / 1000, state, {})


def _last(record: bytes) -> Last:
    """A damaged one is nobody's token: what remembers it was granted, or refused, all the same."""
    try:
        state, _, token, _ = _record(record)
    except ValueError:
        state, _, token, _ = _record(record, "backslashreplace")
    return Last(token, state)


def _info(text: str) -> Info:
    try:
        info: object = loads(text) if text else {}
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(info, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for all that is damaged
    return cast("Info", info)


def _record(record: bytes, errors: str = "surrogatepass") -> tuple[State, int, str, str]:
    """Its parts; the token of an empty one without its `-`, the info as it stands. The scripts have checked all before the token."""
    _, letter, fence, rest = record.decode("utf-8", errors).split(" ", 3)
    word, _, info = rest.partition(" ")
    if letter.isupper():
        info = info.partition(" ")[2]
    word = word.removeprefix("-")
    token = unquote(word, errors=errors) if "%" in word else word
    return STATES[letter.lower()], int(fence), token, "" if letter in "bB" else info


def connect(url: str, namespace: str, *, aio: bool) -> RedisStore:
    """The store of this URL. Nothing is sent, and no connection opened, before it is asked something."""
    options = parse(url)
    if not aio:
        return RedisStore(BlockingWire(options), namespace)
    from soloist.stores._redis.aio import AsyncWire  # noqa: PLC0415 - only who uses asyncio pays for it

    return RedisStore(AsyncWire(options), namespace)
