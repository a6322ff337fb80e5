# ruff: noqa: PLR2004 - a number in a case is an example
"""Claims: what each finds, and what it is told. One slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from soloist.contract import Gone, Last, Late
from soloist.testing._contract.asking import GRAIN, brief, granted, named, needs, only, refused, token, who

if TYPE_CHECKING:
    from soloist.contract import Info, State, Store
    from soloist.testing._contract.asking import Ask


def test_a_vacant_key_is_granted(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={"host": "web-1"})))
    assert (grant.key, grant.token, grant.slot, grant.last) == (key, "mine/1", 0, None)
    assert grant.ttl >= 60 - GRAIN
    assert isinstance(grant.fence, int) is (store.capabilities.fence != "none")


def test_whoever_looks_sees_the_whole_holder(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    info: Info = {"host": "web-1", "pid": 4711, "since": 1763500800.25}
    grant = granted(ask(store.claim(key, "mine/1", 60, info=info, state="queued")))
    holder = only(ask(ask.open().look(key)))
    assert holder._replace(ttl=0) == (key, 0, "mine/1", grant.fence, 0, "queued", info)
    assert 55 < holder.ttl <= 60 + store.capabilities.late_by + GRAIN


def test_a_refusal_names_the_holder(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    info: Info = {"host": "web-1", "pid": 4711}
    grant = granted(ask(store.claim(key, "mine/1", 60, info=info, state="publishing")))
    holder = only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders)
    assert holder._replace(ttl=0) == (key, 0, "mine/1", grant.fence, 0, "publishing", info)
    assert 55 < holder.ttl <= 60 + store.capabilities.late_by + GRAIN


@pytest.mark.parametrize("will_wait", [False, True], ids=["asks_once", "will_wait"])
def test_a_refused_claim_changes_nothing_of_the_hold(ask: Ask, store: Store, key: str, will_wait: bool) -> None:  # noqa: FBT001 - pytest's
    """Rule 4."""
    ask(store.claim(key, "mine/1", 30, info={"n": 1}, state="queued"))
    before = only(ask(store.look(key)))
    refused(ask(store.claim(key, "other/1", 900, info={"n": 2}, will_wait=will_wait)))
    after = only(ask(store.look(key)))
    assert after._replace(ttl=0) == before._replace(ttl=0)
    assert after.ttl <= before.ttl + GRAIN


@pytest.mark.parametrize("state", ["publishing", "queued", "running", "kept"])
def test_a_hold_begins_in_the_state_that_was_asked_for_and_shuts_others_out(ask: Ask, store: Store, key: str, state: State) -> None:
    """Rule 12."""
    ask(store.claim(key, "mine/1", 60, info={}, state=state))
    assert only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders).state == state


@pytest.mark.parametrize("state", ["publishing", "queued", "running", "kept"])
def test_a_hold_of_any_state_ends_by_itself(ask: Ask, store: Store, key: str, state: State) -> None:
    """Rule 8."""
    ask(store.claim(key, "mine/1", store.capabilities.shortest_ttl, info={}, state=state))
    ask.until_vacant(key)
    assert granted(ask(store.claim(key, "other/1", 60, info={}))).last is None


@pytest.mark.parametrize(
    "info",
    [{}, {"n": 0, "x": -1.5, "s": ""}, {"üñí": "日本 🎻"}, {"q": "'\"\\{}[]\n\0 | - 1"}, {"big": 2**53 - 1}],
    ids=["empty", "numbers", "unicode", "quotes", "big"],
)
def test_info_comes_back_as_it_was_given(ask: Ask, store: Store, key: str, info: Info) -> None:
    """Rule 12."""
    ask(store.claim(key, "mine/1", 60, info=info))
    assert only(ask(store.look(key))).info == info
    assert only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders).info == info


def test_its_own_token_is_answered_with_what_stands(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    first = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1}, state="queued")))
    again = granted(ask(store.claim(key, "mine/1", store.capabilities.shortest_ttl, info={"n": 2}, state="publishing")))
    assert (again.token, again.fence, again.slot) == (first.token, first.fence, first.slot)
    assert 55 < again.ttl <= 60 + store.capabilities.late_by + GRAIN
    holder = only(ask(store.look(key)))
    assert (holder.state, holder.info, holder.fence) == ("queued", {"n": 1}, first.fence)
    assert holder.ttl > 55


def test_asking_again_does_not_prolong_a_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    ask(store.claim(key, "mine/1", 30, info={}))
    assert granted(ask(store.claim(key, "mine/1", 900, info={}))).ttl < 40 + store.capabilities.late_by
    assert only(ask(store.look(key))).ttl < 40 + store.capabilities.late_by


def test_asking_again_leaves_a_kept_hold_alone(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    grant = granted(ask(store.claim(key, "mine/1", 900, info={"n": 1})))
    granted(ask(store.renew(grant, 30, state="kept")))
    assert granted(ask(store.claim(key, "mine/1", 900, info={"n": 2}))).ttl < 40 + store.capabilities.late_by
    holder = only(ask(store.look(key)))
    assert (holder.state, holder.info) == ("kept", {"n": 1})


def test_its_own_token_comes_before_the_expected_one(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    ask(store.claim(key, "old/1", 60, info={}))
    first = granted(ask(store.claim(key, "new/1", 60, info={"n": 1}, expect="old/1")))
    again = granted(ask(store.claim(key, "new/1", 60, info={"n": 2}, expect="old/1")))
    assert again.fence == first.fence
    assert only(ask(store.look(key))).info == {"n": 1}


def test_an_ended_hold_of_its_own_is_not_read_back(ask: Ask, store: Store, key: str) -> None:
    """Rule 5."""
    old = granted(ask(store.claim(key, "mine/1", store.capabilities.shortest_ttl, info={})))
    ask.until_vacant(key)
    new = granted(ask(store.claim(key, "mine/1", 60, info={})))
    assert new.ttl > 55
    assert (new.fence is None and old.fence is None) or (new.fence or 0) > (old.fence or 0)


def test_a_takeover_replaces_the_hold_of_that_very_token(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    old = granted(ask(store.claim(key, "old/1", 900, info={"n": 1}, state="queued")))
    new = granted(ask(store.claim(key, "new/1", 60, info={"n": 2}, expect="old/1")))
    assert new.last is None
    assert new.ttl < 100 + store.capabilities.late_by
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.fence, holder.state, holder.info) == ("new/1", new.fence, "running", {"n": 2})
    assert holder.ttl < 100 + store.capabilities.late_by
    assert named(ask(store.renew(old, 60))) == "new/1"
    assert not ask(store.release(old))
    assert not ask(store.evict(key, "old/1"))
    assert who(ask, store, key) == "new/1"


def test_a_takeover_from_anybody_else_is_refused(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "mine/1", 60, info={}))
    assert named(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))) == "mine/1"
    assert who(ask, store, key) == "mine/1"


def test_a_takeover_of_a_vacant_key_is_granted(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    assert granted(ask(store.claim(key, "mine/1", 60, info={}, expect="third/1"))).last is None


def test_an_ended_hold_is_a_vacancy_that_remembers_nothing(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "mine/1", store.capabilities.shortest_ttl, info={}))
    ask.until_vacant(key)
    assert granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))).last is None


def test_a_hold_goes_back_to_a_token_that_had_it(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    ask(store.claim(key, "first/1", 60, info={}))
    ask(store.claim(key, "second/1", 60, info={}, expect="first/1"))
    granted(ask(store.claim(key, "first/1", 60, info={}, state="queued", expect="second/1")))
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.state) == ("first/1", "queued")


def test_a_vacancy_remembers_whom_it_was_asked_to(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: remembers_last, both ways."""
    old = granted(ask(store.claim(key, "old/1", 60, info={}, state="queued")))
    assert ask(store.release(old, keep=60))
    assert ask(store.look(key)) == ()
    answer = ask(store.claim(key, "new/1", 60, info={}, expect="third/1"))
    assert isinstance(answer, Gone) is store.capabilities.remembers_last
    if isinstance(answer, Gone):
        assert (answer.last, answer.state) == ("old/1", "queued")
        assert ask(store.look(key)) == ()


def test_a_memory_stays_when_a_claim_meets_it_in_vain(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=60))
    for mine in ("b/1", "c/1"):
        assert ask(store.claim(key, mine, 60, info={}, expect="third/1"))[:2] == ("old/1", "running")
    assert granted(ask(store.claim(key, "d/1", 60, info={}, expect="old/1"))).last == Last("old/1", "running")


@pytest.mark.parametrize("expect", ["old/1", None], ids=["expected", "anybody"])
def test_a_vacancy_that_remembers_tells_who_takes_it(ask: Ask, store: Store, key: str, expect: str | None) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    old = granted(ask(store.claim(key, "old/1", 60, info={}, state="queued")))
    ask(store.release(old, keep=60))
    new = granted(ask(store.claim(key, "new/1", 60, info={}, expect=expect)))
    assert new.last == Last("old/1", "queued")
    assert new.ttl > 55


def test_a_memory_may_be_of_somebody_else(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=60, last=Last("older/1", "publishing")))
    assert ask(store.claim(key, "new/1", 60, info={}, expect="old/1"))[:2] == ("older/1", "publishing")
    assert granted(ask(store.claim(key, "new/1", 60, info={}, expect="older/1"))).last == Last("older/1", "publishing")


def test_a_memory_ends(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    needs(store, "remembers_last")
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=store.capabilities.shortest_ttl))
    forgets = ask.until(lambda: not isinstance(answer := ask(store.claim(key, token(), 60, info={}, expect="third/1")), Gone) and answer)
    assert granted(forgets).last is None


def test_a_memory_lasts_as_long_as_it_was_asked_to(ask: Ask, store: Store, key: str) -> None:
    """Rule 2."""
    needs(store, "remembers_last")
    lasts = brief(store)
    before = ask(store.ping())
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=lasts))
    forgets = ask.until(lambda: not isinstance(answer := ask(store.claim(key, token(), 60, info={}, expect="third/1")), Gone) and answer)
    assert granted(forgets).now >= before + lasts - GRAIN


def test_a_memory_ends_with_the_next_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=60))
    ask(store.release(granted(ask(store.claim(key, "new/1", 60, info={})))))
    assert granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1"))).last is None


def test_a_late_claim_is_refused_where_that_is_declared(ask: Ask, store: Store, key: str) -> None:
    """Rules 6 and 12: refuses_late, both ways."""
    answer = ask(store.claim(key, "mine/1", 60, info={}, not_after=ask(store.ping()) - 1))
    assert isinstance(answer, Late) is store.capabilities.refuses_late
    assert bool(ask(store.look(key))) is not store.capabilities.refuses_late


def test_a_late_claim_tells_the_servers_time(ask: Ask, store: Store, key: str) -> None:
    """Rule 6."""
    needs(store, "refuses_late")
    before = ask(store.ping())
    late = ask(store.claim(key, "mine/1", 60, info={}, not_after=before - 1))
    assert isinstance(late, Late)
    assert before - GRAIN <= late.now <= ask(store.ping()) + GRAIN


def test_a_claim_in_time_is_granted(ask: Ask, store: Store, key: str) -> None:
    """Rule 6."""
    granted(ask(store.claim(key, "mine/1", 60, info={}, not_after=ask(store.ping()) + 60)))
    refused(ask(store.claim(key, "other/1", 60, info={}, not_after=ask(store.ping()) + 60)))


def test_a_late_claim_takes_nothing_over(ask: Ask, store: Store, key: str) -> None:
    """Rule 6."""
    needs(store, "refuses_late")
    ask(store.claim(key, "old/1", 60, info={}))
    assert isinstance(ask(store.claim(key, "new/1", 60, info={}, expect="old/1", not_after=ask(store.ping()) - 1)), Late)
    assert who(ask, store, key) == "old/1"


def test_a_late_claim_leaves_a_memory_and_an_ended_hold_as_they_are(ask: Ask, store: Store, key: str) -> None:
    """Rule 6."""
    needs(store, "refuses_late")
    needs(store, "remembers_last")
    ask(store.release(granted(ask(store.claim(key, "old/1", 60, info={}))), keep=60))
    past = ask(store.ping()) - 1
    assert isinstance(ask(store.claim(key, "new/1", 60, info={}, not_after=past)), Late)
    assert granted(ask(store.claim(key, "new/1", store.capabilities.shortest_ttl, info={}, expect="old/1"))).last is not None
    ask.until_vacant(key)
    assert isinstance(ask(store.claim(key, "third/1", 60, info={}, not_after=past)), Late)
    assert ask(store.look(key)) == ()


def test_a_late_claim_of_a_holder_leaves_its_hold_as_it_is(ask: Ask, store: Store, key: str) -> None:
    """Rule 6."""
    needs(store, "refuses_late")
    ask(store.claim(key, "mine/1", 60, info={"n": 1}))
    ask(store.claim(key, "mine/1", 900, info={"n": 2}, not_after=ask(store.ping()) - 1))
    holder = only(ask(store.look(key)))
    assert (holder.token, holder.info) == ("mine/1", {"n": 1})
    assert holder.ttl <= 60 + store.capabilities.late_by + GRAIN
