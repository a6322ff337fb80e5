"""Each rule of the checker, shown by a history of a few lines that breaks it, and by one that doesn't."""

import json

import pytest

from soloist.testing.checker import RULES, Bounds, check


def acquired(token, at, **facts):
    """A key is held from `at` on, for ten seconds."""
    line = {"at": at, "what": "acquired", "who": token, "key": "k", "slot": 0, "limit": 1, "token": token, "fence": int(at * 10)}
    return {**line, "call": at - 0.1, "lease": 10.0, "deadline": at + 10.0, "renewed": False, **facts}


def released(token, at, ours=True, kept=0.0):
    """The release is sent, and confirmed a moment later."""
    return [
        {"at": at, "what": "releasing", "token": token},
        {"at": at + 0.01, "what": "released", "token": token, "ours": ours, "kept": kept},
    ]


def lost(token, at, why="unknown"):
    return {"at": at, "what": "lost", "token": token, "why": why}


def died(who, at):
    return {"at": at, "what": "died", "who": who}


def gave_up(token, at):
    return {"at": at, "what": "abandoned", "who": token, "key": "k", "token": token, "since": at - 1}


def evicted(token, at):
    return {"at": at, "what": "evicted", "token": token}


def left(token, at, ttl):
    return {"at": at, "what": "left", "key": "k", "token": token, "ttl": ttl}


def refused(at, token="", sent=None):
    return {
        "at": at,
        "what": "refused",
        "who": "x",
        "key": "k",
        "limit": 1,
        "call": at - 1,
        "sent": at - 0.1 if sent is None else sent,
        "token": token,
    }


def wrote(at, fence, read, ours=True):
    return {"at": at, "what": "wrote", "key": "k", "fence": fence, "read": read, "value": read + 1, "ours": ours}


def landed(token, at, **facts):
    line = {"at": at, "what": "landed", "verb": "claim", "key": "k", "token": token, "slot": 0, "ttl": 10.0}
    return {**line, "by": at, "new": True, "twice": False, **facts}


def broken(*lines, **bounds):
    """The rules that a history breaks. It is written to a file and read again first."""
    history = [json.loads(json.dumps(line)) for part in lines for line in (part if isinstance(part, list) else [part])]
    return [violation.rule for violation in check(sorted(history, key=lambda line: line["at"]), Bounds(**bounds))]


ASKED = {"at": 11, "what": "asked", "who": "a", "key": "k", "call": 10, "lease": 5.0}
AMNESTY = {"at": 15.0, "what": "amnesty", "why": "failover"}
EXTENDED = {"at": 11, "what": "extending", "token": "a", "lease": 60.0, "deadline": 71.0}
FORCED = {"at": 15.0, "what": "forced", "key": "k", "call": 14.0}

GOOD = {
    "one after the other": [acquired("a", 10), released("a", 12), acquired("b", 12.2), released("b", 13)],
    "after its end": [acquired("a", 10), lost("a", 20.0), acquired("b", 20.5), released("b", 21)],
    "two keys": [acquired("a", 10), released("a", 16), acquired("b", 12, key="l"), released("b", 13)],
    "two slots": [acquired("a", 10, limit=2), released("a", 16), acquired("b", 12, slot=1, limit=2), released("b", 13)],
    "over a failover": [acquired("a", 10), AMNESTY, acquired("b", 16), released("b", 17), released("a", 18, ours=False)],
    "freed by an operator": [
        acquired("a", 10),
        FORCED,
        acquired("b", 16),
        released("b", 17),
        lost("a", 18, "taken"),
        released("a", 19, ours=False),
    ],
    "its owner died": [acquired("a", 10), died("a", 11), acquired("b", 20.5), released("b", 21)],
    "dropped": [acquired("a", 10), {"at": 11, "what": "dropped", "token": "a"}, acquired("b", 20.5), released("b", 21)],
    "a refusal while it is held": [acquired("a", 10), refused(11, "a"), released("a", 12)],
    "a refusal while it is kept": [acquired("a", 10), released("a", 12, kept=5.0), refused(16, "a")],
    "a refusal for a baton": [acquired("a", 10), released("a", 12), refused(12.9, "baton")],
    "a refusal for one who died": [died("a", 11), ASKED, refused(18, "a")],
    "a late claim before its patience ended": [gave_up("a", 10), landed("a", 11), evicted("a", 12)],
    "a counter": [acquired("a", 10), wrote(11, 100, 0), released("a", 12), acquired("b", 13), wrote(14, 130, 1), released("b", 15)],
    "a writer that was too late": [
        acquired("a", 10),
        lost("a", 20),
        acquired("b", 21),
        wrote(22, 210, 0),
        wrote(23, 100, 0, ours=False),
        released("b", 24),
    ],
    "a waiter behind a long hold": [acquired("a", 10, deadline=60), released("a", 50), acquired("b", 51, call=11), released("b", 52)],
    "a slow extension": [acquired("a", 10), EXTENDED, released("a", 50)],
}

BAD = {
    "exclusion": [acquired("a", 10), acquired("b", 12), released("a", 14), released("b", 15)],
    "limit": [acquired("a", 10, slot=2, limit=2), released("a", 14)],
    "fences": [acquired("a", 10), released("a", 11), acquired("b", 12, fence=100), released("b", 13)],
    "register": [acquired("a", 10), released("a", 12), wrote(11, 100, 0), acquired("b", 13), wrote(14, 130, 0), released("b", 15)],
    "register ": [wrote(11, 100, 0), wrote(12, 90, 1)],
    "register  ": [acquired("a", 10), wrote(11, 100, 0, ours=False), released("a", 12)],
    "refusals": [acquired("a", 10), released("a", 12), refused(15, "a")],
    "refusals ": [refused(15)],
    "refusals  ": [acquired("a", 10), released("a", 12, kept=5.0), {**refused(14, "a"), "state": "running"}],
    "refusals   ": [acquired("a", 10), {**refused(11, "a"), "own": "a"}, released("a", 12)],
    "ghosts": [acquired("a", 10), released("a", 12), left("a", 14, 5.0)],
    "ghosts ": [acquired("a", 10), released("a", 12), left("baton", 12.5, 99.0)],
    "untouched": [acquired("a", 10), lost("a", 12, "vanished"), released("a", 13, ours=False)],
    "untouched ": [acquired("a", 10), released("a", 12, ours=False)],
    "effects": [gave_up("a", 10), evicted("a", 11), landed("a", 12)],
    "effects ": [landed("a", 30, by=12.0)],
    "slots": [acquired("a", 10, limit=2), landed("a", 11, slot=1), released("a", 12)],
    "ends": [acquired("a", 10, renewed=True, ends=15.0, deadline=30.0), released("a", 12)],
    "check": [acquired("a", 10), lost("a", 20), {"at": 21, "what": "checked", "token": "a", "ours": True}],
    "check ": [acquired("a", 10), {"at": 11, "what": "checked", "token": "a", "ours": False}, released("a", 12)],
    "told": [acquired("a", 10), released("a", 40)],
    "told ": [acquired("a", 10)],
    "told once": [acquired("a", 10), lost("a", 20), lost("a", 21)],
    "renewals": [acquired("a", 10, renewed=True), lost("a", 20)],
    "waiters": [acquired("a", 10), released("a", 12), acquired("b", 30, call=11, since=30), released("b", 31)],
    "acquired": [acquired("a", 10), released("a", 11), acquired("a", 12), released("a", 13)],
    "acquired ": [acquired("a", 10, deadline=9.5), lost("a", 10)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_keeps_every_promise_passes(name):
    assert not broken(*GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_found(name):
    assert name.strip() in broken(*BAD[name])


def test_every_rule_has_a_history_that_breaks_it():
    names = {"losses": {"told", "check"}, "slots": {"slots", "ends"}}
    shown = {name.strip() for name in BAD}
    assert all(names.get(rule.__name__, {rule.__name__}) <= shown for rule in RULES)


def test_a_process_that_stood_still_may_tell_late():
    stalled = {"at": 12, "what": "stalled", "who": "a", "until": 39.0}
    assert not broken(acquired("a", 10), stalled, released("a", 40))


def test_two_failed_attempts_explain_a_loss():
    attempts = [{"at": at, "what": "unrenewed", "token": "a"} for at in (14, 17)]
    assert not broken(acquired("a", 10, renewed=True), attempts, lost("a", 20))


def test_what_the_network_repeats_may_stay_for_a_lease():
    assert not broken(acquired("a", 10), released("a", 12), landed("a", 14, twice=True), left("a", 20, 4.0))


def test_bounds_are_the_callers():
    history = [acquired("a", 10), released("a", 12), acquired("b", 17, call=11, since=17), released("b", 18)]
    assert not broken(*history)
    assert broken(*history, waits=2.0) == ["waiters"]
