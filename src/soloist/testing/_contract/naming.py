# ruff: noqa: PLR2004 - a number in a case is an example
"""Keys, namespaces, sizes, formats, tables, and what an operator does by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from soloist.contract import Busy, Evict, Gone, Grant, Last, Look, Release, Renew
from soloist.errors import ConfigError, StoreError, TooLarge
from soloist.testing._contract.asking import (
    NAMESPACE,
    at_most,
    fence_of,
    granted,
    listed,
    looked,
    named,
    needs,
    needs_fences,
    offered,
    only,
    refused,
    token,
    who,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from soloist.contract import Info, Store
    from soloist.testing._contract.asking import Ask

ODD = {
    "nul": "{}\0end",
    "newline": "{}\r\nend",
    "braces": "{{a}}{}{{b}}}}{{",
    "colons": "::{}::2:",
    "percent": "%{}%s%00%%",
    "quotes": "{}'\"`\\'; --",
    "spaces": " {}  ",
    "wild": "*?[{}]_%",
    "non_ascii": "ключ-日本-é-{}-🎻",
    "right_to_left": "مفتاح{}",
    "tab_and_escape": "\t{}\x1b[31m",
    "next": "{}\x1fnext",
    "slashes": "../{}/./../",
    "thousand": "{:k<1000}",
    "thousand_wide": "{:鍵<1000}",
}

ODD_TOKENS = {
    "lone_surrogate": "\ud800{}/\udfff",
    "nul": "\0{}/\0",
    "newline": "{}\r\n/\n",
    "spaces": " {} / 1 ",
    "dash": "-{}/-",
    "percent": "%2D{}%s%/%00%ED%A0%80",
    "slashes": "//{}//./",
    "quotes": "{}'\"`\\/'; --",
    "separators": "a|b;c,d:{}/{{1}}",
    "number": "0{:0>20}/1",
    "long": "{:x<300}/1",
    "non_ascii": "ключ-日本-{}/🎻",
}

ALIKE = (
    "{}",
    "{} ",
    " {}",
    "{}\0",
    "\0{}",
    "{}\n",
    "{}\x1fnext",
    "{{{}}}",
    "w:{}",
    "r:{}",
    "2:{}",
    "1:{}",
    "0:{}",
    ":{}",
    "{}:",
    "{}:1",
    "{}:2",
    "{}/1",
    "{}.1",
    "{}1",
    "{}2",
    "so:{}",
    "so:w:{}",
    "contract:{}",
    "contract:00:{}",
    "{}%00",
    "{}\\0",
    "{}\\x00",
    "{}%",
    "{}%25",
    "{}+",
    "{}=",
    "{}A",
    "{}a",
    "{}é",
    "{}e\u0301",
    "{}É",
    "{}E",
    "{}e",
    "{}ß",
    "{}ss",
    "{}ﬁ",
    "{}fi",
    "{}\ufeff",
    "{}\u200b",
    "{}?",
    "{}\ufffd",
    "{}'",
    "{}''",
    "{:k<180}",
    "{:k<250}",
    "{:k<255}",
    "{:k<256}",
    "{:k<999}",
    "{:k<999}l",
    "{:k<1000}",
)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_key_may_hold_any_character(ask: Ask, store: Store, key: str, odd: str) -> None:
    """Rule 7."""
    mine = odd.format(key)
    grant = granted(ask(store.claim(mine, "mine/1", 60, info={"n": 1})))
    assert grant.key == mine
    holder = only(refused(ask(ask.open().claim(mine, "other/1", 60, info={}))).holders)
    assert (holder.key, holder.token, holder.info) == (mine, "mine/1", {"n": 1})
    assert only(ask(store.look(mine))).key == mine
    assert ask(store.look(key)) == ()
    renewed, seen = ask(store.batch([Renew(grant, 90, "queued"), Look(mine)]))
    assert granted(renewed).key == mine
    assert only(looked(seen)).key == mine
    if store.capabilities.listing:
        assert only(listed(ask, store, mine)).key == mine
        assert only(listed(ask, store, mine[: mine.index(key) + len(key)])).key == mine
    assert ask(store.evict(mine, "mine/1"))
    assert ask(store.look(mine)) == ()


@pytest.mark.parametrize("odd", ODD_TOKENS.values(), ids=ODD_TOKENS)
def test_a_token_may_hold_any_character(ask: Ask, store: Store, key: str, odd: str) -> None:
    """Rules 3, 4 and 15."""
    mine, next_ = odd.format(token()), odd.format(token())
    grant = granted(ask(store.claim(key, mine, 60, info={"n": 1})))
    assert granted(ask(store.claim(key, mine, 60, info={})))[:3] == grant[:3] == (key, mine, grant.fence)
    assert named(ask(ask.open().claim(key, next_, 60, info={}))) == mine
    assert granted(ask(store.renew(grant, 90))).token == mine
    assert isinstance(ask(store.renew(grant._replace(token=next_), 90)), Busy)
    renewed, seen, released, evicted = ask(
        store.batch([Renew(grant, 99), Look(key), Release(grant._replace(token=next_)), Evict(key, next_)])
    )
    assert (granted(renewed).token, only(looked(seen)).token, released, evicted) == (mine, mine, False, False)
    if store.capabilities.listing:
        assert [holder.token for holder in listed(ask, store, key)] == [mine]
    taken = granted(ask(store.claim(key, next_, 60, info={}, expect=mine)))
    assert who(ask, store, key) == next_
    assert ask(store.batch([Evict(key, mine), Release(taken)])) == (False, True)
    assert isinstance(ask(store.renew(taken, 60)), Gone)


@pytest.mark.parametrize("odd", ODD_TOKENS.values(), ids=ODD_TOKENS)
def test_a_token_of_any_characters_is_remembered(ask: Ask, store: Store, key: str, odd: str) -> None:
    """Rule 12: remembers_last."""
    needs(store, "remembers_last")
    mine, older = odd.format(token()), odd.format(token())
    assert ask(store.release(granted(ask(store.claim(key, mine, 60, info={}, state="queued"))), keep=60))
    gone = ask(store.claim(key, "next/1", 60, info={}, expect=older))
    assert isinstance(gone, Gone)
    assert gone[:2] == (mine, "queued")
    grant = granted(ask(store.claim(key, "next/1", 60, info={}, expect=mine)))
    assert grant.last == Last(mine, "queued")
    assert ask(store.release(grant, keep=60, last=Last(older, "running")))
    assert granted(ask(store.claim(key, "next/2", 60, info={}))).last == Last(older, "running")


def test_tokens_that_resemble_one_another_are_apart(ask: Ask, store: Store, key: str) -> None:
    """Rule 4."""
    alike = ["\ud800", "?", "\ufffd", "\\ud800", "%ED%A0%80", "\udced\udca0\udc80", "\xed\xa0\x80", "", "\0", " ", "-", "%2D", "--"]
    tokens = [f"{one}a/1" for one in alike]
    for mine in tokens:
        granted(ask(store.claim(f"{key}:{mine}", mine, 60, info={})))
        assert ask(store.batch([Evict(f"{key}:{mine}", other) for other in tokens if other != mine])) == (False,) * (len(tokens) - 1)
        assert who(ask, store, f"{key}:{mine}") == mine


def test_keys_that_resemble_one_another_are_apart(ask: Ask, store: Store, key: str) -> None:
    """Rule 7."""
    keys = [alike.format(key) for alike in ALIKE]
    grants = [granted(ask(store.claim(one, f"mine/{i}", 60, info={"i": i}))) for i, one in enumerate(keys)]
    if store.capabilities.slots:
        granted(ask(store.claim(key, "second/1", 60, info={}, slots=3)))
        granted(ask(store.claim(key, "third/1", 60, info={}, slots=3)))
    for i, one in enumerate(keys):
        holder = only(ask(store.look(one)))
        assert (holder.key, holder.token, holder.info) == (one, f"mine/{i}", {"i": i})
        refused(ask(store.claim(one, "other/1", 60, info={})))
    for i, grant in enumerate(grants):
        assert ask(store.release(grant))
        assert [only(ask(store.look(one))).token for one in keys[i + 1 : i + 4]] == [
            f"mine/{j}" for j in range(i + 1, min(i + 4, len(keys)))
        ]


def test_waiters_and_memories_of_one_key_are_nothing_to_another(ask: Ask, store: Store, key: str) -> None:
    """Rule 7."""
    kinds = [f"w:{key}", f"r:{key}", f"{key}:w", f"2:{key}", f"{key}\x1fnext"]
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    refused(ask(store.claim(key, "waiter/1", 60, info={}, will_wait=True)))
    grants = [granted(ask(store.claim(kind, "mine/1", 60, info={}, expect="third/1"))) for kind in kinds]
    assert ask(store.release(grant))
    for other in grants:
        assert granted(ask(store.renew(other, 90))).key == other.key
    assert [ask(store.release(other)) for other in grants] == [True] * len(kinds)
    granted(ask(store.claim(key, "other/1", 60, info={})))


@pytest.mark.parametrize("other", ["contract2", "contract-", "contract_", "Contract", "con", "contract:x", "contract%"])
def test_namespaces_never_meet(ask: Ask, store: Store, key: str, other: str) -> None:
    """Rule 7."""
    try:
        elsewhere = ask.open(namespace=other)
        theirs = granted(ask(elsewhere.claim(key, "theirs/1", 60, info={})))
    except ConfigError:
        return  # a namespace that the store can't take is refused, and meets nobody
    mine = granted(ask(store.claim(key, "mine/1", 60, info={})))
    for odd in (f"x:{key}", f"2{key}", f"{other}:{key}"):
        granted(ask(store.claim(odd, "mine/1", 60, info={})))
        granted(ask(elsewhere.claim(odd, "theirs/1", 60, info={})))
    assert (who(ask, store, key), who(ask, elsewhere, key)) == ("mine/1", "theirs/1")
    if store.capabilities.listing:
        assert [holder.token for holder in listed(ask, store, key)] == ["mine/1"]
        assert [holder.token for holder in listed(ask, elsewhere, key)] == ["theirs/1"]
    assert not ask(elsewhere.evict(key, "mine/1"))
    assert isinstance(ask(elsewhere.renew(mine, 900)), tuple)
    assert only(ask(store.look(key))).ttl < 70 + store.capabilities.late_by
    assert ask(elsewhere.release(theirs))
    assert who(ask, store, key) == "mine/1"


def big(bytes_: int) -> Info:
    """An info of about so many bytes."""
    return {"big": "x" * bytes_}


def test_an_info_up_to_the_limit_is_taken_and_one_beyond_it_is_refused(ask: Ask, store: Store, key: str) -> None:
    """Rules 9 and 12: max_record, as a bound."""
    limit = store.capabilities.max_record
    with pytest.raises(TooLarge) as caught:
        ask(store.claim(key, "mine/1", 60, info=big(limit + 1)))
    assert (caught.value.limit, caught.value.size > limit) == (limit, True)
    assert ask(store.look(key)) == ()
    fits = big(limit - 100)
    granted(ask(store.claim(key, "mine/1", 60, info=fits)))
    assert only(ask(store.look(key))).info == fits
    assert only(refused(ask(store.claim(key, "other/1", 60, info={}))).holders).info == fits


def test_an_info_that_is_too_large_renews_nothing(ask: Ask, store: Store, key: str) -> None:
    """Rule 9."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={"n": 1})))
    with pytest.raises(TooLarge):
        ask(store.renew(grant, 900, state="queued", info=big(store.capabilities.max_record + 1)))
    holder = only(ask(store.look(key)))
    assert (holder.state, holder.info, holder.ttl < 100 + store.capabilities.late_by) == ("running", {"n": 1}, True)


def test_a_record_of_a_newer_format_is_refused(ask: Ask, key: str) -> None:
    """Rule 10."""
    plant = offered(ask.subject.plant_newer, "plant_newer")
    place = offered(ask.subject.untouched, "untouched")()
    grant = granted(ask(ask.open(url=place.url, namespace=place.namespace).claim(key, "mine/1", 60, info={})))
    plant(place, key)
    fresh = ask.open(url=place.url, namespace=place.namespace)
    verbs: list[Callable[[], object]] = [
        lambda: ask(fresh.claim(key, "other/1", 60, info={})),
        lambda: ask(fresh.claim(key, "mine/1", 60, info={})),
        lambda: ask(fresh.claim(key, "other/1", 60, info={}, expect="mine/1")),
        lambda: ask(fresh.look(key)),
        lambda: ask(fresh.renew(grant, 60)),
        lambda: ask(fresh.release(grant)),
        lambda: ask(fresh.evict(key, "mine/1")),
    ]
    for verb in verbs:
        with pytest.raises(ConfigError, match=r"newer|version|upgrade"):
            verb()


def test_a_record_of_a_newer_format_keeps_no_other_line_out(ask: Ask, key: str) -> None:
    """Rules 10 and 15. Where the format is that of all records together, no line can be judged."""
    plant = offered(ask.subject.plant_newer, "plant_newer")
    place = offered(ask.subject.untouched, "untouched")()
    store = ask.open(url=place.url, namespace=place.namespace)
    newer, mine = (granted(ask(store.claim(name, "mine/1", 60, info={}))) for name in (key, f"{key}:mine"))
    plant(place, key)
    try:
        verdicts = ask(
            ask.open(url=place.url, namespace=place.namespace).batch([Look(key), Renew(mine, 900), Renew(newer, 900), Look(mine.key)])
        )
    except ConfigError:
        return
    assert [isinstance(verdict, StoreError) for verdict in verdicts] == [True, False, True, False]
    assert granted(verdicts[1]).ttl > 800


def test_an_operators_deletion_is_noticed_by_the_holder(ask: Ask, store: Store, key: str) -> None:
    """Rule 11."""
    delete = offered(ask.subject.delete, "delete")
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    delete(NAMESPACE, key, 0)
    assert ask(store.look(key)) == ()
    assert isinstance(gone := ask(store.renew(grant, 60, state="running", info={"n": 1})), Gone)
    assert gone[:2] == (None, None)
    assert not ask(store.release(grant))
    assert not ask(store.evict(key, "mine/1"))
    assert ask(store.look(key)) == ()


def test_an_operators_deletion_lets_the_next_one_in_with_a_larger_fence(ask: Ask, store: Store, key: str) -> None:
    """Rules 5 and 11."""
    delete = offered(ask.subject.delete, "delete")
    old = granted(ask(store.claim(key, "mine/1", 60, info={})))
    delete(NAMESPACE, key, 0)
    new = granted(ask(store.claim(key, "other/1", 60, info={}, expect="third/1")))
    assert new.last is None
    if store.capabilities.fence != "none":
        assert fence_of(new) > fence_of(old)
    assert named(ask(store.renew(old, 60))) == "other/1"


def test_an_operators_deletion_is_noticed_by_a_waiter(ask: Ask, store: Store, key: str) -> None:
    """Rule 11: within 2 s."""
    delete = offered(ask.subject.delete, "delete")
    ask(store.claim(key, "mine/1", 60, info={}))
    busy = refused(ask(store.claim(key, "waiter/1", 60, info={}, will_wait=True)))
    delete(NAMESPACE, key, 0)
    with at_most(2.5):
        if store.capabilities.push:
            ask(store.wait(key, busy.seen, within=0.3))
        granted(ask(store.claim(key, "waiter/1", 60, info={}, will_wait=True)))


def test_a_listing_heals_after_an_operators_deletion(ask: Ask, store: Store, key: str) -> None:
    """Rule 11."""
    delete = offered(ask.subject.delete, "delete")
    needs(store, "listing")
    for i in range(3):
        ask(store.claim(f"{key}:{i}", f"mine/{i}", 60, info={}))
    delete(NAMESPACE, f"{key}:1", 0)
    assert sorted(holder.key for holder in listed(ask, store, key, limit=2)) == [f"{key}:0", f"{key}:2"]
    ask(store.claim(f"{key}:1", "again/1", 60, info={}))
    assert len(listed(ask, store, key)) == 3


def test_an_operators_deletion_of_one_slot_leaves_the_others(ask: Ask, store: Store, key: str) -> None:
    """Rule 11."""
    delete = offered(ask.subject.delete, "delete")
    needs(store, "slots")
    grants = sorted((granted(ask(store.claim(key, f"{name}/1", 60, info={}, slots=3))) for name in "abc"), key=lambda grant: grant.slot)
    delete(NAMESPACE, key, 1)
    assert [holder.slot for holder in ask(store.look(key, slots=3))] == [0, 2]
    assert isinstance(ask(store.renew(grants[1], 60)), Gone)
    assert granted(ask(store.claim(key, "d/1", 60, info={}, slots=3))).slot == 1


def test_a_listing_heals_after_its_index_was_deleted(ask: Ask, store: Store, key: str) -> None:
    """Rule 11: at the next renewal; fences grow on."""
    delete_index = offered(ask.subject.delete_index, "delete_index")
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    delete_index(NAMESPACE, key)
    assert who(ask, store, key) == "mine/1"
    granted(ask(store.renew(grant, 60)))
    assert [holder.token for holder in listed(ask, store, key)] == ["mine/1"]
    delete_index(NAMESPACE, key)
    assert ask(store.release(grant))
    assert fence_of(ask(store.claim(key, "other/1", 60, info={}))) > fence_of(grant)


def test_whoever_reads_makes_nothing(ask: Ask, key: str) -> None:
    """Rule 11."""
    place = offered(ask.subject.untouched, "untouched")()
    store = ask.open(url=place.url, namespace=place.namespace)
    assert ask(store.ping()) > 0
    assert ask(store.look(key)) == ()
    if store.capabilities.listing:
        assert listed(ask, store, key) == []
    assert ask(store.batch([Look(key)])) == ((),)
    assert list(place.traces()) == []
    assert isinstance(ask(store.claim(key, "mine/1", 60, info={})), Grant)
    assert list(place.traces()) != []


def test_what_is_asked_of_a_place_where_nothing_was_written_has_an_answer(ask: Ask, key: str) -> None:
    """Rule 11."""
    place = offered(ask.subject.untouched, "untouched")()
    grant = granted(ask(ask.open().claim(key, "mine/1", 60, info={})))
    store = ask.open(url=place.url, namespace=place.namespace)
    assert ask(store.renew(grant, 60))[:2] == (None, None)
    assert not ask(store.release(grant))
    assert not ask(store.evict(key, "mine/1"))
    assert ask(store.cleanup()) == 0
    assert who(ask, ask.open(), key) == "mine/1"


def test_eight_may_write_first_at_once(ask: Ask, key: str) -> None:
    """Rule 11."""
    for _ in range(3):
        place = offered(ask.subject.untouched, "untouched")()
        stores = [ask.open(url=place.url, namespace=place.namespace) for _ in range(8)]
        answers = ask.racing([partial(store.claim, f"{key}:{i}", "mine/1", 60, info={}) for i, store in enumerate(stores)])
        assert all(isinstance(answer, Grant) for answer in answers)


def test_what_has_ended_disappears(ask: Ask, key: str) -> None:
    """Rule 8."""
    place = offered(ask.subject.untouched, "untouched")()
    store = ask.open(url=place.url, namespace=place.namespace)
    shortest = store.capabilities.shortest_ttl
    for made in range(400):
        grant = granted(ask(store.claim(f"{key}:{made}", token(), shortest, info={})))
        if made % 2:
            ask(store.release(grant, keep=shortest if made % 3 else 0))
        if made % 100 == 99:
            ended = ask(store.ping()) + shortest + store.capabilities.late_by + 0.02
            ask.until(partial(passed, ask, store, ended))
            ask(store.cleanup())
    assert len(place.traces()) <= 200


def passed(ask: Ask, store: Store, moment: float) -> bool:
    """Whether that moment of the server's is over."""
    return ask(store.ping()) > moment


def test_a_cleanup_leaves_holds_memories_and_fences(ask: Ask, key: str) -> None:
    """Rule 8."""
    place = offered(ask.subject.untouched, "untouched")()
    store = ask.open(url=place.url, namespace=place.namespace)
    held = granted(ask(store.claim(f"{key}:held", "mine/1", 60, info={})))
    queued = granted(ask(store.claim(f"{key}:queued", "mine/1", 60, info={}, state="queued")))
    ask(store.release(granted(ask(store.claim(f"{key}:remembered", "mine/1", 60, info={}))), keep=60))
    ended = granted(ask(store.claim(f"{key}:ended", "mine/1", store.capabilities.shortest_ttl, info={})))
    ask.until(lambda: not ask(store.look(f"{key}:ended")))
    assert ask(store.cleanup()) >= 0
    assert ask(store.cleanup()) == 0
    assert granted(ask(store.renew(held, 60))).fence == held.fence
    assert granted(ask(store.renew(queued, 60))).fence == queued.fence
    if store.capabilities.remembers_last:
        assert ask(store.claim(f"{key}:remembered", "other/1", 60, info={}, expect="third/1"))[:2] == ("mine/1", "running")
    needs_fences(store)
    assert fence_of(ask(store.claim(f"{key}:ended", "other/1", 60, info={}))) > fence_of(ended)
