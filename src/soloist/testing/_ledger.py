"""A history, sorted by what it is about: the holds, and all that excuses or accuses one. The rules are in `checker.py`."""

# Which fields a line has, its word decides; a type checker can't know.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from soloist.testing.history import Line


class Violation(NamedTuple):
    """A promise that was broken."""

    rule: str
    at: float
    text: str


class Bounds(NamedTuple):
    """What the checker may rely on, in seconds.

    `patience`: how long a request may be on its way once its sender gave up waiting. `lease`: the longest one. `handed_on`:
    how long a released hold may live on as a baton. `waits`: how long a waiter may overlook that a key is free. `told`: how
    late a loss may be told. `drift`: by which part a second of the store's clock may differ from one of the history's.
    """

    patience: float = 3.0
    lease: float = 30.0
    handed_on: float = 1.0
    waits: float = 7.0
    told: float = 4.0
    slack: float = 0.001
    drift: float = 0.001


class Hold:
    """One hold, from the line that acquired it to the last that names it."""

    lost = releasing = confirmed = released = dropped = math.inf
    """When each of these happened. `released`: until when the key may be shut yet, once a release is confirmed."""
    end = math.inf
    """Until when its holder believed in it."""
    possible = -math.inf
    """Until when the store may have had it."""
    ok = -math.inf
    """When `check` said for the last time that it is ours."""
    losses = 0
    extended = False
    abandoned = False
    kept = False
    """Its release keeps it for a while; delivered late, a little longer."""

    def __init__(self, line: Line) -> None:
        self.key = line["key"]
        self.token = line["token"]
        self.fence = line.get("fence")
        self.slot = line.get("slot", 0)
        self.who = line.get("who", "")
        self.reply = self.acted = line["at"]
        self.call = line["call"]
        self.since = line.get("since", self.call)
        self.deadline = line["deadline"]
        self.lease = line["lease"]
        self.renewed = line.get("renewed", False)
        self.ends = line.get("ends", math.inf)
        self.attempts: list[float] = []
        """When attempts to renew it failed."""

    def __str__(self) -> str:
        return f"{self.key!r} slot {self.slot} fence {self.fence} of {self.who} ({self.token})"


class Claim:
    """What a token may have had without anybody holding it: abandoned, failed, or its owner died."""

    __slots__ = ("evicted", "key", "possible", "since", "token")

    def __init__(self, key: str, token: str, since: float, possible: float) -> None:
        self.key = key
        self.token = token
        self.since = since
        self.possible = possible
        self.evicted = math.inf


class Ledger:
    """A history, sorted by what it is about."""

    def __init__(self, history: Iterable[Line], bounds: Bounds) -> None:
        self.bounds = bounds
        self.holds: dict[str, Hold] = {}
        self.claims: dict[str, Claim] = {}
        self.of: dict[str, list[Hold]] = {}
        """By process, the holds that have not ended."""
        self.amnesties: list[float] = []
        self.forced: dict[str, list[tuple[float, float]]] = {}
        self.stalls: list[tuple[float, float, str]] = []
        self.refusals: list[Line] = []
        self.writes: list[Line] = []
        self.began: dict[str, float] = {}
        """By token, when a claim landed for the first time of which its sender didn't hear."""
        self.extra: dict[str, float] = {}
        """By token, until when the store may have had it, whatever else is said of it."""
        self.landings: dict[str, float] = {}
        """By token, until when what landed last may stand."""
        self.unnamed: list[tuple[str, float]] = []
        """The same by key: what may be of somebody of whom no other line speaks."""
        self.taken: list[tuple[Hold, float]] = []
        """The holds that are said not to be ours any more, and when."""
        self.landed: list[Line] = []
        self.left: list[Line] = []
        self.broken: list[Violation] = []
        for line in history:
            if (note := NOTED.get(line["what"])) is not None:
                note(self, line)
        for hold in self.holds.values():
            self._settle(hold)
        self.possible = self._by_key()

    def acquired(self, line: Line) -> None:
        """See `history.py`."""
        hold = Hold(line)
        before = self.holds.get(hold.token)
        # A replica that hadn't heard that a baton was taken hands it on once more, under the same fence, when it takes over.
        again = before is not None and hold.token.startswith("baton/") and any(before.since <= one <= hold.reply for one in self.amnesties)
        if before is not None and not again:
            self.broken.append(Violation("acquired", hold.reply, f"{hold} was acquired twice by one token"))
        stood_still = any(who in {"", hold.who} and at < hold.reply and until > hold.call for at, until, who in self.stalls)
        if hold.reply > hold.deadline + self.bounds.slack and not stood_still:
            self.broken.append(Violation("acquired", hold.reply, f"{hold} was over already at {hold.deadline:.4f}"))
        self.holds[hold.token] = hold
        self.of.setdefault(hold.who, []).append(hold)
        if hold.slot >= line.get("limit", 1):
            self.broken.append(Violation("limit", hold.reply, f"{hold} is beyond the limit of {line.get('limit', 1)}"))

    def _hold(self, line: Line) -> Hold | None:
        hold = self.holds.get(line["token"])
        if hold is not None:
            hold.acted = line["at"]
            if (deadline := line.get("deadline")) is not None and deadline > hold.deadline:
                hold.deadline = deadline
        return hold

    def renewed(self, line: Line) -> None:
        """See `history.py`."""
        self._hold(line)

    def extending(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is not None:
            hold.lease, hold.extended = max(hold.lease, line["lease"]), True

    def checked(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is None:
            return
        if line["ours"]:
            hold.ok = line["at"]
        elif hold.lost > line["at"] and hold.releasing > line["at"]:
            self.broken.append(Violation("check", line["at"], f"{hold} is not ours, says check(), but no loss was told"))

    def lost(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is None:
            return
        hold.losses += 1
        if hold.losses > 1:
            self.broken.append(Violation("told once", line["at"], f"the loss of {hold} was told again"))
        hold.lost = min(hold.lost, line["at"])
        if line.get("why") in {"taken", "vanished"}:
            self.taken.append((hold, line["at"]))

    def releasing(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is not None:
            hold.releasing = line["at"]

    def released(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is None:
            return
        hold.releasing = min(hold.releasing, line["at"])
        if line["ours"]:
            hold.kept, hold.confirmed = line.get("kept", 0.0) > 0, line["at"]
            hold.released = line["at"] + max(line.get("kept", 0.0), self.bounds.handed_on) * (1 + self.bounds.drift)
        elif hold.lost > line["at"]:
            self.taken.append((hold, line["at"]))

    def dropped(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self._hold(line)) is not None:
            hold.dropped = line["at"]

    def died(self, line: Line) -> None:
        """See `history.py`."""
        for hold in self.of.pop(line["who"], ()):
            hold.dropped = min(hold.dropped, line["at"])
            hold.acted = line["at"]

    def refused(self, line: Line) -> None:
        """See `history.py`."""
        self.refusals.append(line)

    def wrote(self, line: Line) -> None:
        """See `history.py`."""
        self.writes.append(line)

    def failed(self, line: Line) -> None:
        """See the module's table. What died while it asked may have had the key, too."""
        token = f"{line['what']} {len(self.claims)}"
        end = line["at"] + self.bounds.patience + line["lease"]
        self.claims[token] = Claim(line["key"], token, line["call"], end)

    def abandoned(self, line: Line) -> None:
        """See `history.py`."""
        token = line["token"]
        if (hold := self.holds.get(token)) is not None:
            hold.abandoned = True
        end = line["at"] + self.bounds.patience + self.bounds.lease
        before = self.claims.get(token)
        self.claims[token] = Claim(line["key"], token, min(line["since"], before.since) if before else line["since"], end)

    def evicted(self, line: Line) -> None:
        """See `history.py`."""
        if (claim := self.claims.get(line["token"])) is not None:
            claim.evicted = line["at"]

    def stalled(self, line: Line) -> None:
        """See `history.py`."""
        self.stalls.append((line["at"], line["until"], line.get("who", "")))

    def force(self, line: Line) -> None:
        """See `history.py`."""
        self.forced.setdefault(line["key"], []).append((line["call"], line["at"]))

    def amnesty(self, line: Line) -> None:
        """See `history.py`."""
        self.amnesties.append(line["at"])

    def revived(self, line: Line) -> None:
        """See `history.py`."""
        self._lives_on(line["key"], line["token"], line["at"] + line["ttl"])

    def _lives_on(self, key: str, token: str, until: float) -> None:
        """Whatever else is said of a token, the store may have had it until then."""
        self.extra[token] = max(until, self.extra.get(token, until))
        self.unnamed.append((key, until))

    def land(self, line: Line) -> None:
        """See `history.py`."""
        self.landed.append(line)
        if line["new"]:
            self.began.setdefault(line["token"], line["at"])
        elif line["verb"] == "claim":
            return  # it was answered as it stands, and ends when it would have ended
        until = line["at"] + line["ttl"]
        if line["new"]:
            self.landings[line["token"]] = until
        again = line["twice"] or (line["new"] and bool(self.amnesties))  # by a clock that was set back it wasn't late
        hold, claim = self.holds.get(line["token"]), self.claims.get(line["token"])
        if again or (hold is None and claim is None) or line["at"] <= self.extra.get(line["token"], -math.inf):
            self._lives_on(line["key"], line["token"], until)
        elif hold is None and claim is not None:
            claim.possible = max(claim.possible, until)
        elif hold is not None and (hold.released == math.inf or (hold.kept and not line["new"])):
            self._lives_on(line["key"], line["token"], until)

    def unrenewed(self, line: Line) -> None:
        """See `history.py`."""
        if (hold := self.holds.get(line["token"])) is not None:
            hold.attempts.append(line["at"])

    def leave(self, line: Line) -> None:
        """See `history.py`."""
        self.left.append(line)

    def _settle(self, hold: Hold) -> None:
        """Until when its holder believed in a hold, and until when the store may have had it."""
        bounds = self.bounds
        hold.since = min(hold.since, self.began.get(hold.token, math.inf))
        end = min(hold.deadline, hold.lost, hold.releasing, hold.dropped)
        at = bisect_left(self.amnesties, hold.call)
        if at < len(self.amnesties):
            end = min(end, self.amnesties[at])
        for call, reply in self.forced.get(hold.key, ()):
            if hold.since <= reply:
                end = min(end, call)
        hold.end = end
        possible = hold.released if hold.released < math.inf else max(hold.acted, hold.deadline) + bounds.patience + hold.lease
        if hold.abandoned:
            claimed = self.until(self.claims[hold.token])
            possible = max(possible, claimed) if hold.released < math.inf else claimed
        hold.possible = possible

    def _by_key(self) -> dict[str, Spans]:
        found: dict[str, list[tuple[float, float]]] = {}
        for hold in self.holds.values():
            found.setdefault(hold.key, []).append((hold.since, hold.possible))
        for claim in self.claims.values():
            if claim.token not in self.holds:
                found.setdefault(claim.key, []).append((claim.since, self.until(claim)))
        for key, times in self.forced.items():
            found.setdefault(key, []).extend((call, reply + self.bounds.handed_on) for call, reply in times)
        for key, until in self.unnamed:
            found.setdefault(key, []).append((-math.inf, until))
        return {key: Spans(spans) for key, spans in found.items()}

    def until(self, claim: Claim) -> float:
        """Until when the store may have had what nobody held."""
        return claim.evicted + self.bounds.handed_on if claim.evicted < math.inf else claim.possible

    def span(self, token: str) -> tuple[float, float] | None:
        """From when to when the store may have had this token; None for one that nobody named, as a baton."""
        extra, began = self.extra.get(token, -math.inf), self.began.get(token, math.inf)
        if (hold := self.holds.get(token)) is not None:
            if hold.key in self.forced:  # an operator may have freed what kept a late claim of the same token from landing
                extra = max(extra, self.landings.get(token, -math.inf))
            return hold.since, max(hold.possible, extra)
        if (claim := self.claims.get(token)) is not None:
            return min(claim.since, began), max(self.until(claim), extra)
        return None


NOTED: dict[str, Callable[[Ledger, Line], None]] = {
    "acquired": Ledger.acquired,
    "renewed": Ledger.renewed,
    "extending": Ledger.extending,
    "checked": Ledger.checked,
    "wrote": Ledger.wrote,
    "lost": Ledger.lost,
    "releasing": Ledger.releasing,
    "released": Ledger.released,
    "dropped": Ledger.dropped,
    "refused": Ledger.refused,
    "failed": Ledger.failed,
    "asked": Ledger.failed,
    "abandoned": Ledger.abandoned,
    "evicted": Ledger.evicted,
    "died": Ledger.died,
    "stalled": Ledger.stalled,
    "forced": Ledger.force,
    "amnesty": Ledger.amnesty,
    "revived": Ledger.revived,
    "landed": Ledger.land,
    "unrenewed": Ledger.unrenewed,
    "left": Ledger.leave,
}


class Spans:
    """Intervals, of which one may ask whether any meets another one."""

    __slots__ = ("_starts", "_until")

    def __init__(self, spans: list[tuple[float, float]]) -> None:
        spans.sort()
        self._starts = [start for start, _ in spans]
        self._until: list[float] = []
        latest = -math.inf
        for _, end in spans:
            latest = max(latest, end)
            self._until.append(latest)

    def reach(self, before: float) -> float:
        """The latest end of those that begin no later than `before`."""
        at = bisect_right(self._starts, before)
        return self._until[at - 1] if at else -math.inf


NO_SPANS = Spans([])
