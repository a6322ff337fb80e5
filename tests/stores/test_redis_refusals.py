"""Servers that refuse, and URLs that can't be used: what we say then, and that no password is in it."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

import pytest
import redis

from soloist._world import run
from soloist.contract import Grant, Look
from soloist.errors import ConfigError, StoreError, StoreUnavailable
from soloist.stores import open_store
from soloist.stores._redis.options import parse
from soloist.stores._redis.replies import Refusal, misfit
from tests.stores.redises import TTL, claim, eventually, natively
from tools.servers import free_port, redis_server

pytest_plugins = ("tests.stores.redis_fixtures",)

SECRET = "se/cr?et#1@:"


@pytest.mark.parametrize("aio", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("user", "words"), [("", "wants a password"), (":wrong-word@", "refused the user"), ("nobody:wrong-word@", "refused the user")]
)
def test_a_refused_password_is_told_and_not_shown(space, user, words, aio):
    with redis_server("--requirepass", SECRET) as own:
        url = f"redis://{user}127.0.0.1:{own.port}/0"
        store = open_store(url, space, aio=False)
        with pytest.raises(ConfigError, match=words) as caught:
            asyncio.run(natively(url, space)) if aio else claim(store)
        assert "wrong-word" not in f"{caught.value!r} {store!r} {caught.value.__cause__!r}"


def test_a_user_and_password_are_percent_decoded(space):
    with redis_server("--requirepass", SECRET) as own:
        store = open_store(f"redis://default:se%2Fcr%3Fet%231%40%3A@127.0.0.1:{own.port}/2", space, aio=False)
        assert isinstance(claim(store), Grant)
        run(store.close())


def test_a_replica_says_that_it_is_one(server, space):
    with redis_server("--replicaof", f"127.0.0.1 {server.port}") as replica:
        store = open_store(replica.url, space, aio=False)

        def in_step():
            with suppress(StoreError):
                run(store.look("k"))
                return True

        eventually(in_step, within=10)
        with pytest.raises(StoreUnavailable, match="read-only replica: use the URL of its primary"):
            claim(store)
        assert not store._wire._idle


def test_a_full_server_says_so_and_nothing_is_written(space):
    with redis_server("--maxmemory", "1") as own:
        store = open_store(own.url, space, aio=False)
        with pytest.raises(StoreUnavailable, match="raise maxmemory"):
            claim(store)
        assert run(store.look("k")) == ()
        run(store.close())


def test_a_hold_outlives_its_server_being_out_of_memory(full):
    cli, store = full
    grant, seen = claim(store, ttl=2), claim(store, "b/1", "seen", ttl=9)
    marked = claim(store, "c/1", "marked", ttl=9)
    assert not isinstance(claim(store, "d/1", "marked", will_wait=True), Grant)
    cli.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable, match="raise maxmemory"):
        claim(store, "e/1", "another")
    assert isinstance(run(store.renew(grant, TTL)), Grant)
    assert isinstance(run(store.renew(grant, TTL, state="queued", info={"x": 1})), Grant)
    assert isinstance(run(store.renew(seen, 1)), Grant)
    (held,) = run(store.look("k"))
    assert (held.state, held.info, held.ttl > 5) == ("queued", {"x": 1}, True)
    assert run(store.release(grant))
    assert run(store.release(seen, keep=9))
    assert run(store.release(marked))
    assert isinstance(run(store.wait("marked", 1.0, within=1)), Grant)


@pytest.fixture
def full(space):
    """A server of its own, which a test makes full, with a client and a store."""
    with redis_server() as own, closing(redis.Redis(port=own.port)) as cli:
        store = open_store(own.url, space, aio=False)
        yield cli, store
        run(store.close())


@pytest.mark.parametrize("aio", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("within", [1e9, 1e300])
def test_a_time_limit_that_no_socket_takes_is_as_good_as_none(server, space, within, aio):
    async def asked():
        store = open_store(server.url, space, aio=aio)
        grant = await store.claim("k", "a/1", TTL, info={}, within=within)
        (seen,) = await store.batch([Look("k")], within=within)
        assert [holder.token for holder in (*seen, *await store.look("k", within=within))] == ["a/1", "a/1"]
        assert await store.release(grant, within=within)
        await store.close()

    asyncio.run(asked()) if aio else run(asked())


def test_a_namespace_with_a_lone_surrogate_is_one_like_others(server, space):
    store = open_store(server.url, f"{space}\ud800", aio=False)
    claim(store)
    assert len(run(store.listing("")).holders) == 1


def test_a_cluster_is_refused(space):
    with redis_server("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as own:
        for aio_too in (False, True):
            with pytest.raises(ConfigError, match=r"is a Redis Cluster.* of its own$"):
                asyncio.run(natively(own.url, space)) if aio_too else claim(open_store(own.url, space, aio=False))


def test_a_server_without_a_free_connection_says_so(space):
    with redis_server("--maxclients", "1") as own, closing(redis.Redis(port=own.port)) as only:
        only.ping()
        with pytest.raises(StoreUnavailable):
            claim(open_store(own.url, space, aio=False))


def test_a_user_with_too_few_rights_is_told(server, cli, space):
    cli.acl_setuser("weak", enabled=True, passwords=["+weakword"], commands=["+evalsha", "+eval", "+time"], keys=["*"])
    store = open_store(f"redis://weak:weakword@127.0.0.1:{server.port}/0", space, aio=False)
    with pytest.raises(ConfigError, match="doesn't allow this user"):
        claim(store)
    run(store.close())


def test_the_documented_rights_suffice(server, cli, space):
    inside = "get set del pttl pexpireat zadd zrem zscore zcard zrangebyscore zremrangebyscore rpush lrem lpos blpop time eval evalsha"
    cli.acl_setuser("lock", enabled=True, passwords=["+lockword"], commands=[f"+{name}" for name in inside.split()], keys=[f"{space}:*"])
    store = open_store(f"redis://lock:lockword@127.0.0.1:{server.port}/0", space, aio=False)
    grant = claim(store)
    claim(store, "b/1", will_wait=True)
    assert run(store.renew(grant, 60)).ttl == 60
    assert run(store.release(grant, keep=1))
    assert run(store.listing("")).holders == ()
    assert run(store.wait("k", 1.0, within=0.2)) is None
    run(store.close())


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable, "still loading"),
        ("BUSY Redis is busy running a script.", StoreUnavailable, "SCRIPT KILL"),
        ("MISCONF Errors writing to the AOF file", StoreUnavailable, "its log"),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable, "min-replicas-to-write"),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable, "primary"),
        ("MOVED 3999 127.0.0.1:6381", ConfigError, "Cluster"),
        ("ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write", StoreUnavailable, "primary"),
        ("ERR DB index is out of range", ConfigError, "no database"),
        ("ERR unknown command 'EVALSHA'", ConfigError, "unknown command"),
    ],
)
def test_each_refusal_says_what_to_do(text, kind, words):
    meaning = Refusal(text).meaning("redis://h:1/0")
    assert type(meaning) is kind
    assert words in str(meaning)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ("redis_version:6.0.16\r\nredis_mode:standalone", "6.2"),
        ("redis_version:7.2.4\r\nredis_mode:sentinel", "Sentinel"),
        ("redis_version:7.2.4\r\nserver_mode:cluster", "Cluster"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:standalone", None),
        ("", None),
    ],
)
def test_a_server_that_will_not_do_is_refused_at_the_first_connection(info, words):
    reason = misfit(info, "redis://h:1/0")
    assert reason is None if words is None else words in str(reason)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://", None),
        ("redis://h", "redis://h:6379/0"),
        ("REDIS://h/3", "redis://h:6379/3"),
        ("redis://[::1]:7/1?client_name=x&socket_keepalive=yes", "redis://[::1]:7/1"),
        ("rediss://u:p@h?ssl_cert_reqs=none&ssl_min_version=TLSv1.3", "rediss://h:6379/0"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("unix://u:hunter2@/run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("redis://u:hunter2@h:port/0", None),
        ("redis://u:hun/ter2@h/0", None),
        ("redis://u:hun?ter2@h/0", None),
        ("redis://u:hun#ter2@h/0", None),
        ("redis://u:hunter2@h/zero", None),
        ("redis://u:hunter2@h/0/1", None),
        ("redis://u:hunter2@h/0?hunter2=@", None),
        ("redis://u:hunter2@h/0?decode_responses=1", None),
        ("redis://u:hunter2@h/0?ssl_cert_reqs=none", None),
        ("rediss://u:hunter2@h/0?ssl_ca_certs=/nowhere", None),
        ("unix://host/run/redis.sock", None),
        ("redis:h", None),
    ],
)
def test_a_url_is_read_or_refused_without_its_password(url, where):
    if where:
        options = parse(url)
        assert options.where == where
        assert "hunter2" not in repr(options)
        return
    with pytest.raises(ConfigError) as caught:
        parse(url)
    said = f"{caught.value} {caught.value.__cause__}"
    assert not [part for part in ("hunter", "hun", "ter2") if part in said]


def test_an_unknown_option_is_named_with_those_that_are_known():
    with pytest.raises(ConfigError, match=r"'socket_timeout'.*client_name"):
        parse("redis://h?socket_timeout=1")
