"""Bad input: what is refused, with which error, and what its message says. No password, no client library's error, nothing lost."""

import asyncio
import math
import os
import re
import sys
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from soloist import AsyncSoloist, ConfigError, MissingExtra, Soloist, SoloistError, StoreError
from tests.subjects import KINDS, SECRET, SHARED


class Blocking:
    """The blocking face, and what both are asked here."""

    def __init__(self, url, **options):
        self.solo = Soloist(url, **options)

    def done(self, outcome):
        return outcome

    def take(self, key, wait=None, *, limit=0, **options):
        lock = self.solo.semaphore(key, limit, **options) if limit else self.solo.lock(key, **options)
        hold = self.done(lock.acquire() if wait is None else lock.acquire(wait))
        fence = hold.fence
        self.done(hold.release())
        return fence

    def acquire(self, key, **options):
        return self.done(self.solo.lock(key).acquire(**options))

    def ask(self, name, *arguments, **options):
        return self.done(getattr(self.solo, name)(*arguments, **options))

    def close(self):
        self.done(self.solo.close())


class Aio(Blocking):
    """The asyncio face, asked from outside of its loop."""

    def __init__(self, url, **options):
        self.runner = asyncio.Runner()
        self.solo = AsyncSoloist(url, **options)

    def done(self, outcome):
        async def finish():
            return await outcome

        return self.runner.run(finish())

    def close(self):
        super().close()
        self.runner.close()


WORLDS = {"blocking": Blocking, "asyncio": Aio}


@pytest.fixture(params=WORLDS)
def world(request):
    return WORLDS[request.param]


class Case(NamedTuple):
    """What a user does, and what the message must say."""

    do: object
    says: tuple[str, ...]
    error: type[SoloistError] = ConfigError


def lock(key="k", **options):
    return lambda face: face.take(key, **options)


def asked(name, *arguments, **options):
    return lambda face: face.ask(name, *arguments, **options)


TIMES = {
    f"{name}={value!r}": Case(lock(**{name: value}), (f"{name}=", says))
    for name in ("lease", "wait", "min_hold", "max_hold")
    for value, says in {
        -1: "too short",
        math.nan: "a number of seconds, not float nan",
        True: "a number of seconds, not bool True",
        "30": "a number of seconds, not str '30'",
    }.items()
}
CASES = TIMES | {
    "lease=0": Case(lock(lease=0), ("lease=0", "more than 0")),
    "lease=inf": Case(lock(lease=math.inf), ("lease=", "infinite", "renewed")),
    "lease of a thousand years": Case(lock(lease=3.2e10), ("lease=3.2e+10", "too long", "longest lease")),
    "lease below the shortest": Case(lock(lease=1e-6), ("lease=1e-06", "too short for this store", "shortest lease is")),
    "lease=None": Case(lock(lease=None), ("lease=", "a number of seconds, not NoneType None")),
    "max_hold=0": Case(lock(max_hold=0), ("max_hold=0", "more than 0")),
    "min_hold=inf": Case(lock(min_hold=math.inf), ("min_hold=", "infinite")),
    "min_hold above max_hold": Case(lock(min_hold=9, max_hold=5), ("min_hold=9", "max_hold=5", "shorten it")),
    "wait=None": Case(lambda face: face.solo.lock("k", wait=None), ("wait=", "not NoneType None")),
    "a key that is an int": Case(lock(42), ("a key is a str, not int 42", "f'report:{id}'")),
    "a key that is bytes": Case(lock(b"k"), ("a key is a str, not bytes b'k'",)),
    "a key that is None": Case(lock(None), ("a key is a str, not NoneType None",)),
    "an empty key": Case(lock(""), ("a key can't be empty", "'report:42'")),
    "a lone surrogate": Case(lock("a\ud800"), (r"'a\ud800'", "lone surrogate at 1", "decode the text")),
    "timeout= of a lock": Case(lock(timeout=5), ("no timeout=", "lease=", "wait=")),
    "blocking= of a lock": Case(lock(blocking=False), ("no blocking=", "wait=0", "lease=")),
    "timeout= of a semaphore": Case(lock(limit=2, timeout=5), ("no timeout=", "lease=", "wait=")),
    "timeout= of acquire": Case(lambda face: face.acquire("k", timeout=5), ("acquire() has no timeout=", "lease=", "wait=")),
    "blocking= of acquire": Case(lambda face: face.acquire("k", blocking=False), ("acquire() has no blocking=", "wait=0")),
    "a negative wait of acquire": Case(lambda face: face.acquire("k", wait=-1), ("wait=-1 is too short",)),
    "a switch as a wait of acquire": Case(lambda face: face.acquire("k", wait=False), ("wait= is a number of seconds, not bool False",)),
    "an unknown option": Case(lock(ttl=5), ("a lock has no ttl=", "docstring")),
    "limit=0": Case(lock(limit=-1), ("limit=", "1 or more, not int -1")),
    "limit=10**30": Case(lock(limit=10**30), ("limit=1000", "too high", "10000 at most")),
    "lease=10**400": Case(lock(lease=10**400), ("lease=", "infinite")),
    "min_hold=-10**400": Case(lock(min_hold=-(10**400)), ("min_hold=-inf", "too short")),
    "limit=True": Case(lambda face: face.solo.semaphore("k", limit=True), ("limit=", "1 or more, not bool True")),
    "limit=1.5": Case(lock(limit=1.5), ("limit=", "1 or more, not float 1.5")),
    "renew=1": Case(lock(renew=1), ("renew= is True or False, not int 1",)),
    "if_store_down='ignore'": Case(lock(if_store_down="ignore"), ('"raise"', '"run"', "not str 'ignore'")),
    "on_lost='print'": Case(lock(on_lost="print"), ("on_lost= is a function", "not str 'print'")),
    "the holder of no key": Case(asked("holder", ""), ("a key can't be empty",)),
    "the holder of a number": Case(asked("holder", 42), ("a key is a str, not int 42",)),
    "holders by a number": Case(asked("holders", 42), ("prefix", "not int 42")),
    "holders by a lone surrogate": Case(asked("holders", "a\ud800"), ("lone surrogate at 1",)),
    "force_release of a number": Case(asked("force_release", 42), ("a key is a str, not int 42",)),
    "force_release with a fence that is text": Case(asked("force_release", "k", "7"), ("fence", "not str '7'")),
    "an extension by nothing": Case(lambda face: extend(face, 0), ("seconds=0", "more than 0")),
    "an extension by text": Case(lambda face: extend(face, "60"), ("seconds=", "not str '60'")),
}


def extend(face, seconds):
    hold = face.done(face.solo.lock("k").acquire())
    try:
        face.done(hold.extend(seconds))
    finally:
        assert face.done(hold.release()) is True  # it stands, and nothing is lost


def refused(case, face):
    """Do it; answers the error, once its type and its message are right."""
    with pytest.raises(SoloistError) as failed:
        case.do(face)
    error, said = failed.value, str(failed.value)
    assert type(error) is case.error, said
    for words in case.says:
        assert words in said
    assert SECRET not in said
    assert "{" not in said.replace("{id}", ""), "a message that wasn't filled in"
    return error


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_its_value_and_what_to_do(name, url, world):
    face = world(url)
    try:
        refused(CASES[name], face)
        assert face.take(f"after {name}:{os.getpid()}".encode("ascii", "replace").decode()) > 0
    finally:
        face.close()


URLS = {
    "unknown scheme": Case("mongo://localhost", ("'mongo'", "memory://", "sqlite://", "redis://")),
    "unknown scheme with a password": Case(f"mongo://me:{SECRET}@localhost", ("'mongo'", "redis://")),
    "no scheme": Case("localhost", ("''", "redis://")),
    "no scheme with a password": Case(f"me:{SECRET}@localhost", ("'me'", "redis://")),
    "empty": Case("", ("SOLOIST_URL", 'Soloist("sqlite:///soloist.db")', "one host")),
    "a number": Case(42, ("a store is named by a URL", "not by int")),
    "bytes": Case(f"redis://:{SECRET}@localhost".encode(), ("a store is named by a URL", "not by bytes")),
    "sqlite without a file": Case("sqlite://", ("names no file", "sqlite:///relative.db")),
    "sqlite in memory": Case("sqlite:///:memory:", ("exclude nobody", "memory://")),
    "sqlite with a host": Case("sqlite://host/x.db", ("sqlite:///relative.db",)),
    "sqlite with an option of another": Case("sqlite:///x.db?lease=5", ("not lease", "allow_network_fs=1")),
    "redis with a port that is none": Case(f"redis://:{SECRET}@localhost:port/0", ("redis://",)),
    "redis with a port out of range": Case(f"redis://:{SECRET}@localhost:99999/0", ("redis://",)),
    "redis with a database that is none": Case(f"redis://:{SECRET}@localhost/first", ("redis://",)),
    "redis with an unknown option": Case(f"redis://:{SECRET}@localhost/0?lease=5", ("lease",)),
    "redis with a bracket too many": Case(f"redis://:{SECRET}@[::1/0", ("redis://",)),
    "redis with a slash in its password": Case(f"redis://:{SECRET}/x@localhost/0", ("redis://", "percent-encode")),
    "a namespace that is empty": Case("namespace", ("namespace= is a short name", "not str ''")),
}


@pytest.mark.parametrize("name", URLS)
def test_a_url_that_cannot_be_used_is_refused_without_showing_its_password(name, world):
    case = URLS[name]
    if str(case.do).startswith("redis:"):
        pytest.importorskip("redis")
    options = {"namespace": ""} if case.do == "namespace" else {}
    refused(case._replace(do=lambda face: world(face, **options)), "memory://" if options else case.do)


@pytest.mark.parametrize(("name", "value"), [("store_timeout", 0), ("store_timeout", math.inf), ("store_timeout", "3"), ("namespace", 7)])
def test_a_clients_options_are_checked_where_it_is_made(name, value, world):
    with pytest.raises(ConfigError, match=f"{name}=") as failed:
        world("memory://", **{name: value})
    assert "dead holder" not in str(failed.value)


def test_without_a_url_there_is_no_default_that_would_exclude_nobody(world, monkeypatch):
    monkeypatch.delenv("SOLOIST_URL", raising=False)
    with pytest.raises(ConfigError, match=r'Soloist\("sqlite:///soloist.db"\).*one host.*SOLOIST_URL'):
        world(None)


def test_a_missing_client_library_names_the_extra(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    for name in [name for name in sys.modules if name.startswith(("redis.", "soloist.stores.redis", "soloist.stores._redis"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=re.escape("redis:// needs an extra: pip install 'soloist[redis]'")) as failed:
        world(f"redis://:{SECRET}@localhost")
    assert isinstance(failed.value, ImportError)
    assert SECRET not in str(failed.value)


ODD_KEYS = {
    "1,000 characters": "k" * 1000,
    "1,000 characters of four bytes": "\N{MUSICAL SYMBOL G CLEF}" * 1000,
    "NUL": "a\0b",
    "newlines": "a\r\nb",
    "braces": "{a}{b}}",
    "not ASCII": "müllers käse \N{HAIR SPACE}",
    "like a path": "../../etc/passwd",
    "like a pattern": "*?[a-z]%_",
    "a blank": " ",
    "like a URL": "redis://:x@y/0?a=b#c",
    "like a format": "%s %(key)s {key}",
}


@pytest.mark.parametrize("name", ODD_KEYS)
def test_odd_keys_work_and_come_back_as_they_are(name, url, world):
    face, odd = world(url, namespace=f"odd{os.getpid()}"), ODD_KEYS[name]
    try:
        hold = face.done(face.solo.lock(odd).acquire())
        assert face.ask("holder", odd).key == odd
        assert [holder.key for holder in face.ask("holders", odd)] == [odd]
        assert face.ask("holder", odd + "x") is None
        assert face.done(hold.release()) is True
    finally:
        face.close()


BROKEN = {f"{name}: {what}": broken for name, kind in KINDS.items() for what, broken in kind.BROKEN.items()}


@pytest.mark.parametrize("name", BROKEN)
def test_a_store_that_cannot_work_says_why_and_what_to_do(name, tmp_path, world, caplog):
    broken = BROKEN[name]
    with ExitStack() as stack:
        face = world(broken.make(tmp_path, stack), store_timeout=2)
        try:
            for _ in range(2):
                with pytest.raises(SoloistError) as failed:
                    face.take("k")
            error, said = failed.value, str(failed.value)
            assert isinstance(error, broken.error), (type(error), said)
            assert not isinstance(error, StoreError) or broken.error is not ConfigError
            for words in broken.says:
                assert words in said
            assert SECRET not in said + caplog.text
            assert "it goes on" not in caplog.text  # nothing that the keeper doesn't know
        finally:
            face.close()


@pytest.mark.parametrize("name", [name for name in BROKEN if "under our key" in name])
def test_one_key_that_cannot_be_read_costs_no_other_key(name, tmp_path, world, caplog):
    with ExitStack() as stack:
        face = world(BROKEN[name].make(tmp_path, stack))
        try:
            hold = face.done(face.solo.lock("other").acquire())
            with pytest.raises(ConfigError):
                face.take("k")
            assert face.take("third") > hold.fence or hold.fence
            assert face.done(hold.release()) is True
            assert "it goes on" not in caplog.text
        finally:
            face.close()


def test_every_store_that_processes_share_can_break():
    assert {name.partition(":")[0] for name in BROKEN} == set(SHARED)
