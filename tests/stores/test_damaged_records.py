"""A damaged or foreign record is named with what to do about it, and keeps nothing else out."""

from __future__ import annotations

import pytest

from soloist._world import run
from soloist.contract import Evict, Grant, Look, Renew
from soloist.errors import ConfigError, StoreUnavailable
from tests.stores.redises import TTL, bucket, claim, record
from tests.stores.sqlites import claimed, execute

pytest_plugins = ("tests.stores.redis_fixtures",)

UNFRAMED = [b"1 ", b"1 hello", b"1 r zz", b"1 x 1763500800000123 a/1", b"1 r 12 a/1", b"1 r 1763500800000123 "]
FRAMED = [
    b"1 r 1763500800000123 a/1 nojson",
    b"1 r 1763500800000123 a/1 5",
    b"1 r 1763500800000123 a/1 " + b"[" * 50_000,
    b"1 r 1763500800000123 a/\xff\xfe",
    b"1 r 1763500800000123 a/%ff",
]
NAMED = r"isn't a lock of Soloist's, or is a damaged one.*delete it"


def short(value):
    return repr(value[:30] if isinstance(value, bytes) else value)


@pytest.mark.parametrize("value", UNFRAMED + FRAMED, ids=short)
def test_a_damaged_record_in_redis_is_named(store, cli, space, value):
    cli.set(record(space), value)
    for verb in (store.claim("k", "b/1", TTL, info={}), store.look("k"), store.renew(Grant("k", "b/1", 1, None, 0, TTL, 0), TTL)):
        with pytest.raises(ConfigError, match=NAMED) as caught:
            run(verb)
        assert repr(record(space)) in str(caught.value)


@pytest.mark.parametrize("value", UNFRAMED + FRAMED, ids=short)
def test_a_damaged_record_in_redis_keeps_no_other_line_out(store, cli, space, value):
    grant = claim(store, key="other")
    cli.set(record(space), value)
    verdicts = run(store.batch([Look("k"), Renew(grant, TTL), Renew(Grant("k", "b/1", 1, None, 0, TTL, 0), TTL)]))
    assert [type(verdict) for verdict in verdicts] == [StoreUnavailable, Grant, StoreUnavailable]
    assert repr(record(space)) in str(verdicts[0])


@pytest.mark.parametrize(("value", "shown"), [*((value, False) for value in UNFRAMED), *((value, True) for value in FRAMED)], ids=short)
def test_a_listing_in_redis_shows_what_of_a_damaged_record_can_be_read(store, cli, space, value, shown):
    claim(store)
    claim(store, key="other")
    cli.set(record(space), value)
    found = {holder.key: holder for holder in run(store.listing("")).holders}
    assert sorted(found) == (["k", "other"] if shown else ["other"])
    if shown:
        assert (found["k"].fence, found["k"].info) == (1763500800000123, {})
        assert found["k"].token.startswith("a/")


def test_a_vacancy_in_redis_with_a_damaged_memory_can_be_taken(store, cli, space):
    cli.set(record(space), b"1 r 1763500800000123 -a/\xff nojson")
    grant = claim(store)
    assert grant.last.token == r"a/\xff"


def test_a_mark_that_was_cut_off_is_left_anew(store, cli, space):
    cli.set(record(space), "1 R 1763500800000123 a/1", px=9000)
    assert claim(store, "b/1", will_wait=True).holders[0].token == "a/1"
    assert len(cli.get(record(space)).split()) == 5


def test_an_index_of_another_type_is_named_by_a_listing(store, cli, space):
    cli.set(bucket(space), "x")
    with pytest.raises(ConfigError) as caught:
        run(store.listing(""))
    assert repr(bucket(space)) in str(caught.value)


def test_an_index_of_another_type_keeps_no_hold_from_being_renewed_and_given_back(store, cli, space):
    grant = claim(store, ttl=5)
    cli.delete(bucket(space))
    cli.set(bucket(space), "x")
    assert isinstance(run(store.renew(grant, TTL)), Grant)
    assert cli.ttl(record(space)) > 5
    assert run(store.release(grant))
    assert run(store.look("k")) == ()


def test_somebody_elses_entry_among_the_batons_is_nobodys_grant(store, cli, space):
    cli.rpush(f"{bucket(space)}w:k", b"\xff hello")
    assert run(store.wait("k", 1.0, within=1)) is None


@pytest.fixture
def row(path, opened):
    """A store and a hold of `k`, whose row is damaged by the statement."""
    store = opened(path)
    claimed(store, "k")

    def damaged(change):
        execute(path, f"update soloist_lock set {change} where key = 'k'")  # noqa: S608 - the cases below
        return store

    return damaged


CHANGES = [
    "info = ''",
    "info = 'nojson'",
    "info = '5'",
    "info = cast(x'ff' as text)",
    "info = printf('%.*c', 50000, '[')",
    "fence = 'x'",
    "state = 'odd'",
    "token = cast(x'ff' as text)",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_row_in_sqlite_is_named(row, change):
    store = row(change)
    for verb in (store.claim("k", "b/1", TTL, info={}), store.look("k"), store.renew(Grant("k", "b/1", 1, None, 0, TTL, 0), TTL)):
        with pytest.raises(ConfigError, match=NAMED) as caught:
            run(verb)
        assert "the row of 'k' (slot 0)" in str(caught.value)


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_row_in_sqlite_keeps_no_other_line_out(row, change):
    store = row(change)
    grant = claimed(store, "other")
    verdicts = run(store.batch([Look("k"), Renew(grant, TTL), Evict("other", "x/1")]))
    assert [type(verdict) for verdict in verdicts] == [StoreUnavailable, Grant, bool]


@pytest.mark.parametrize("change", CHANGES)
def test_a_listing_in_sqlite_shows_what_of_a_damaged_row_can_be_read(row, change):
    store = row(change)
    claimed(store, "other")
    damaged, whole = run(store.listing("")).holders
    assert (damaged.key, damaged.info, whole.key) == ("k", {}, "other")
    assert damaged.token == (r"\xff" if change.startswith("token") else "mine/1")


def test_a_vacancy_in_sqlite_with_a_damaged_memory_can_be_taken(path, opened):
    store = opened(path)
    run(store.release(claimed(store, "k"), keep=TTL))
    execute(path, "update soloist_lock set last = cast(x'ff' as text)")
    assert claimed(store, "k").last.token == r"\xff"
