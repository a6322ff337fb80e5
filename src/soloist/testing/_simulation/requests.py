"""What travels in a simulation, and how a trace words it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from soloist.contract import Busy, Evict, Gone, Grant, Late, Look, Release, Renew

if TYPE_CHECKING:
    from soloist.contract import Info, State
    from soloist.contract import Line as Asked


class Claim(NamedTuple):
    """The arguments of `claim`."""

    key: str
    token: str
    ttl: float
    info: Info
    state: State
    expect: str | None
    not_after: float | None
    slots: int
    will_wait: bool


class Ping(NamedTuple):
    """The server's time is asked for."""


class Batch(NamedTuple):
    """Several lines in one trip."""

    lines: tuple[Asked, ...]


def said(asked: object) -> str:
    """A request in words."""
    match asked:
        case Claim(key, token, ttl, _, _, _, not_after, slots, will_wait):
            late = "" if not_after is None else f", not after {not_after:.4f}"
            return (
                f"claim {key} for {token}, {ttl:.4f} s{late}{f', {slots} slots' if slots > 1 else ''}{', will wait' if will_wait else ''}"
            )
        case Renew(grant, ttl, state):
            return f"renew {grant.key} of {grant.token}, {ttl:.4f} s{f' as {state}' if state else ''}"
        case Release(grant):
            return f"release {grant.key} of {grant.token}"
        case Evict(key, token):
            return f"evict {token} from {key}"
        case Look(key):
            return f"look at {key}"
        case Batch(lines):
            return "; ".join(said(line) for line in lines)
        case _:
            return "ping"


def answered(answer: object) -> str:
    """An answer in words."""
    match answer:
        case Grant():
            return f"granted to {answer.token}: slot {answer.slot}, fence {answer.fence}, {answer.ttl:.4f} s"
        case Busy(holders):
            return f"busy: {', '.join(f'{one.token} {one.state} for {one.ttl:.4f} s' for one in holders)}"
        case Gone():
            return "gone"
        case Late():
            return "too late"
        case bool():
            return "done" if answer else "not done"
        case float():
            return f"{answer:.4f}"
        case tuple():
            return "; ".join(map(answered, cast("tuple[object, ...]", answer))) or "nobody"
        case _:
            return repr(answer)
