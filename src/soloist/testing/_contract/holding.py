# ruff: noqa: PLR2004 - a number in a case is an example
"""Renewals, releases, evictions: what a holder and an operator may do, and to whose hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from soloist.contract import Gone, Grant, Last
from soloist.testing._contract.asking import GRAIN, brief, granted, named, needs, only, refused, token, who

if TYPE_CHECKING:
    from soloist.contract import Info, State, Store
    from soloist.testing._contract.asking import Ask

THIEF = "thief/1"


def test_a_renewal_prolongs_the_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 2."""
    grant = granted(ask(store.claim(key, "mine/1", 30, info={"n": 1})))
    renewed = granted(ask(store.renew(grant, 900)))
    assert renewed[:3] == grant[:3]
    assert renewed.slot == grant.slot
    assert renewed.ttl >= 900 - GRAIN
    holder = only(ask(store.look(key)))
    assert holder._replace(ttl=0) == (key, 0, "mine/1", grant.fence, 0, "running", {"n": 1})
    assert holder.ttl > 890


def test_a_renewal_outlives_the_lease_that_it_renews(ask: Ask, store: Store, key: str) -> None:
    """Rule 2."""
    lease = brief(store)
    grant = granted(ask(store.claim(key, "mine/1", lease, info={})))
    granted(ask(store.renew(grant, 60)))
    ended = grant.now + lease + store.capabilities.late_by + 0.05
    ask.until(lambda: ask(store.ping()) > ended)
    assert who(ask, store, key) == "mine/1"
    assert named(ask(store.claim(key, "other/1", 60, info={}))) == "mine/1"


@pytest.mark.parametrize("state", [None, "running", "queued"])
def test_a_renewal_never_brings_an_end_nearer(ask: Ask, store: Store, key: str, state: State | None) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={})))
    assert granted(ask(store.renew(grant, 1 + store.capabilities.shortest_ttl, state=state))).ttl > 890
    assert only(ask(store.look(key))).ttl > 890


def test_a_hold_that_is_kept_may_end_sooner(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={"n": 1})))
    renewed = granted(ask(store.renew(grant, 30, state="kept")))
    assert 30 - GRAIN <= renewed.ttl < 40 + store.capabilities.late_by
    holder = only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders)
    assert (holder.state, holder.info) == ("kept", {"n": 1})
    assert holder.ttl < 40 + store.capabilities.late_by


def test_a_hold_that_is_kept_again_ends_as_the_last_renewal_says(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={})))
    ask(store.renew(grant, 300, state="kept"))
    assert 100 - GRAIN <= granted(ask(store.renew(grant, 100, state="kept"))).ttl < 110 + store.capabilities.late_by
    assert granted(ask(store.renew(grant, 200, state="kept"))).ttl >= 200 - GRAIN


def test_a_plain_renewal_leaves_a_kept_hold_alone(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={"n": 1})))
    ask(store.renew(grant, 30, state="kept"))
    for info in (None, {"n": 2}):
        renewed = granted(ask(store.renew(grant, 900, info=info)))
        assert renewed.fence == grant.fence
        assert renewed.ttl <= 30 + store.capabilities.late_by + GRAIN
        holder = only(ask(store.look(key)))
        assert (holder.state, holder.info) == ("kept", {"n": 1})
        assert holder.ttl <= 30 + store.capabilities.late_by + GRAIN


def test_a_kept_hold_comes_back_by_a_renewal_with_a_state(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={})))
    ask(store.renew(grant, 30, state="kept"))
    assert granted(ask(store.renew(grant, 1, state="running"))).ttl > 20
    assert granted(ask(store.renew(grant, 300, state="queued"))).ttl >= 300 - GRAIN
    assert only(ask(store.look(key))).state == "queued"


def test_a_renewal_changes_state_and_info(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1}, state="publishing")))
    steps: list[tuple[State | None, Info | None, tuple[State, Info]]] = [
        ("queued", None, ("queued", {"n": 1})),
        (None, {"n": 2, "task": "é"}, ("queued", {"n": 2, "task": "é"})),
        ("running", {}, ("running", {})),
        (None, None, ("running", {})),
    ]
    for state, info, seen in steps:
        assert granted(ask(store.renew(grant, 60, state=state, info=info))).fence == grant.fence
        assert only(ask(store.look(key)))[5:] == seen


def test_a_hold_that_was_released_after_its_renewal_may_be_renewed_by_nobody(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    renewed = granted(ask(store.renew(grant, 60)))
    assert ask(store.release(renewed))
    assert ask(store.renew(renewed, 60))[:2] == (None, None)
    assert ask(store.look(key)) == ()


def test_renewing_a_hold_that_another_took_changes_nothing(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    old = granted(ask(store.claim(key, "old/1", store.capabilities.shortest_ttl, info={})))
    ask.until_vacant(key)
    ask(store.claim(key, "mine/1", 60, info={"n": 1}, state="queued"))
    before = only(ask(store.look(key)))
    assert only(refused(ask(store.renew(old, 900, state="running", info={"n": 2}))).holders)._replace(ttl=0) == before._replace(ttl=0)
    after = only(ask(store.look(key)))
    assert after._replace(ttl=0) == before._replace(ttl=0)
    assert after.ttl <= before.ttl + GRAIN


def test_an_ended_hold_is_not_revived(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", store.capabilities.shortest_ttl, info={})))
    ask.until_vacant(key)
    states: list[State | None] = [None, "running", "kept"]
    for state in states:
        assert ask(store.renew(grant, 60, state=state))[:2] == (None, None)
    assert not ask(store.release(grant, keep=60))
    assert not ask(store.evict(key, "mine/1"))
    assert ask(store.look(key)) == ()
    assert granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))).last is None


def test_renewing_what_nobody_has_makes_nothing(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert ask(store.release(grant))
    assert isinstance(gone := ask(store.renew(grant, 60, state="running", info={"n": 1})), Gone)
    assert gone[:2] == (None, None)
    assert ask(store.look(key)) == ()
    granted(ask(store.claim(key, "other/1", 60, info={})))


def test_renewing_what_is_remembered_tells_who_was_last(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    old = granted(ask(store.claim(key, "old/1", 60, info={})))
    new = granted(ask(store.claim(key, "new/1", 60, info={}, state="queued", expect="old/1")))
    assert ask(store.release(new, keep=60))
    for grant in (old, new):
        assert isinstance(gone := ask(store.renew(grant, 60, state="running")), Gone)
        assert gone[:2] == ("new/1", "queued")
    assert ask(store.look(key)) == ()


def test_an_older_version_of_a_grant_is_as_good(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    first = granted(ask(store.claim(key, "mine/1", 60, info={})))
    second = granted(ask(store.renew(first, 120)))
    third = granted(ask(store.renew(second, 180, state="queued", info={"n": 1})))
    assert granted(ask(store.renew(first, 300))).ttl >= 300 - GRAIN
    assert granted(ask(store.renew(third, 400))).ttl >= 400 - GRAIN
    assert ask(store.release(second))


def test_a_version_that_does_not_match_is_no_verdict(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    mine = granted(ask(store.claim(key, "mine/1", 60, info={})))
    elsewhere = granted(ask(store.claim(key + "/elsewhere", "mine/1", 60, info={})))
    astray = mine._replace(version=elsewhere.version)
    assert granted(ask(store.renew(astray, 300))).ttl >= 300 - GRAIN
    assert ask(store.release(astray))


def test_a_grant_is_a_value_that_travels(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    arrived = Grant(*json.loads(json.dumps(grant)))
    elsewhere = ask.open()
    assert granted(ask(elsewhere.renew(arrived, 300))).fence == grant.fence
    assert granted(ask(store.renew(grant, 400))).ttl >= 400 - GRAIN
    assert ask(elsewhere.release(arrived))
    assert not ask(store.release(grant))


def test_only_the_owner_renews_and_releases(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    mine = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1})))
    forged = mine._replace(token=THIEF, version=None)
    assert named(ask(store.renew(forged, 900, state="kept"))) == "mine/1"
    assert not ask(store.release(forged))
    assert not ask(store.release(forged, keep=60))
    assert not ask(store.evict(key, THIEF))
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence, holder.state, holder.info) == ("mine/1", mine.fence, "running", {"n": 1})
    assert holder.ttl <= 60 + store.capabilities.late_by + GRAIN


@pytest.mark.parametrize("nearly", ["mine/1 ", "mine/10", "mine/", "mine", "MINE/1", "%", "*", ""])
def test_a_token_that_is_nearly_the_owners_is_another(ask: Ask, store: Store, key: str, nearly: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "mine/1", 60, info={}))
    assert not ask(store.evict(key, nearly))
    assert who(ask, store, key) == "mine/1"


def test_a_released_key_is_vacant_at_once(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert ask(store.release(grant))
    assert ask(store.look(key)) == ()
    granted(ask(ask.open().claim(key, "other/1", 60, info={})))


def test_a_second_release_says_that_it_was_not_ours(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert ask(store.release(grant))
    assert not ask(store.release(grant))
    ask(store.claim(key, "other/1", 60, info={}))
    assert not ask(store.release(grant))
    assert who(ask, store, key) == "other/1"


def test_nothing_stays_of_a_released_key(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    ask(store.release(granted(ask(store.claim(key, "mine/1", 60, info={})))))
    assert granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))).last is None


@pytest.mark.parametrize("state", ["publishing", "queued", "kept"])
def test_a_hold_of_any_state_is_released(ask: Ask, store: Store, key: str, state: State) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    granted(ask(store.renew(grant, 60, state=state)))
    assert ask(store.release(grant))
    assert ask(store.look(key)) == ()


def test_a_key_that_was_left_with_a_memory_is_released_once(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert ask(store.release(grant, keep=60))
    assert not ask(store.release(grant))
    assert not ask(store.release(grant, keep=60, last=Last("other/1", "queued")))
    assert not ask(store.evict(key, "mine/1"))
    assert not ask(store.evict(key, ""))
    if store.capabilities.remembers_last:
        assert granted(ask(store.claim(key, "new/1", 60, info={}))).last == Last("mine/1", "running")


def test_a_failed_release_leaves_no_memory(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    old = granted(ask(store.claim(key, "old/1", 60, info={})))
    ask(store.release(old))
    assert not ask(store.release(old, keep=60))
    mine = granted(ask(store.claim(key, "mine/1", 60, info={}, expect="third/1")))
    assert not ask(store.release(old, keep=60))
    assert ask(store.release(mine))
    assert granted(ask(store.claim(key, "new/1", 60, info={}, expect="third/1"))).last is None


def test_an_eviction_takes_the_hold_of_that_very_token(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert not ask(store.evict(key, "other/1"))
    assert not ask(store.evict(key + "/elsewhere", "mine/1"))
    assert ask(ask.open().evict(key, "mine/1"))
    assert ask(store.look(key)) == ()
    assert ask(store.renew(grant, 60))[:2] == (None, None)
    assert not ask(store.release(grant))
    assert not ask(store.evict(key, "mine/1"))


def test_an_eviction_leaves_no_memory(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "mine/1", 60, info={}))
    assert ask(store.evict(key, "mine/1"))
    assert granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))).last is None


def test_evicting_what_nobody_holds_is_no_error(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    assert not ask(store.evict(key, token()))
    assert ask(store.look(key)) == ()
