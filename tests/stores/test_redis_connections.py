"""The blocking wire: what is reused, what is closed, and when it gives up."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress

import pytest

from soloist._world import run
from soloist.contract import Busy, Grant, Look
from soloist.errors import ConfigError, OutcomeUnknown, StoreError, StoreUnavailable
from soloist.stores import open_store
from tests.stores.redises import TTL, beside, claim, natively
from tools.binaries import ServerNotHadError
from tools.servers import free_port, redis_server

pytest_plugins = ("tests.stores.redis_fixtures",)


def test_an_interrupted_call_leaves_no_connection_behind(store, monkeypatch):
    run(store.ping())
    (link,) = store._wire._idle

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(link, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(store.ping())
    assert not store._wire._idle
    assert run(store.ping()) > 0


def test_after_a_restart_every_idle_connection_goes_at_the_first_failure(space):
    with redis_server() as own:
        store = open_store(own.url, space, aio=False)
        gate = threading.Barrier(5)
        asked = store._wire.ask

        async def together(request, within):
            gate.wait()
            return await asked(request, within)

        store._wire.ask = together
        for thread in [beside(lambda: run(store.ping()))[0] for _ in range(5)]:
            thread.join()
        store._wire.ask = asked
        assert len(store._wire._idle) > 1
        own.stop()
        own.start()
        with pytest.raises(StoreError):
            run(store.ping())
        assert not store._wire._idle
        assert isinstance(claim(store), Grant)
        run(store.close())


def test_a_silent_server_is_given_up_in_time(server, store):
    grant = claim(store)
    seen = claim(store, "w/1", will_wait=True).seen
    assert run(store.wait("nobody", seen, within=0.6)) is None  # its connection is there for the next
    asyncio.run(_silent(server, store, grant, seen))


async def _silent(server, store, grant, seen):
    native = open_store(server.url, store._buckets[0].decode().partition(":")[0], aio=True)
    await native.ping()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for ask, within in [
            (lambda: run(store.wait("k", seen, within=0.3)), 0.3),
            (lambda: run(store.renew(grant, TTL, within=0.2)), 0.2),
            (lambda: run(store.ping(within=0.2)), 0.2),
        ]:
            began = time.monotonic()
            with suppress(StoreError):
                ask()
            assert time.monotonic() - began < within + 0.15
        for error in (OutcomeUnknown, StoreUnavailable):  # the second one has no connection any more
            began = time.monotonic()
            with pytest.raises(error, match=r"store_timeout= .*this attempt had 0\.2 s"):
                await native.renew(grant, TTL, within=0.2)
            assert time.monotonic() - began < 0.35
    finally:
        os.kill(server.pid, signal.SIGCONT)
    await native.close()


def test_a_forked_child_opens_a_connection_of_its_own(store, cli):
    grant = claim(store)
    before = list(store._wire._idle)
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os._exit(0 if not store._wire._idle and isinstance(claim(store, "b/1"), Busy) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(store._wire._idle) == before
    assert run(store.release(grant))


def test_nothing_is_opened_before_it_is_asked_something():
    open_store("redis://127.0.0.1:1/0", "so", aio=False)
    open_store("redis://127.0.0.1:1/0", "so", aio=True)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://no-such-host.invalid/0", "unix:///nowhere/redis.sock"])
@pytest.mark.parametrize("aio", [False, True], ids=["blocking", "asyncio"])
def test_a_server_that_is_not_there_is_unavailable(url, aio):
    store = open_store(url, "so", aio=aio)
    with pytest.raises(StoreUnavailable, match=r"can't be reached: .*server runs.* URL is right.* store_timeout= .*this attempt had 3 s"):
        asyncio.run(natively(url, "so")) if aio else claim(store)
    verdicts = asyncio.run(_batched(store)) if aio else run(store.batch([Look("k"), Look("k2")]))
    assert [type(verdict) for verdict in verdicts] == [StoreUnavailable, StoreUnavailable]


async def _batched(store):
    return await store.batch([Look("k"), Look("k2")])


def test_a_unix_socket_serves_too(server, space):
    store = open_store(f"unix://{server.unix_path}?db=3", space, aio=False)
    assert isinstance(claim(store), Grant)
    assert isinstance(asyncio.run(natively(f"unix://{server.unix_path}?db=3", space)), Busy)
    run(store.close())


def test_tls_is_checked_and_serves(tmp_path, space):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    extra = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(["openssl", *make, *extra], check=True, capture_output=True)
    port = free_port()
    files = ("--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(cert))
    try:
        context = redis_server("--tls-port", str(port), *files, "--tls-auth-clients", "no")
        with context:
            url = f"rediss://localhost:{port}/0"
            trusting = open_store(f"{url}?ssl_ca_certs={cert}", space, aio=False)
            assert isinstance(claim(trusting), Grant)
            run(trusting.close())
            assert isinstance(asyncio.run(natively(f"{url}?ssl_ca_certs={cert}", space)), Busy)
            with pytest.raises(ConfigError, match="ssl_ca_certs"):
                claim(open_store(url, space, aio=False))
            with pytest.raises(ConfigError, match="ssl_ca_certs"):
                asyncio.run(natively(url, space))
    except ServerNotHadError as error:
        pytest.skip(f"this server has no TLS: {error}")


def test_a_store_that_was_closed_opens_again(store):
    assert isinstance(claim(store), Grant)
    run(store.close())
    assert not store._wire._idle
    assert isinstance(claim(store, "b/1"), Busy)
