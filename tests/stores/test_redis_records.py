"""What lies in Redis: records that an operator can read, an index that heals, scripts that come back."""

from __future__ import annotations

import time
from zlib import crc32

import pytest

from soloist._world import run
from soloist.contract import Evict, Gone, Grant, Look, Renew
from soloist.errors import ConfigError, StoreUnavailable
from soloist.stores import open_store
from soloist.stores._redis.scripts import CLAIM, _packed, pack
from tests.stores.redises import TTL, bucket, claim, eventually, record

pytest_plugins = ("tests.stores.redis_fixtures",)


def test_an_operator_reads_a_lock_by_get_and_ttl(store, cli, space):
    grant = claim(store, info={"host": "w 1", "pid": 7})
    assert cli.get(record(space)) == f'1 r {grant.fence} a/1 {{"host":"w 1","pid":7}}'
    assert 29_000 < cli.pttl(record(space)) <= TTL * 1000 + 2


def test_an_operator_may_delete_a_lock(store, cli, space):
    grant = claim(store)
    cli.delete(record(space))
    assert run(store.renew(grant, TTL)) == Gone(None, None, pytest.approx(time.time(), abs=60))
    assert claim(store, "b/1").fence > grant.fence


def test_an_operator_may_take_the_expiry_away_until_the_next_renewal(store, cli, space):
    grant = claim(store)
    cli.persist(record(space))
    assert run(store.look("k"))[0].ttl == float("inf")
    run(store.renew(grant, TTL))
    assert 0 < cli.pttl(record(space)) <= TTL * 1000 + 2


def test_a_lease_ends_no_millisecond_early(store):
    grant = claim(store, ttl=0.2)
    while run(store.look("k")):
        now = run(store.ping())
    assert run(store.ping()) >= grant.now + 0.2
    assert now < grant.now + 0.3


def test_the_end_of_a_lease_is_rounded_up_to_a_millisecond(store, cli, space):
    for number in range(5):
        grant = claim(store, key=f"k{number}", ttl=30.0004)
        assert cli.zscore(bucket(space, f"k{number}"), f"0:k{number}") >= (grant.now + 30.0004) * 1000 - 0.001


def test_a_released_key_leaves_the_counter_of_its_bucket_and_nothing_else(store, cli, space):
    run(store.release(claim(store)))
    assert cli.keys(f"{space}:*") == [bucket(space)]
    assert cli.zrange(bucket(space), 0, -1) == [""]


@pytest.mark.parametrize("token", ["a b/1", "-a/1", "%/1", "é\n/1", "\x00/1", "a/t%20/2"])
def test_a_token_of_any_characters_is_one_word_of_the_record(store, cli, space, token):
    grant = claim(store, token, info={"x": 1})
    assert len(cli.get(record(space)).split(" ")) == 5
    assert run(store.look("k"))[0].token == token
    run(store.release(grant, keep=9))
    assert claim(store, "x/1", expect="y/1").last == token


def test_keys_of_all_kinds_never_meet(store):
    keys = ["k", ":k", "2:k", "w:k", "1:w:k", "{00}", "}:k", ""]
    for number, key in enumerate(keys):
        claim(store, f"o{number}/1", key)
    for number, key in enumerate(keys):
        assert [holder.token for holder in run(store.look(key))] == [f"o{number}/1"]
    assert isinstance(claim(store, "s/1", "k", slots=3), Grant)
    assert len(run(store.listing("")).holders) == len(keys) + 1


def test_namespaces_never_meet(server, cli, space):
    names = [space, f"{space}:", f"{space}:{{00}}", f"{space}{{x}}", f"{space}%7Bx%7D", f"{space} ", f"{space}/é"]
    stores = [open_store(server.url, name, aio=False) for name in names]
    for number, one in enumerate(stores):
        assert isinstance(claim(one, f"o{number}/1"), Grant)
    assert [run(one.look("k"))[0].token for one in stores] == [f"o{number}/1" for number in range(len(names))]
    assert all(name.count("{") == 1 for name in cli.scan_iter(f"{space}*", count=1000))


@pytest.mark.parametrize(("kind", "value"), [("rpush", "x"), ("set", "somebody's"), ("set", "")])
def test_something_else_under_our_key_is_named(store, cli, space, kind, value):
    getattr(cli, kind)(record(space), value)
    for verb in (store.claim("k", "a/1", TTL, info={}), store.look("k"), store.evict("k", "a/1")):
        with pytest.raises(ConfigError, match=r"isn't a lock.*delete it") as caught:
            run(verb)
        assert repr(record(space)) in str(caught.value)


def test_something_else_in_the_place_of_the_index_is_named_and_nothing_is_written(store, cli, space):
    cli.set(bucket(space), "x")
    with pytest.raises(ConfigError) as caught:
        claim(store)
    assert repr(bucket(space)) in str(caught.value)
    assert cli.get(record(space)) is None


def test_something_else_under_one_key_keeps_no_other_line_out(store, cli, space):
    grant = claim(store, key="other")
    cli.set(record(space), "x")
    verdicts = run(store.batch([Look("k"), Renew(grant, TTL), Evict("k", "x/1")]))
    assert [type(verdict) for verdict in verdicts] == [StoreUnavailable, Grant, StoreUnavailable]


def test_a_newer_format_is_refused(store, cli, space):
    cli.set(record(space), "2 r whatever")
    with pytest.raises(ConfigError, match="newer version of Soloist") as caught:
        claim(store)
    assert record(space) in str(caught.value)


def test_what_ended_is_swept_by_a_listing(store, cli, space):
    claim(store, ttl=0.1)
    claim(store, "b/1", "k2", ttl=TTL)
    cli.zadd(bucket(space), {"0:never": (time.time() + 60) * 1000, "0:k": 1})
    eventually(lambda: not run(store.look("k")))
    assert run(store.listing("another prefix")).holders == ()
    assert cli.zrange(bucket(space), 0, -1) == ["", "0:never"]
    assert [holder.key for holder in run(store.listing("")).holders] == ["k2"]
    assert cli.zrange(bucket(space), 0, -1) == [""]


def test_what_ended_is_swept_by_claims(store, cli, space):
    cli.zadd(bucket(space), {f"0:{number}": 1 for number in range(50)})
    for number in range(400):
        claim(store, f"a/{number}", expect=f"a/{number - 1}")
        if cli.zcard(bucket(space)) == 2:
            break
    assert sorted(cli.zrange(bucket(space), 0, -1)) == ["", "0:k"]


def test_a_renewal_brings_a_deleted_index_back(store, cli, space):
    grant = claim(store)
    cli.delete(bucket(space))
    run(store.renew(grant, TTL))
    assert [holder.token for holder in run(store.listing("")).holders] == ["a/1"]
    assert cli.zscore(bucket(space), "") == -grant.fence


def test_fences_grow_past_a_counter_that_is_ahead_of_the_clock(store, cli, space):
    ahead = int((time.time() + 3600) * 1e6)
    cli.zadd(bucket(space), {"": -ahead})
    assert claim(store).fence == ahead + 1
    assert claim(store, "b/1", expect="a/1").fence == ahead + 2


def test_a_listing_never_walks_the_keyspace(store, cli):
    for number in range(30):
        claim(store, f"a{number}/1", f"list:{number}")
    cli.config_resetstat()
    found, cursor = [], ""
    while cursor is not None:
        page = run(store.listing("list:", cursor or None, limit=7))
        assert len(page.holders) <= 7
        found += [holder.key for holder in page.holders]
        cursor = page.cursor
    assert sorted(found) == sorted(f"list:{number}" for number in range(30))
    assert not {"cmdstat_scan", "cmdstat_keys"} & set(cli.info("commandstats"))


def test_a_full_bucket_is_paged(store):
    keys = [key for number in range(6000) if crc32((key := f"p{number}").encode()) & 255 == 7]
    for key in keys:
        claim(store, f"{key}/1", key)
    found, cursor = [], ""
    while cursor is not None:
        page = run(store.listing("p", cursor or None, limit=4))
        found += [holder.key for holder in page.holders]
        cursor = page.cursor
    assert sorted(found) == sorted(keys)
    assert len(keys) > 8


def test_a_forgotten_script_is_sent_again_once(store, cli):
    grant = claim(store)
    cli.script_flush()
    cli.config_resetstat()
    assert run(store.release(grant))
    assert cli.info("commandstats")["cmdstat_eval"]["calls"] == 1
    claim(store, "b/1", "k2")
    assert [type(verdict) for verdict in run(store.batch([Look("k"), Evict("k2", "b/1"), Look("k2")]))] == [tuple, bool, tuple]


def test_both_packers_write_the_same():
    command = (b"EVALSHA", CLAIM.sha, 1, b"so:{00}", "kéy", 12, "", "\x00")
    assert pack(command) == _packed(command)


def test_a_claim_and_a_release_take_one_trip_each(store, cli):
    run(store.release(claim(store)))
    cli.config_resetstat()
    run(store.release(claim(store)))
    scripts_calls = {"zscore", "zadd", "zrem", "set", "get", "del", "time", "zremrangebyscore"}
    others = {name.removeprefix("cmdstat_") for name in cli.info("commandstats")} - scripts_calls
    assert others == {"evalsha", "config|resetstat"}
    assert cli.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
