# ruff: noqa: PLR2004 - a number in a case is an example
"""Semaphores: several slots of one key. Each slot is a record like any other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from soloist.contract import Busy, Gone, Grant
from soloist.errors import ConfigError
from soloist.testing._contract.asking import GRAIN, granted, listed, needs, only, refused, token

if TYPE_CHECKING:
    from soloist.contract import Store
    from soloist.testing._contract.asking import Ask


def filled(ask: Ask, store: Store, key: str, slots: int) -> list[Grant]:
    """A semaphore whose slots are all taken, by a/1, b/1, …; the grants by slot."""
    needs(store, "slots")
    grants = [granted(ask(store.claim(key, f"{'abcdefgh'[i]}/1", 60, info={"i": i}, slots=slots))) for i in range(slots)]
    return sorted(grants, key=lambda grant: grant.slot)


def test_slots_work_or_are_refused_as_declared(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: slots, both ways."""
    if store.capabilities.slots:
        assert len(filled(ask, store, key, 2)) == 2
    else:
        with pytest.raises(ConfigError):
            ask(store.claim(key, "a/1", 60, info={}, slots=2))


def test_as_many_as_there_are_slots_get_in(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grants = filled(ask, store, key, 3)
    assert [grant.slot for grant in grants] == [0, 1, 2]
    busy = refused(ask(store.claim(key, "z/1", 60, info={}, slots=3)))
    seen = [(holder.slot, holder.token, holder.fence) for holder in busy.holders]
    assert sorted(seen) == [(grant.slot, grant.token, grant.fence) for grant in grants]


def test_a_slot_that_comes_free_is_taken(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grants = filled(ask, store, key, 3)
    assert ask(store.release(grants[1]))
    new = granted(ask(store.claim(key, "z/1", 60, info={}, slots=3)))
    assert new.slot == 1
    refused(ask(store.claim(key, "y/1", 60, info={}, slots=3)))


def test_a_slot_that_ended_is_taken(ask: Ask, store: Store, key: str) -> None:
    """Rule 1."""
    needs(store, "slots")
    ask(store.claim(key, "a/1", 60, info={}, slots=2))
    ask(store.claim(key, "b/1", store.capabilities.shortest_ttl, info={}, slots=2))
    ask.until(lambda: len(ask(store.look(key, slots=2))) == 1)
    assert granted(ask(store.claim(key, "c/1", 60, info={}, slots=2))).slot == 1


def test_asking_again_takes_no_second_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    needs(store, "slots")
    first = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1}, slots=3)))
    again = granted(ask(store.claim(key, "mine/1", 900, info={"n": 2}, slots=3)))
    assert (again.slot, again.fence) == (first.slot, first.fence)
    holder = only(ask(store.look(key, slots=3)))
    assert holder.info == {"n": 1}
    assert holder.ttl <= 60 + store.capabilities.late_by + GRAIN


def test_asking_again_finds_its_slot_beyond_a_vacant_one(ask: Ask, store: Store, key: str) -> None:
    """Rule 3."""
    grants = filled(ask, store, key, 3)
    assert ask(store.release(grants[0]))
    again = granted(ask(store.claim(key, grants[2].token, 60, info={}, slots=3)))
    assert (again.slot, again.fence) == (2, grants[2].fence)
    assert [holder.slot for holder in ask(store.look(key, slots=3))] == [1, 2]


@pytest.mark.parametrize(
    ("first", "second"), [("me/1", "me/2"), ("a/task/id/5.0/x", "a/task/id/6.1/y"), ("me/1.0/x", "me/1.0/y")], ids=["lock", "task", "run"]
)
def test_an_owner_gets_one_slot(ask: Ask, store: Store, key: str, first: str, second: str) -> None:
    """Rule 12."""
    needs(store, "slots")
    ask(store.claim(key, first, 60, info={}, slots=3))
    assert first in [holder.token for holder in refused(ask(store.claim(key, second, 60, info={}, slots=3))).holders]
    assert len(ask(store.look(key, slots=3))) == 1


def test_an_owner_gets_one_slot_even_beyond_a_vacant_one(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grants = filled(ask, store, key, 3)
    assert ask(store.release(grants[0]))
    refused(ask(store.claim(key, grants[2].token[:-1] + "2", 60, info={}, slots=3)))
    assert len(ask(store.look(key, slots=3))) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [("me/1", "me2/1"), ("a/task/5.0/x", "a/5.0/x"), ("Me/1", "me/1"), ("m%/1", "mx/1"), ("m_/1", "mx/1"), ("m*/1", "mx/1")],
)
def test_owners_that_resemble_one_another_are_two(ask: Ask, store: Store, key: str, first: str, second: str) -> None:
    """Rule 7."""
    needs(store, "slots")
    granted(ask(store.claim(key, first, 60, info={}, slots=3)))
    granted(ask(store.claim(key, second, 60, info={}, slots=3)))


def test_an_owner_whose_hold_ended_may_have_another(ask: Ask, store: Store, key: str) -> None:
    """Rule 1."""
    needs(store, "slots")
    ask(store.claim(key, "me/1", store.capabilities.shortest_ttl, info={}, slots=2))
    ask.until_vacant(key, slots=2)
    granted(ask(store.claim(key, "me/2", 60, info={}, slots=2)))


def test_each_claims_own_limit_decides(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grants = filled(ask, store, key, 2)
    busy = refused(ask(store.claim(key, "y/1", 60, info={}, slots=1)))
    assert only(busy.holders).token == grants[0].token
    assert granted(ask(store.claim(key, "z/1", 60, info={}, slots=3))).slot == 2
    assert len(refused(ask(store.claim(key, "y/1", 60, info={}, slots=2))).holders) == 2


def test_a_takeover_gets_the_slot_of_the_expected_hold(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grants = filled(ask, store, key, 3)
    assert ask(store.release(grants[0]))
    old = grants[2]
    new = granted(ask(store.claim(key, "new/1", 60, info={"n": 2}, slots=3, expect=old.token)))
    assert new.slot == 2
    assert old.fence is None or (new.fence or 0) > old.fence
    assert [(holder.slot, holder.token) for holder in ask(store.look(key, slots=3))] == [(1, grants[1].token), (2, "new/1")]
    assert isinstance(ask(store.renew(old, 60)), Busy)
    assert not ask(store.release(old))


def test_an_owner_may_take_over_its_own_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grants = filled(ask, store, key, 2)
    again = granted(ask(store.claim(key, grants[1].token[:-1] + "2", 60, info={}, slots=2, expect=grants[1].token)))
    assert again.slot == 1


def test_a_takeover_of_what_is_no_more_gets_a_vacant_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grants = filled(ask, store, key, 2)
    refused(ask(store.claim(key, "new/1", 60, info={}, slots=2, expect="third/1")))
    assert ask(store.release(grants[1]))
    assert granted(ask(store.claim(key, "new/1", 60, info={}, slots=2, expect="third/1"))).slot == 1


def test_a_semaphore_remembers_in_each_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    grants = filled(ask, store, key, 2)
    for grant in grants:
        assert ask(store.release(grant, keep=60))
    assert isinstance(ask(store.claim(key, "new/1", 60, info={}, slots=2, expect="third/1")), Gone)
    new = granted(ask(store.claim(key, "new/1", 60, info={}, slots=2, expect=grants[1].token)))
    assert (new.slot, new.last and new.last.token) == (1, grants[1].token)


def test_a_slot_that_remembers_another_keeps_nobody_from_a_vacant_one(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "remembers_last")
    grants = filled(ask, store, key, 2)
    assert ask(store.release(grants[0], keep=60))
    assert ask(store.release(grants[1]))
    assert granted(ask(store.claim(key, "new/1", 60, info={}, slots=2, expect="third/1"))).slot == 1


def test_a_look_goes_slot_by_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grants = filled(ask, store, key, 3)
    assert [(holder.slot, holder.token) for holder in ask(store.look(key, slots=3))] == [(grant.slot, grant.token) for grant in grants]
    assert [holder.slot for holder in ask(store.look(key, slots=2))] == [0, 1]
    assert [holder.slot for holder in ask(store.look(key, slots=8))] == [0, 1, 2]
    assert [holder.slot for holder in ask(store.look(key))] == [0]


def test_each_slot_is_renewed_and_released_alone(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grants = filled(ask, store, key, 3)
    assert granted(ask(store.renew(grants[1], 900, state="queued", info={"n": 1}))).slot == 1
    seen = ask(store.look(key, slots=3))
    assert [holder.state for holder in seen] == ["running", "queued", "running"]
    assert [holder.info == {"n": 1} for holder in seen] == [False, True, False]
    assert [holder.ttl > 100 for holder in seen] == [False, True, False]
    assert not ask(store.release(grants[0]._replace(slot=1, version=None)))
    assert ask(store.release(grants[1]))
    assert [holder.slot for holder in ask(store.look(key, slots=3))] == [0, 2]


def test_an_eviction_finds_the_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    grants = filled(ask, store, key, 3)
    assert not ask(store.evict(key, token(), slots=3))
    assert not ask(store.evict(key, grants[2].token, slots=2))
    assert ask(store.evict(key, grants[2].token, slots=3))
    assert [holder.slot for holder in ask(store.look(key, slots=3))] == [0, 1]
    assert isinstance(ask(store.renew(grants[2], 60)), Gone)


def test_a_listing_has_every_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "listing")
    grants = filled(ask, store, key, 3)
    for limit in (100, 1):
        seen = sorted((holder.key, holder.slot, holder.token, holder.fence) for holder in listed(ask, store, key, limit))
        assert seen == [(key, grant.slot, grant.token, grant.fence) for grant in grants]


def test_racers_for_slots_never_get_more_than_there_are(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    needs(store, "slots")
    answers = ask.racing([partial(store.claim, key, f"racer-{i}/1", 60, info={}, slots=3) for i in range(12)])
    assert sorted(answer.slot for answer in answers if isinstance(answer, Grant)) == [0, 1, 2]
    assert sum(isinstance(answer, Busy) for answer in answers) == 9


def test_racers_of_one_owner_get_one_slot(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "slots")
    answers = ask.racing([partial(store.claim, key, f"me/{i}", 60, info={}, slots=3) for i in range(8)])
    assert sum(isinstance(answer, Grant) for answer in answers) == 1
    assert len(ask(store.look(key, slots=3))) == 1
