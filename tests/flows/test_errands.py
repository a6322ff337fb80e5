"""What a keeper does besides renewing: it evicts what was abandoned, and protects what runs without protection."""

import pytest

from soloist._flows.asking import deadline
from soloist._flows.renewing import FORGOTTEN, RETRY, Book, evict_due, protect_due, settle, tend
from soloist._world import run
from soloist.contract import Evict
from soloist.errors import ConfigError, OutcomeUnknown
from soloist.events import Protected
from tests.flows.keeping import book_of, degraded, kept_since, renewed
from tests.flows.scripted import SILENT, UNREACHABLE, Scripted, ScriptedWorld, busy, grant


def test_what_was_abandoned_is_evicted_at_once():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(), Book()
    book.abandon(world.time, "k", "mine", 3, 0)
    store = Scripted(world, batch=[(False,)])
    run(evict_due(world, store, book, 3))
    assert store.calls[0].lines == (Evict("k", "mine", 3),)
    assert book.abandoned == {}


def test_what_may_still_land_is_evicted_again_once_a_reply_is_later_than_its_limit():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0, server=1000.0), Book()
    book.abandon(world.time, "k", "mine", 1, 1002.0)
    store = Scripted(world, batch=[(False,), (True,)], ping=[1001.9, 1002.0, 1002.1])
    for _ in range(9):
        if book.abandoned:
            run(evict_due(world, store, book, 3))
            world.time = min(max(world.time, book.due()), 200.0)
    assert [call.verb for call in store.calls] == ["batch", "ping", "ping", "ping", "batch"]
    assert book.abandoned == {}


def test_an_eviction_is_not_repeated_before_its_limit_can_have_passed():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0, server=1000.0), Book()
    book.abandon(world.time, "k", "mine", 1, 1002.0)
    run(evict_due(world, Scripted(world, batch=[(True,)]), book, 3))
    assert 102.0 <= book.due() < 102.1


def test_an_eviction_without_an_answer_is_repeated_after_a_second():
    """Rule 5 of renewing."""
    for answer in (SILENT, (OutcomeUnknown("no answer"),)):
        world, book = ScriptedWorld(now=100.0), Book()
        book.abandon(world.time, "k", "mine", 1, 0)
        run(evict_due(world, Scripted(world, batch=[answer]), book, 3))
        assert book.due() == 100.0 + RETRY


def test_a_second_eviction_without_an_answer_is_repeated_after_a_second():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0, server=1000.0), Book()
    book.abandon(world.time, "k", "mine", 1, 1002.0)
    store = Scripted(world, batch=[(True,), (OutcomeUnknown("no answer"),)], ping=[1003.0])
    run(evict_due(world, store, book, 3))
    world.time = book.due()
    run(evict_due(world, store, book, 3))
    assert book.due() == pytest.approx(world.time + RETRY)


def test_evictions_that_a_wrong_setting_prevents_are_repeated_after_a_second_and_no_unknown_error():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0), Book()
    book.abandon(world.time, "k", "mine", 1, 0)
    run(evict_due(world, Scripted(world, batch=[ConfigError("the password was changed")]), book, 3))
    assert book.due() == 100.0 + RETRY


@pytest.mark.parametrize("answer", [SILENT, (OutcomeUnknown("no answer"),)])
def test_what_could_not_be_evicted_for_an_hour_is_forgotten(answer):
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0), Book()
    book.abandon(world.time, "k", "mine", 1, 0)
    world.time += FORGOTTEN
    run(evict_due(world, Scripted(world, batch=[answer]), book, 3))
    assert book.abandoned == {}


def test_a_token_that_is_abandoned_twice_is_evicted_after_the_later_limit():
    """Rule 5 of renewing."""
    book = Book()
    book.abandon(100.0, "k", "mine", 1, 1005.0)
    book.abandon(101.0, "k", "mine", 1, 0)
    assert book.abandoned["k", "mine"].not_after == 1005.0


def test_a_token_that_is_abandoned_anew_while_it_is_evicted_is_not_forgotten():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(), Book()
    book.abandon(world.time, "k", "mine", 1, 0)

    def meanwhile(_):
        book.abandon(world.time, "k", "mine", 1, 1005.0)
        return (True,)

    run(evict_due(world, Scripted(world, batch=[meanwhile]), book, 3))
    assert book.abandoned["k", "mine"].not_after == 1005.0


def test_what_waits_for_its_limit_costs_no_request_but_a_question_for_the_time():
    """Rule 5 of renewing."""
    world, book = ScriptedWorld(now=100.0, server=1000.0), Book()
    book.abandon(world.time, "k", "mine", 1, 1002.0)
    store = Scripted(world, batch=[(True,)], ping=[1001.0])
    run(evict_due(world, store, book, 3))
    world.time = book.due()
    run(evict_due(world, store, book, 3))
    assert [call.verb for call in store.calls] == ["batch", "ping"]


def test_an_eviction_never_keeps_a_renewal_waiting():
    """Rule 1 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, lease=1.2, due=100.4)
    book = book_of(kept)
    for n in range(5):
        book.abandon(world.time, f"k{n}", f"t{n}", 1, 0)
    run(tend(world, Scripted(world, batch=[world.never]), book, patience=3))
    assert world.time <= 100.4


def test_a_run_without_protection_claims_its_key_as_soon_as_the_store_answers():
    """Rule 6 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = degraded(world, info={"pid": 1}, slots=3)
    book = book_of(kept)
    store = Scripted(world, claim=[UNREACHABLE, UNREACHABLE, grant(fence=9)])
    run(protect_due(world, store, book, 3))
    assert (kept.grant, kept.due) == (None, 100.0 + RETRY)
    world.time, world.down = kept.due, None
    run(protect_due(world, store, book, 3))
    assert world.told == [Protected("k", 9)]
    assert (kept.fence, kept.place.deadline, kept.due) == (9, deadline(101.0, 30), 111.0)
    assert (store.calls[-1].token, store.calls[-1].info, store.calls[-1].slots) == ("mine", {"pid": 1}, 3)


def test_a_run_without_protection_whose_key_is_somebody_elses_goes_on_asking():
    """Rule 6 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = degraded(world)
    run(protect_due(world, Scripted(world, claim=[busy()]), book_of(kept), 3))
    assert (kept.grant, kept.place.lost, kept.due, world.told) == (None, None, 100.0 + RETRY, [])


def test_a_run_without_protection_asks_no_more_once_its_longest_time_is_over():
    """Rule 6 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = degraded(world, ends=99.0)
    run(tend(world, Scripted(world), book_of(kept), patience=3))
    assert kept.due > 100.0


@pytest.mark.parametrize("answers", [[grant()], [SILENT] * 9])
def test_a_run_without_protection_that_ends_meanwhile_leaves_nothing_behind(answers):
    """Rule 6 of renewing."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    kept = degraded(world)

    def meanwhile(_):
        kept.leaving = True
        return answers.pop(0)

    run(protect_due(world, Scripted(world, claim=[meanwhile] * 9), book_of(kept), 3))
    assert [(key, token) for key, token, _, _ in world.abandoned] == [("k", "mine")]


def test_what_must_be_done_before_the_end_is_done_at_once_and_nothing_else():
    world = ScriptedWorld(now=100.0)
    once, ours = kept_since(world, once=True, token="once", due=100.02), kept_since(world, token="ours", due=200.0)
    book = book_of(once, ours)
    book.abandon(world.time, "k", "gone", 1, 0)
    store = Scripted(world, batch=[renewed, (True,)])
    run(settle(world, store, book, patience=1))
    assert [[type(line).__name__ for line in call.lines] for call in store.calls] == [["Renew"], ["Evict"]]
    assert not book.is_unsettled


def test_one_token_may_be_abandoned_under_two_keys():
    """A task's token serves its run slot and its unique claim."""
    world, book = ScriptedWorld(), Book()
    for key in ("k", "k\x1fnext"):
        book.abandon(world.time, key, "mine", 1, 0)
    store = Scripted(world, batch=[(True, True)])
    run(evict_due(world, store, book, 3))
    assert sorted(line.key for line in store.calls[0].lines) == ["k", "k\x1fnext"]
