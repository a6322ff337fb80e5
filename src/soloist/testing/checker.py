"""Did every lock keep its promise? The rules, checked over the history of a run, simulated or real.

A believed hold lasts from the reply that brought it to its deadline, its loss, the sending of its release or the death of its
process, whatever comes first. A *possible* hold is what the store may have had: from the earliest moment at which it can
have been granted to the latest at which it can have ended. Each rule is a function of its own. None searches: fences and
tokens say which hold is which, and all else compares intervals, in O(n log n).
"""

# Which fields a line has, its word decides; a type checker can't know.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from soloist.testing._ledger import NO_SPANS, Bounds, Hold, Ledger, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from soloist.testing.history import Line

__all__ = ["RULES", "Bounds", "Violation", "check"]


def exclusion(ledger: Ledger) -> Iterator[Violation]:
    """1. Two holds of one slot are never believed in at once; a semaphore's slots are exclusive, each, and no more than its limit."""
    latest: dict[tuple[str, int], Hold] = {}
    for hold in sorted(ledger.holds.values(), key=_reply):
        place = (hold.key, hold.slot)
        before = latest.get(place)
        if before is None:
            latest[place] = hold
            continue
        if hold.reply < before.end and hold.reply < hold.end:
            yield Violation("exclusion", hold.reply, f"{hold} began while {before} was believed in until {before.end:.4f}")
        if hold.end > before.end:
            latest[place] = hold


def _reply(hold: Hold) -> float:
    return hold.reply


def fences(ledger: Ledger) -> Iterator[Violation]:
    """2. What was granted after another's grant was known has a greater fence. Over failovers, too."""
    by_key: dict[str, list[Hold]] = {}
    for hold in ledger.holds.values():
        if hold.fence is not None:
            by_key.setdefault(hold.key, []).append(hold)
    for holds in by_key.values():
        by_since = sorted(holds, key=_since)
        known, greatest, at = sorted(holds, key=_reply), -1, 0
        for hold in by_since:
            while known[at].reply < hold.since:
                greatest = max(greatest, known[at].fence or 0)
                at += 1
            if (hold.fence or 0) <= greatest:
                yield Violation("fences", hold.reply, f"{hold} came after a hold with fence {greatest}")


def _since(hold: Hold) -> float:
    return hold.since


def register(ledger: Ledger) -> Iterator[Violation]:
    """3. What refuses smaller fences loses no update, takes nothing from an older holder, and refuses no present one."""
    values: dict[str, tuple[int, int]] = {}
    holders = {(hold.key, hold.fence): hold for hold in ledger.holds.values()} if ledger.writes else {}
    for line in ledger.writes:
        key, fence, at = line["key"], line.get("fence") or 0, line["at"]
        greatest, value = values.get(key, (0, 0))
        if line["ours"]:
            if fence < greatest:
                yield Violation("register", at, f"{key!r} took a write with fence {fence} after one with {greatest}")
            if line["read"] != value:
                yield Violation("register", at, f"{key!r} lost an update: {value} was there, {line['read']} was read")
            values[key] = (fence, line["value"])
        elif (hold := holders.get((key, fence))) is not None and hold.reply <= at < hold.end:
            yield Violation("register", at, f"a write of {hold} was refused, though it was held until {hold.end:.4f}")


def refusals(ledger: Ledger) -> Iterator[Violation]:
    """4. A refusal meets a hold that somebody has, or may still have: nobody is shut out by what is over."""
    slack = ledger.bounds.slack
    for line in ledger.refusals:
        sent, at = line["sent"] - slack, line["at"] + slack
        if line["token"] and line["token"] == line.get("own"):
            yield Violation("refusals", line["at"], f"{line['token']!r} was refused {line['key']!r} in its own name")
        if (hold := ledger.holds.get(line["token"])) is not None and line.get("state") == "running" and came_back(ledger, hold, sent):
            yield Violation("refusals", line["at"], f"{hold} was kept, and is running again")
        span = ledger.span(line["token"])
        if span is None:
            span = -math.inf, ledger.possible.get(line["key"], NO_SPANS).reach(at)
        if span[0] > at or span[1] < sent:
            text = f"{line['key']!r} was refused in the name of {line['token']!r}, which was over at {span[1]:.4f}"
            yield Violation("refusals", line["at"], text)


def came_back(ledger: Ledger, hold: Hold, at: float) -> bool:
    """Whether a hold shouldn't be running any more, since its release keeps it; nothing explains that it is."""
    excused = hold.token in ledger.extra or hold.key in ledger.forced or bool(ledger.amnesties)
    return hold.kept and hold.confirmed < at and not excused


def ghosts(ledger: Ledger) -> Iterator[Violation]:
    """5. What the store has is somebody's, or ends within the lease of whoever had it last."""
    for line in ledger.left:
        span = ledger.span(line["token"])
        until = span[1] if span is not None else ledger.possible.get(line["key"], NO_SPANS).reach(line["at"])
        if line["at"] + line["ttl"] > until + ledger.bounds.slack:
            text = f"{line['key']!r} is kept by {line['token']!r} for {line['ttl']:.3f} s more, and should be over at {until:.4f}"
            yield Violation("ghosts", line["at"], text)


def untouched(ledger: Ledger) -> Iterator[Violation]:
    """Before its deadline nobody ends another's hold but an operator, or a store that lost its data."""
    for hold, at in ledger.taken:
        excused = hold.key in ledger.forced or any(hold.call <= one <= at for one in ledger.amnesties)
        if at < hold.deadline and not excused:
            yield Violation("untouched", at, f"{hold} was taken away before its deadline at {hold.deadline:.4f}")


def effects(ledger: Ledger) -> Iterator[Violation]:
    """6. No claim takes effect once its owner gave up and its patience ended, nor once its token was evicted for good."""
    bounds, stepped = ledger.bounds, ledger.amnesties
    for line in ledger.landed:
        if not line["new"] or line["twice"] or any(one <= line["at"] for one in stepped):
            continue
        claim = ledger.claims.get(line["token"])
        if claim is not None and claim.evicted < line["at"]:
            yield Violation("effects", line["at"], f"{line['token']!r} got {line['key']!r} after it was evicted for good")
        if line["at"] > line["by"] + bounds.patience:
            yield Violation("effects", line["at"], f"{line['token']!r} got {line['key']!r} long after it was given up at {line['by']:.4f}")


def slots(ledger: Ledger) -> Iterator[Violation]:
    """One token has one slot, however often it was asked for; and no renewal goes on beyond `ends`."""
    for line in ledger.landed:
        hold, at = ledger.holds.get(line["token"]), line["at"]
        if hold is None or not line["new"] or line["slot"] == hold.slot or not hold.reply - line["ttl"] < at < hold.end:
            continue
        if hold.key not in ledger.forced and not any(at <= one <= hold.reply for one in ledger.amnesties):
            yield Violation("slots", at, f"{hold} got slot {line['slot']}, too")
    for hold in ledger.holds.values():
        if not hold.extended and hold.deadline > hold.ends + ledger.bounds.patience and not ledger.amnesties:
            yield Violation("ends", hold.deadline, f"{hold} was renewed beyond {hold.ends:.4f}")


def losses(ledger: Ledger) -> Iterator[Violation]:
    """7. A loss is told, soon after the deadline, unless its process stood still; and `check` never says more than that."""
    bounds = ledger.bounds
    for hold in ledger.holds.values():
        if hold.ok > min(hold.deadline + bounds.slack, hold.lost):
            yield Violation("check", hold.ok, f"{hold} is ours, said check(), but it was over at {hold.deadline:.4f}")
        noticed = min(hold.lost, hold.releasing, hold.dropped)
        due = hold.deadline + bounds.told
        if noticed > due:
            for at, until, who in sorted(ledger.stalls):
                if who in {"", hold.who} and at <= due:
                    due = max(due, until + bounds.told)
            if noticed > due:
                yield Violation("told", due, f"{hold} was over at {hold.deadline:.4f}, and nobody was told")


def renewals(ledger: Ledger) -> Iterator[Violation]:
    """8. A hold that is renewed isn't lost for want of an answer before two attempts failed, unless its process stood still."""
    for hold in ledger.holds.values():
        if not hold.renewed or hold.lost == math.inf or hold.deadline > min(hold.lost, hold.releasing):
            continue
        began = hold.deadline - hold.lease
        if hold.reply > began + hold.lease / 3:  # its grant came so late that fewer fit
            continue
        if hold.ends < math.inf or len([at for at in hold.attempts if at >= began]) >= 2 or ledger_stalled(ledger, hold, began):  # noqa: PLR2004 - two
            continue
        yield Violation("renewals", hold.lost, f"{hold} was lost after {len(hold.attempts)} failed attempts to renew it")


def ledger_stalled(ledger: Ledger, hold: Hold, began: float) -> bool:
    """Whether a hold's process stood still, or was cut off, between then and its deadline."""
    return any(who in {"", hold.who} and at < hold.deadline and until > began for at, until, who in ledger.stalls)


def waiters(ledger: Ledger) -> Iterator[Violation]:
    """9. Who waits gets in soon after the key became free."""
    bounds = ledger.bounds
    for hold in ledger.holds.values():
        if hold.since - hold.call <= bounds.waits:
            continue
        rivals = {one.token for one in ledger.holds.values() if one.key == hold.key and one is not hold}
        rivals |= {claim.token for claim in ledger.claims.values() if claim.key == hold.key and claim.token != hold.token}
        others = [span for token in rivals if (span := ledger.span(token)) is not None]
        others += [(-math.inf, until) for key, until in ledger.unnamed if key == hold.key]
        others += [(at, until) for at, until, who in ledger.stalls if who in {"", hold.who}]
        others += [(hold.since, math.inf)]
        free = hold.call
        for start, end in sorted(others):
            if min(start, hold.since) - free > bounds.waits:
                yield Violation("waiters", hold.reply, f"{hold} got in {hold.since - free:.3f} s after the key was free at {free:.4f}")
                break
            free = max(free, end)


RULES = (exclusion, fences, register, refusals, ghosts, untouched, effects, slots, losses, renewals, waiters)


def check(history: Iterable[Line], bounds: Bounds | None = None) -> list[Violation]:
    """Every promise that a history shows to be broken, the earliest first."""
    ledger = Ledger(history, bounds or Bounds())
    found = ledger.broken
    for rule in RULES:
        found.extend(rule(ledger))
    if found:
        found.sort(key=lambda one: one.at)
    return found
