"""Staying the holder: when renewals are due, what their answers mean, and what becomes of what was abandoned."""

import math

import pytest

from soloist._flows.asking import deadline
from soloist._flows.renewing import RETRY, Book, Local, lose, tend
from soloist._world import run
from soloist.contract import Gone, Renew
from soloist.errors import ConfigError, OutcomeUnknown
from soloist.events import Lost
from tests.flows.keeping import book_of, kept_since, renew, renewed
from tests.flows.scripted import SILENT, UNREACHABLE, Scripted, ScriptedWorld, busy, grant, holder


def test_a_renewal_is_due_again_at_a_third_of_the_lease():
    """Rule 1 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    store = Scripted(world, batch=[world.after(1, renewed)])
    renew(world, store, book_of(kept))
    assert (kept.due, kept.place.deadline) == (110.0, deadline(100.0, 30))


def test_nothing_is_sent_before_anything_is_due():
    """Rule 1 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, due=100.1)
    run(tend(world, Scripted(world), book_of(kept), patience=3))
    assert book_of(kept).due() == 100.1
    assert Book().due() == math.inf


def test_all_holds_that_are_due_are_renewed_in_one_batch():
    """Rule 1 of renewing."""
    world = ScriptedWorld()
    all_kept = [kept_since(world, token=f"t{n}", key=f"k{n}") for n in range(5)]
    store = Scripted(world, batch=[renewed])
    renew(world, store, book_of(*all_kept))
    assert store.calls[0].lines == tuple(Renew(grant(f"t{n}", key=f"k{n}"), 30, None, None) for n in range(5))


def test_holds_that_were_taken_one_after_another_are_soon_renewed_together():
    """Rule 1 of renewing."""
    world = ScriptedWorld(now=100.0)
    all_kept = [kept_since(world, token=f"t{n}", key=f"k{n}", due=100.0 + n / 10) for n in range(10)]
    store = Scripted(world, batch=[renewed] * 20)
    book = book_of(*all_kept)
    while world.time < 125:
        renew(world, store, book)
        world.time = book.due()
    assert len(store.calls) <= 4


def test_an_attempt_takes_a_sixth_of_the_shortest_lease_at_most():
    """Rule 1 of renewing."""
    world = ScriptedWorld()
    store = Scripted(world, batch=[renewed])
    renew(world, store, book_of(kept_since(world, lease=1.2), kept_since(world, token="short", lease=0.6)))
    assert store.calls[0].within == pytest.approx(0.1)


def test_two_silent_attempts_fit_before_the_deadline():
    """Rules 1 and 2 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, lease=3.0, due=101.0)
    store = Scripted(world, batch=[world.never] * 9)
    book = book_of(kept)
    world.time = 101.0
    while kept.place.lost is None:
        renew(world, store, book)
        world.time = max(world.time, book.due())
    assert len(store.calls) >= 2


def test_two_silent_attempts_fit_before_the_deadline_of_a_hold_that_was_handed_on():
    """Rules 1 and 2 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, due=100.1, anonymous=True, place=Local(100.8))
    store = Scripted(world, batch=[world.never] * 9)
    book = book_of(kept)
    world.time = 100.1
    while kept.place.lost is None and world.time < 200:
        renew(world, store, book)
        world.time = max(world.time, book.due())
    assert len([call for call in store.calls if call.at < 100.8]) >= 2


@pytest.mark.parametrize("error", [SILENT, UNREACHABLE])
def test_an_attempt_without_an_answer_is_repeated_and_the_hold_stands(error):
    """Rule 2 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    book = book_of(kept)
    store = Scripted(world, batch=[error, renewed])
    renew(world, store, book)
    assert (kept.place.lost, kept.due) == (None, 100.0 + RETRY)
    world.time = kept.due
    renew(world, store, book)
    assert kept.place.deadline == deadline(101.0, 30)


def test_a_hold_without_an_answer_until_its_deadline_is_lost():
    """Rule 2 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    book = book_of(kept)
    store = Scripted(world, batch=[SILENT] * 40)
    while book.kept:
        renew(world, store, book)
        world.time = min(book.due(), 200.0)
    assert world.told == [Lost("k", 7, "unknown")]
    assert world.time == 200.0


def test_no_attempt_is_lost_on_a_hold_whose_deadline_has_passed():
    """Rule 2 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    world.time = kept.place.deadline  # this process stood still
    renew(world, Scripted(world), book_of(kept))
    assert kept.place.lost == "unknown"


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (busy(holder("theirs")), "taken"),
        (Gone("theirs", "running", 1000.0), "taken"),
        (Gone("mine", "running", 1000.0), "vanished"),
        (Gone(None, None, 1000.0), "vanished"),
    ],
)
def test_not_yours_is_lost_at_once_and_never_claimed_again(verdict, why):
    """Rule 3 of renewing."""
    world = ScriptedWorld()
    kept, seen = kept_since(world), []
    kept.on_lost = seen.append
    book = book_of(kept)
    store = Scripted(world, batch=[(verdict,)])
    renew(world, store, book)
    run(tend(world, store, book, patience=3))
    assert (kept.place.lost, book.kept, seen, world.told) == (why, {}, [why], [Lost("k", 7, why)])
    assert [call.verb for call in store.calls] == ["batch"]


def test_each_hold_of_a_batch_is_judged_apart():
    """Rule 4 of renewing."""
    world = ScriptedWorld(now=100.0)
    ours, taken, unsure = (kept_since(world, token=name) for name in ("ours", "taken", "unsure"))
    book = book_of(ours, taken, unsure)
    store = Scripted(world, batch=[(grant("ours"), busy(), OutcomeUnknown("no answer"))])
    renew(world, store, book)
    assert list(book.kept) == [("k", "ours"), ("k", "unsure")]
    assert (ours.due, taken.place.lost, unsure.due) == (110.0, "taken", 101.0)


def test_a_hold_that_is_being_given_back_is_judged_no_more():
    """Rule 4 of renewing."""
    world = ScriptedWorld()
    kept = kept_since(world)

    def meanwhile(_):
        kept.leaving = True
        return (Gone(None, None, 1000.0),)

    renew(world, Scripted(world, batch=[meanwhile]), book_of(kept))
    assert (kept.place.lost, world.told) == (None, [])


def test_an_error_of_the_settings_is_no_verdict_and_is_not_repeated_without_a_pause():
    """Rules 2 and 4 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    renew(world, Scripted(world, batch=[ConfigError("the password was changed")]), book_of(kept))
    assert (kept.place.lost, kept.due) == (None, 100.0 + RETRY)
    assert [str(error) for error in world.failures] == ["the password was changed"]


def test_a_store_that_cannot_be_reached_for_any_hold_is_down():
    world = ScriptedWorld()
    renew(world, Scripted(world, batch=[UNREACHABLE]), book_of(kept_since(world)))
    assert len(world.failures) == 1


def test_a_hold_whose_renewal_is_off_is_never_renewed_and_lost_at_its_deadline():
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, renewed=False)
    book = book_of(kept)
    renew(world, Scripted(world), book)
    assert kept.due == kept.place.deadline
    world.time = kept.due
    renew(world, Scripted(world), book)
    assert world.told == [Lost("k", 7, "unknown")]


def test_a_hold_is_renewed_until_its_longest_time_and_no_further():
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, ends=100.0 + 45)
    book = book_of(kept)
    store = Scripted(world, batch=[renewed] * 99)
    while book.kept:
        renew(world, store, book)
        world.time = min(book.due(), 1000.0)
        assert kept.place.deadline <= 145.0
    assert kept.place.deadline == pytest.approx(145.0, abs=0.1)
    assert len(store.calls) <= 5  # it doesn't creep towards the end in ever smaller steps
    assert min(call.within for call in store.calls) > 1


def test_a_deadline_is_never_brought_nearer():
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, place=Local(700.0))
    renew(world, Scripted(world, batch=[renewed]), book_of(kept))
    assert kept.place.deadline == 700.0


def test_a_renewal_sets_the_state_that_is_wanted_once():
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, turn_into="queued")
    store = Scripted(world, batch=[SILENT, renewed, renewed])
    book = book_of(kept)
    for _ in range(3):
        renew(world, store, book)
        world.time = kept.due
    assert [call.lines[0].state for call in store.calls] == ["queued", "queued", None]


def test_a_state_that_is_wanted_while_another_renewal_is_under_way_is_set_by_the_next():
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)

    def meanwhile(call):
        kept.turn_into = "running"
        return renewed(call)

    store = Scripted(world, batch=[meanwhile, renewed])
    renew(world, store, book_of(kept))
    world.time = kept.due
    renew(world, store, book_of(kept))
    assert [call.lines[0].state for call in store.calls] == [None, "running"]


def test_the_first_renewal_of_a_hold_that_was_handed_on_brings_the_full_lease_and_our_info():
    """Rule 4 of locking."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, anonymous=True, info={"pid": 1}, place=Local(100.9))
    store = Scripted(world, batch=[renewed, renewed])
    renew(world, store, book_of(kept))
    world.time = kept.due
    renew(world, store, book_of(kept))
    assert [(call.lines[0].ttl, call.lines[0].info) for call in store.calls] == [(30, {"pid": 1}), (30, None)]


def test_a_loss_is_told_once_whoever_sees_it_first():
    """Rule 7 of renewing."""
    world = ScriptedWorld()
    kept, seen = kept_since(world), []
    kept.on_lost = seen.append
    lose(world, kept, "unknown")
    lose(world, kept, "taken")
    assert (world.told, seen, kept.place.lost) == ([Lost("k", 7, "unknown")], ["unknown"], "unknown")


def test_a_loss_that_another_process_wrote_into_the_place_is_told():
    """Rule 7 of renewing."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, place=Local(130.0, lost="taken"))
    book = book_of(kept)
    renew(world, Scripted(world), book)
    assert (book.kept, world.told) == ({}, [Lost("k", 7, "taken")])


def test_what_is_renewed_once_is_then_nobodys_here():
    """A publisher's claim becomes `queued`; from then on its grant travels with the message."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, once=True, turn_into="queued")
    store, book = Scripted(world, batch=[renewed]), book_of(kept)
    renew(world, store, book)
    assert (store.calls[0].lines[0].state, book.kept) == ("queued", {})


@pytest.mark.parametrize("verdict", [busy(), Gone(None, None, 1000.0), Gone("other", "running", 1000.0)])
def test_what_was_to_be_renewed_once_and_went_on_already_is_no_loss(verdict):
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, once=True)
    book = book_of(kept)
    renew(world, Scripted(world, batch=[(verdict,)]), book)
    assert (book.kept, world.told) == ({}, [])


def test_a_renewal_that_is_sent_once_is_repeated_until_it_is_answered():
    world = ScriptedWorld(now=100.0)
    book = book_of(kept_since(world, once=True))
    renew(world, Scripted(world, batch=[(OutcomeUnknown("no answer"),)]), book)
    assert len(book.kept) == 1


def test_a_claim_that_lapsed_before_its_only_renewal_is_no_loss():
    world = ScriptedWorld(now=100.0)
    book = book_of(kept_since(world, once=True, place=Local(99.0)))
    renew(world, Scripted(world), book)
    assert (book.kept, world.told) == ({}, [])


def test_whoever_renews_without_knowing_the_fence_learns_it():
    """A worker's parent renews for its child by key and token."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world, grant=grant(fence=None))
    renew(world, Scripted(world, batch=[(grant(fence=9),)]), book_of(kept))
    assert (kept.fence, kept.place.lost) == (9, None)


def test_a_renewal_that_met_another_fence_is_a_loss():
    """Rule 3 of renewing. Ours had vanished, and a late claim of ours took the key anew."""
    world = ScriptedWorld(now=100.0)
    kept = kept_since(world)
    renew(world, Scripted(world, batch=[(grant(fence=9),)]), book_of(kept))
    assert kept.place.lost == "vanished"


def test_a_short_lease_does_not_share_a_batch_with_thousands_of_long_ones():
    """Its sixth is too short a time for them."""
    world = ScriptedWorld(now=100.0)
    short = kept_since(world, token="short", lease=0.6)
    many = [kept_since(world, token=f"t{n}", lease=30.0) for n in range(3)]
    store = Scripted(world, batch=[renewed, renewed])
    renew(world, store, book_of(*many, short))
    assert [len(call.lines) for call in store.calls] == [1, 3]
    assert store.calls[0].within == pytest.approx(0.1)
