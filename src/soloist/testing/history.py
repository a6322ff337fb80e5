"""The history of a run: what happened to its locks, as plain values that a file of JSON lines can hold.

A history is a list of `Line`s, one per thing that happened, all on one clock (CLOCK_BOOTTIME of one host, or simulated time).
`at` is when it happened, `what` is one of the words below, and the other fields go with the word. Who is killed leaves off in
the middle: that is no mistake. Real processes write the first part; only who sees the store, the network or the operator, as
the simulator does, can write the second.

    acquired    who key slot limit token fence call since lease deadline renewed ends
                            a key is ours. `call`: when we began to ask. `since`: the store didn't grant it before (else `call`).
                            `renewed`: a keeper renews it, until `ends` at most
    renewed     token deadline          it lasts until then at least. Any later line of a token may say so, too
    extending   token lease             more time is asked for
    checked     token ours              what `Hold.check` said
    wrote       key fence read value ours   a counter that refuses smaller fences was asked to turn `read` into `value`, and did
    lost        token why               a loss was told
    releasing   token                   the release is sent
    released    token ours kept         the release is confirmed; for `kept` seconds more the key shuts others out
    dropped     token                   the hold was forgotten, and ends with its lease
    refused     who key limit call sent own token state   somebody else has the key: the named token, in that state, or "".
                            `sent`: when we asked last, for `own`
    failed      who key call lease      the store gave no answer, and a claim may still land
    died        who                     and with it all that it held
    left        key token ttl           what the store has, as somebody sees who looks

    asked       who key call lease      who died just then was asking for this
    abandoned   who key token since     nobody wants what this token may still get
    evicted     token                   it can't get anything any more
    unrenewed   token                   an attempt to renew failed
    stalled     who until               stood still, or couldn't reach the store; everybody, without `who`
    forced      key call                an operator freed the key, from `call` on
    amnesty     why                     the store lost data, or its clock was set: older holds exclude nobody from now on
    revived     key token ttl           what the store has after that
    landed      verb key token slot ttl by new twice
                            a request took effect of which its sender, who gave up at `by`, didn't hear. `new`: a hold began.
                            `twice`: it had been answered before
"""

from __future__ import annotations

from typing import Required, TypedDict


class Line(TypedDict, total=False):
    """One thing that happened; see above."""

    at: Required[float]
    what: Required[str]
    who: str
    key: str
    slot: int
    limit: int
    token: str
    fence: int | None
    call: float
    since: float
    sent: float
    lease: float
    deadline: float
    until: float
    ttl: float
    by: float
    kept: float
    ours: bool
    new: bool
    twice: bool
    renewed: bool
    ends: float
    why: str
    state: str
    own: str
    verb: str
    read: int
    value: int
