# ruff: noqa: PLR2004 - a number in a case is an example
"""Batches: each line judged apart, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soloist.contract import Busy, Evict, Gone, Grant, Last, Look, Release, Renew
from soloist.errors import TooLarge
from soloist.testing._contract.asking import GRAIN, granted, looked, named, needs, only, token, who

if TYPE_CHECKING:
    from soloist.contract import Line, Store
    from soloist.testing._contract.asking import Ask


def test_an_empty_batch_comes_to_nothing(ask: Ask, store: Store) -> None:
    """Rule 15."""
    assert ask(store.batch([])) == ()


def test_each_line_has_its_own_verdict_in_order(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    mine, lost, gone, freed = (granted(ask(store.claim(f"{key}:{i}", f"mine/{i}", 60, info={"i": i}))) for i in range(4))
    ask(store.claim(lost.key, "other/1", 60, info={}, expect=lost.token))
    ask(store.release(gone))
    verdicts = ask(
        store.batch(
            [
                Renew(gone, 60),
                Look(mine.key),
                Renew(mine, 900),
                Release(gone),
                Renew(lost, 60),
                Release(freed),
                Evict(lost.key, lost.token),
                Evict(lost.key, "other/1"),
                Look(gone.key),
                Release(lost),
            ]
        )
    )
    assert isinstance(verdicts[0], Gone)
    assert isinstance(renewed := verdicts[2], Grant)
    assert (renewed[:3], renewed.slot) == (mine[:3], 0)
    assert renewed.ttl >= 900 - GRAIN
    assert named(verdicts[4]) == "other/1"
    assert (verdicts[3], *verdicts[5:]) == (False, True, False, True, (), False)
    assert only(looked(verdicts[1]))[:4] == (mine.key, 0, mine.token, mine.fence)


def test_lines_of_one_key_are_judged_in_order(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    lines: list[Line] = [
        Renew(grant, 900, "queued"),
        Look(key),
        Release(grant),
        Look(key),
        Renew(grant, 60),
        Release(grant),
        Evict(key, "mine/1"),
    ]
    renewed, held, released, vacant, gone, *nothing = ask(store.batch(lines))
    assert granted(renewed).ttl >= 900 - GRAIN
    assert only(looked(held)).state == "queued"
    assert (released, vacant, nothing) == (True, (), [False, False])
    assert isinstance(gone, Gone)


def test_an_error_in_one_line_keeps_no_other_out(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    grants = [granted(ask(store.claim(f"{key}:{i}", "mine/1", 60, info={"i": i}))) for i in range(3)]
    big = {"big": "x" * (store.capabilities.max_record + 1)}
    verdicts = ask(store.batch([Renew(grants[0], 900), Renew(grants[1], 900, "queued", big), Renew(grants[2], 900), Release(grants[0])]))
    assert granted(verdicts[0]).ttl >= 900 - GRAIN
    assert isinstance(verdicts[1], TooLarge)
    assert granted(verdicts[2]).ttl >= 900 - GRAIN
    assert verdicts[3] is True
    holder = only(ask(store.look(grants[1].key)))
    assert (holder.state, holder.info) == ("running", {"i": 1})


def test_a_batch_sets_state_and_info_and_keeps(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    grants = [granted(ask(store.claim(f"{key}:{i}", "mine/1", 900, info={"i": i}, state="publishing"))) for i in range(3)]
    verdicts = ask(
        store.batch([Renew(grants[0], 60, "queued", {"n": 1}), Renew(grants[1], 30, "kept"), Renew(grants[2], 60, None, {"n": 3})])
    )
    assert [granted(verdict).ttl > 800 for verdict in verdicts] == [True, False, True]
    seen = [only(ask(store.look(grant.key))) for grant in grants]
    assert [(holder.state, holder.info) for holder in seen] == [("queued", {"n": 1}), ("kept", {"i": 1}), ("publishing", {"n": 3})]
    assert [holder.ttl > 800 for holder in seen] == [True, False, True]
    assert granted(ask(store.batch([Renew(grants[1], 900)]))[0]).ttl <= 30 + store.capabilities.late_by + GRAIN


def test_a_batch_remembers_as_a_release_does(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    needs(store, "remembers_last")
    grants = [granted(ask(store.claim(f"{key}:{i}", "mine/1", 60, info={}, state="queued"))) for i in range(3)]
    lines: list[Line] = [Release(grants[0], 60), Release(grants[1], 60, Last("older/1", "publishing")), Release(grants[2])]
    assert ask(store.batch(lines)) == (True, True, True)
    last = [granted(ask(store.claim(grant.key, "new/1", 60, info={}))).last for grant in grants]
    assert last == [Last("mine/1", "queued"), Last("older/1", "publishing"), None]


def test_a_batch_knows_slots(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    needs(store, "slots")
    grants = sorted((granted(ask(store.claim(key, f"{name}/1", 60, info={}, slots=3))) for name in "abc"), key=lambda grant: grant.slot)
    lines: list[Line] = [
        Look(key, 3),
        Renew(grants[2], 900),
        Evict(key, grants[1].token, 3),
        Evict(key, grants[1].token, 3),
        Release(grants[0]),
        Look(key, 3),
    ]
    before, renewed, *rest, after = ask(store.batch(lines))
    assert [holder[:3] for holder in looked(before)] == [(key, grant.slot, grant.token) for grant in grants]
    assert granted(renewed).slot == 2
    assert rest == [True, False, True]
    assert only(looked(after))[:3] == (key, 2, grants[2].token)


def test_a_batch_touches_nobody_elses_hold(ask: Ask, store: Store, key: str) -> None:
    """Rules 4 and 15."""
    old = granted(ask(store.claim(key, "old/1", store.capabilities.shortest_ttl, info={})))
    ask.until_vacant(key)
    ask(store.claim(key, "mine/1", 60, info={"n": 1}))
    renewed, released, kept, evicted = ask(
        store.batch([Renew(old, 900, "kept", {"n": 2}), Release(old), Release(old, 60), Evict(key, "old/1")])
    )
    assert isinstance(renewed, Busy)
    assert (released, kept, evicted) == (False, False, False)
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.state, holder.info) == ("mine/1", "running", {"n": 1})
    assert holder.ttl <= 60 + store.capabilities.late_by + GRAIN


def test_a_batch_may_be_long(ask: Ask, store: Store, key: str) -> None:
    """Rule 15."""
    grants = [granted(ask(store.claim(f"{key}:{i}", token(), 60, info={}))) for i in range(12)]
    lines: list[Line] = [Renew(grants[i % 12], 100 + i) if i % 3 else Look(grants[i % 12].key) for i in range(1500)]
    verdicts = ask(store.batch(lines, within=15))
    assert len(verdicts) == 1500
    for i, verdict in enumerate(verdicts):
        found = granted(verdict) if i % 3 else only(looked(verdict))
        assert (found.key, found.token) == (grants[i % 12].key, grants[i % 12].token)
    assert who(ask, store, grants[11].key) == grants[11].token
    assert all(ask(store.batch([Release(grant) for grant in grants])))
