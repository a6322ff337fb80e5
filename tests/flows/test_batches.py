"""What the contract itself decides: a batch that is composed of single verbs, and whose token it is."""

import time

import pytest

from soloist._world import run
from soloist.contract import Evict, Last, Look, Release, Renew, Store, owner
from soloist.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from tests.flows.scripted import SILENT, Scripted, ScriptedWorld, busy, grant, holder


class Composed(Scripted):
    """A store that has no batch of its own."""

    batch = Store.batch


def test_each_line_of_a_batch_is_the_verb_that_it_names():
    store = Composed(ScriptedWorld(), renew=[grant()], release=[True], evict=[False], look=[(holder(),)])
    lines = [Renew(grant(), 30, "queued", {"pid": 1}), Release(grant(), 5, Last("t", "queued")), Evict("k", "t", 3), Look("k", 2)]
    assert run(store.batch(lines, within=3)) == (grant(), True, False, (holder(),))
    renewed, released, evicted, looked = store.calls
    assert (renewed.grant, renewed.ttl, renewed.state, renewed.info) == (grant(), 30, "queued", {"pid": 1})
    assert (released.grant, released.keep, released.last) == (grant(), 5, Last("t", "queued"))
    assert (evicted.key, evicted.token, evicted.slots) == ("k", "t", 3)
    assert (looked.key, looked.slots) == ("k", 2)


@pytest.mark.parametrize(
    ("error", "kind"), [(SILENT, OutcomeUnknown), (StoreUnavailable("down"), StoreUnavailable), (ConfigError("newer"), StoreUnavailable)]
)
def test_a_line_that_fails_keeps_no_other_out(error, kind):
    store = Composed(ScriptedWorld(), renew=[grant(), error, busy()])
    first, second, third = run(store.batch([Renew(grant(), 30)] * 3, within=3))
    assert (first, third) == (grant(), busy())
    assert type(second) is kind


def test_all_lines_of_a_batch_share_its_time():
    def slow(_):
        time.sleep(0.02)
        return True

    store = Composed(ScriptedWorld(), evict=[slow] * 3)
    verdicts = run(store.batch([Evict("k", "t")] * 3, within=0.03))
    assert verdicts[0] is True
    assert isinstance(verdicts[2], StoreUnavailable)
    assert len(store.calls) == 2


@pytest.mark.parametrize(
    ("token", "whose"), [("fjord/1", "fjord"), ("a/task/id/5.0/x", "a/task/id"), ("bare", "bare"), ("task/publication/nonce", "task")]
)
def test_a_tokens_owner_is_what_stands_before_its_last_parts(token, whose):
    assert owner(token) == whose
