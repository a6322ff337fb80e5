# ruff: noqa: PLR2004 - a number in a case is an example
"""What anybody may read: who holds a key, who holds which keys, what time it is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from soloist.errors import ConfigError
from soloist.testing._contract.asking import GRAIN, brief, granted, listed, needs, only, token

if TYPE_CHECKING:
    from soloist.contract import Store
    from soloist.testing._contract.asking import Ask


def hold(ask: Ask, store: Store, *keys: str) -> None:
    """Hold these keys for a while."""
    for key in keys:
        granted(ask(store.claim(key, token(), 60, info={})))


def keys_of(ask: Ask, store: Store, prefix: str, limit: int = 100) -> list[str]:
    """The keys of a listing, sorted."""
    return sorted(holder.key for holder in listed(ask, store, prefix, limit))


def test_nobody_holds_a_fresh_key(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    assert ask(store.look(key)) == ()
    assert ask(store.look(key, slots=4 if store.capabilities.slots else 1)) == ()


def test_seconds_left_count_down(ask: Ask, store: Store, key: str) -> None:
    """Rule 1."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    ask.until(lambda: ask(store.ping()) > grant.now + 0.1)
    assert only(ask(store.look(key))).ttl <= 59.9 + store.capabilities.late_by + GRAIN


def test_a_ping_tells_the_time_by_which_the_verbs_judge(ask: Ask, store: Store, key: str) -> None:
    """Rule 1."""
    before = ask(store.ping())
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    busy = ask(store.claim(key, "other/1", 60, info={}))
    renewed = granted(ask(store.renew(grant, 60)))
    after = ask(ask.open().ping())
    times = [before, grant.now, busy.now, renewed.now, after]
    assert all(earlier <= later + GRAIN for earlier, later in pairwise(times))
    assert after - before < 10


def test_a_listing_works_or_is_refused_as_declared(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: listing, both ways."""
    hold(ask, store, key)
    if store.capabilities.listing:
        assert keys_of(ask, store, key) == [key]
    else:
        with pytest.raises(ConfigError):
            ask(store.listing(key))


def test_a_listing_has_the_keys_that_begin_so_and_no_others(ask: Ask, store: Store, key: str) -> None:
    """Rule 7."""
    needs(store, "listing")
    ours = [f"{key}:a", f"{key}:b", f"{key}:b/c", f"{key}:"]
    hold(ask, store, *ours, key, f"{key};a", f"x{key}:a", f"{key.upper()}:A")
    assert keys_of(ask, ask.open(), f"{key}:") == sorted(ours)


def test_a_listing_of_nothing_is_empty(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "listing")
    assert listed(ask, store, key) == []


def test_a_listing_shows_the_whole_holder(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "listing")
    ask(store.claim(key, "mine/1", 60, info={"n": 1, "task": "é"}, state="queued"))
    listing, look = only(listed(ask, store, key)), only(ask(store.look(key)))
    assert listing._replace(ttl=0) == look._replace(ttl=0)
    assert abs(listing.ttl - look.ttl) < 5


@pytest.mark.parametrize(
    "wild", ["%", "_", "*", "?", "[a-z]", "\\", "'", '"', "{b}", "\n", "\0", ".*", "^", "-", "é", "\U0010ffff", "\x7f"]
)
def test_a_prefix_is_taken_literally(ask: Ask, store: Store, key: str, wild: str) -> None:
    """Rule 7."""
    needs(store, "listing")
    hold(ask, store, f"{key}{wild}1", f"{key}x1", f"{key}ab1")
    assert keys_of(ask, store, f"{key}{wild}") == [f"{key}{wild}1"]
    assert len(keys_of(ask, store, key)) == 3


@pytest.mark.parametrize("last", ["z", "~", "\x7f", "ÿ", "\uffff", "\U0010ffff", "\U0010ffff\U0010ffff"])
def test_a_prefix_finds_even_the_last_key_of_the_alphabet(ask: Ask, store: Store, key: str, last: str) -> None:
    """Rule 7."""
    needs(store, "listing")
    hold(ask, store, key + last)
    assert keys_of(ask, store, key) == [key + last]


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
def test_a_listing_goes_page_by_page(ask: Ask, store: Store, key: str, limit: int) -> None:
    """Rule 12."""
    needs(store, "listing")
    ours = [f"{key}:{i}" for i in range(7)]
    hold(ask, store, *ours)
    assert keys_of(ask, store, f"{key}:", limit) == ours


def test_a_hold_that_stands_all_the_while_is_on_one_page(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    needs(store, "listing")
    stable = [f"{key}:{i}5" for i in range(8)]
    hold(ask, store, *stable)
    coming = [granted(ask(store.claim(f"{key}:{i}0", token(), 60, info={}))) for i in range(4)]
    seen: list[str] = []
    cursor: str | None = None
    for i in range(200):
        page = ask(store.listing(f"{key}:", cursor, 2))
        seen += [holder.key for holder in page.holders]
        if (cursor := page.cursor) is None:
            break
        ask(store.release(coming[i % 4]))
        coming[i % 4] = granted(
            ask(store.claim(f"{key}:{i % 8}{i % 10}.", token(), 1 + store.capabilities.shortest_ttl, info={}, expect="third/1"))
        )
    assert cursor is None
    assert sorted(name for name in seen if name.endswith("5")) == stable


def test_a_listing_shows_holds_alone(ask: Ask, store: Store, key: str) -> None:
    """Rule 8."""
    needs(store, "listing")
    hold(ask, store, f"{key}:held")
    for name, keep in (("released", 0), ("remembered", 60)):
        ask(store.release(granted(ask(store.claim(f"{key}:{name}", token(), 60, info={}))), keep=keep))
    ask(store.claim(f"{key}:evicted", "mine/1", 60, info={}))
    ask(store.evict(f"{key}:evicted", "mine/1"))
    ask(store.claim(f"{key}:ended", token(), store.capabilities.shortest_ttl, info={}))
    ask.until_vacant(f"{key}:ended")
    assert keys_of(ask, store, key) == [f"{key}:held"]


def test_a_listing_follows_renewals(ask: Ask, store: Store, key: str) -> None:
    """Rule 11."""
    needs(store, "listing")
    lease = brief(store)
    grant = granted(ask(store.claim(key, "mine/1", lease, info={})))
    granted(ask(store.renew(grant, 60, state="queued", info={"n": 1})))
    ask.until(lambda: ask(store.ping()) > grant.now + lease + store.capabilities.late_by + 0.05)
    holder = only(listed(ask, store, key))
    assert (holder.state, holder.info) == ("queued", {"n": 1})
    assert holder.ttl > 50


def test_a_closed_store_opens_again(ask: Ask, store: Store, key: str) -> None:
    """Rule 12."""
    grant = granted(ask(store.claim(key, "mine/1", 60, info={})))
    ask(store.close())
    assert only(ask(store.look(key))).fence == grant.fence
    ask(store.close())
    ask(store.close())
    assert ask(store.release(grant))


def test_what_is_declared_is_sound(store: Store) -> None:
    """Rule 12."""
    declared = store.capabilities
    assert declared.fence in ("strict", "until restart", "none")
    assert 0 < declared.shortest_ttl <= 30 < declared.longest_ttl
    assert declared.late_by >= 0
    assert declared.max_record >= 1024
    assert 0 < declared.poll <= 2
    assert all((declared.linearizable, declared.failover, declared.needs))


def test_the_longest_and_the_shortest_lease_work(ask: Ask, store: Store, key: str) -> None:
    """Rule 12: shortest_ttl and longest_ttl, as bounds."""
    longest = store.capabilities.longest_ttl
    grant = granted(ask(store.claim(key, "mine/1", longest, info={})))
    assert only(ask(store.look(key))).ttl > longest - 60
    assert granted(ask(store.renew(grant, longest))).ttl > longest - 60
    assert ask(store.release(grant))
    ask(store.claim(key, "mine/2", store.capabilities.shortest_ttl, info={}))
    ask.until_vacant(key)
