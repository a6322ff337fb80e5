"""Asking the store: what is asked again, for how long, and what may still land afterwards."""

import pytest

from soloist._flows.asking import ATTEMPTS, Attempts, Wish, claim_surely, deadline, server_now, twice
from soloist._world import run
from soloist.contract import Gone, Late
from soloist.errors import ConfigError, OutcomeUnknown, StoreUnavailable, TooLarge
from tests.flows.scripted import SILENT, UNREACHABLE, Scripted, ScriptedWorld, at_every_step, busy, grant

WISH = Wish("k", 30, {"pid": 1})


def ask(world, store, mine, *, wish=WISH, within=3.0, will_wait=False):
    return run(claim_surely(world, store, wish, mine, within=within, will_wait=will_wait))


def test_a_claim_whose_reply_was_lost_is_asked_again_with_the_same_token_and_kept():
    """Rule 1 of asking."""
    world = ScriptedWorld()
    store = Scripted(world, claim=[SILENT, grant()])
    assert ask(world, store, Attempts("mine")) == grant()
    assert [call.token for call in store.calls] == ["mine", "mine"]


def test_a_first_repetition_comes_at_once_and_the_next_after_a_growing_pause():
    """Rule 1 of asking."""
    world = ScriptedWorld(chance=0.0)
    ask(world, Scripted(world, claim=[SILENT, SILENT, SILENT, grant()]), Attempts("mine"))
    assert world.naps == [0.025, 0.05]


def test_a_claim_says_all_that_is_wished_in_every_attempt():
    """Rule 1 of asking."""
    world = ScriptedWorld()
    store = Scripted(world, claim=[SILENT, busy()])
    wish = Wish("k", 30, {"pid": 1}, slots=1, state="publishing", expect="former")
    ask(world, store, Attempts("mine"), wish=wish)
    for call in store.calls:
        assert (call.key, call.ttl, call.info, call.state, call.expect, call.slots) == ("k", 30, {"pid": 1}, "publishing", "former", 1)
        assert call.will_wait is False


def test_every_claim_carries_the_server_time_after_which_it_must_not_land():
    """Rule 2 of asking."""
    world = ScriptedWorld(now=100.0, server=1000.0)
    store = Scripted(world, claim=[world.after(1, SILENT), grant()])
    ask(world, store, Attempts("mine"), within=3.0)
    assert [call.not_after for call in store.calls] == [1000.0 + 1.5, 1001.0 + 2.0]


def test_the_servers_time_is_asked_for_once_if_nothing_is_known_of_it():
    """Rule 2 of asking."""
    world = ScriptedWorld(now=100.0, server=None)
    store = Scripted(world, ping=[5000.0], claim=[SILENT, grant(now=5000.0)])
    ask(world, store, Attempts("mine"))
    assert [call.verb for call in store.calls] == ["ping", "claim", "claim"]
    assert store.of("claim")[0].not_after == 5000.0 + 1.5


def test_a_claim_that_came_too_late_is_sent_again_with_a_later_limit():
    """Rule 2 of asking."""
    world = ScriptedWorld()
    store = Scripted(world, claim=[world.after(1, Late(1001.6)), grant()])
    ask(world, store, Attempts("mine"))
    first, second = store.calls
    assert second.not_after > first.not_after


def test_a_store_that_finds_every_claim_late_is_given_up():
    """Rule 2 of asking."""
    world = ScriptedWorld()
    store = Scripted(world, claim=[Late(2000.0)] * ATTEMPTS)
    with pytest.raises(OutcomeUnknown, match="'k'"):
        ask(world, store, Attempts("mine"))


def test_a_store_that_cannot_be_reached_is_tried_once_more():
    """Rule 3 of asking."""
    world = ScriptedWorld()
    assert ask(world, Scripted(world, claim=[UNREACHABLE, grant()]), Attempts("mine")) == grant()
    assert world.failures == []


def test_a_store_that_cannot_be_reached_twice_is_down():
    """Rule 3 of asking."""
    world = ScriptedWorld()
    with pytest.raises(StoreUnavailable):
        ask(world, Scripted(world, claim=[UNREACHABLE, UNREACHABLE]), Attempts("mine"))
    assert [str(error) for error in world.failures] == [str(UNREACHABLE)]


def test_a_store_that_is_down_is_not_asked():
    """Rule 3 of asking."""
    world = ScriptedWorld()
    world.failed(UNREACHABLE)
    store = Scripted(world)
    with pytest.raises(StoreUnavailable, match="not asked again"):
        ask(world, store, Attempts("mine"))
    with pytest.raises(StoreUnavailable, match="not asked again"):
        run(twice(world, store.ping, within=1))
    assert store.calls == []


def test_a_store_that_never_answers_is_down_too():
    """Rule 3 of asking."""
    world = ScriptedWorld()
    with pytest.raises(OutcomeUnknown):
        ask(world, Scripted(world, claim=[world.never] * 9), Attempts("mine"))
    assert [type(error) for error in world.failures] == [OutcomeUnknown]


def test_a_claim_that_may_have_landed_is_never_called_surely_not_done():
    """Rules 1 and 3 of asking."""
    world, mine = ScriptedWorld(), Attempts("mine")
    with pytest.raises(OutcomeUnknown):
        ask(world, Scripted(world, claim=[SILENT, UNREACHABLE, UNREACHABLE]), mine)
    assert mine.may_land_until > 0


@pytest.mark.parametrize("silence", ["never", "unreachable"])
@pytest.mark.parametrize("server", [1000.0, None])
def test_all_attempts_at_a_silent_store_take_no_longer_than_allowed(silence, server):
    """Rule 4 of asking."""
    world = ScriptedWorld(now=100.0, server=server)
    silent = [getattr(world, silence)] * 20
    store = Scripted(world, ping=silent[:], claim=silent[:])
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        ask(world, store, Attempts("mine"), within=3.0)
    assert len(store.calls) >= 2
    assert world.time <= 103.0 + 1e-6


def test_a_slow_first_reply_about_the_time_leaves_the_claim_no_more_than_the_rest():
    """Rule 4 of asking."""
    world = ScriptedWorld(now=100.0, server=None)
    store = Scripted(world, ping=[world.never, world.after(1.4, 5000.0)], claim=[world.never] * 9)
    with pytest.raises(OutcomeUnknown):
        ask(world, store, Attempts("mine"), within=3.0)
    assert world.time <= 103.0 + 1e-6


def test_two_attempts_fit_into_the_time_that_is_allowed():
    """Rule 4 of asking."""
    world = ScriptedWorld()
    assert ask(world, Scripted(world, claim=[world.never, grant()]), Attempts("mine"), within=3.0) == grant()


def test_a_deadline_counts_from_before_the_request_was_sent_and_allows_for_drift():
    """Rule 5 of asking."""
    world, mine = ScriptedWorld(now=100.0), Attempts("mine")
    ask(world, Scripted(world, claim=[world.after(1, grant())]), mine)
    assert mine.sent == 100.0
    assert 100 + 30 * 0.998 < deadline(mine.sent, 30) < 100 + 30 * 0.9995


def test_the_deadline_of_a_repeated_claim_counts_from_its_last_attempt():
    """Rule 5 of asking."""
    world, mine = ScriptedWorld(now=100.0), Attempts("mine")
    ask(world, Scripted(world, claim=[world.after(1, SILENT), grant()]), mine)
    assert mine.sent == 101.0


def test_a_grant_that_comes_after_its_own_deadline_is_asked_for_again():
    """Rule 5 of asking."""
    world = ScriptedWorld(now=100.0)
    store = Scripted(world, claim=[world.after(0.4, grant(ttl=0.3)), grant(ttl=0.3, fence=8)])
    assert ask(world, store, Attempts("mine"), wish=Wish("k", 0.3, {})).fence == 8
    assert [call.at for call in store.calls] == [100.0, 100.4]


@pytest.mark.parametrize("answer", [grant(), busy(), Gone("other", "queued", 1000.0)])
def test_after_an_answer_nothing_can_land_any_more(answer):
    mine = Attempts("mine")
    world = ScriptedWorld()
    assert ask(world, Scripted(world, claim=[answer]), mine) == answer
    assert mine.may_land_until == 0


def test_an_attempt_without_an_answer_may_land_until_its_limit_even_if_a_later_one_is_answered():
    world, mine = ScriptedWorld(now=100.0, server=1000.0), Attempts("mine")
    ask(world, Scripted(world, claim=[SILENT, grant()]), mine, within=3.0)
    assert mine.may_land_until == 1001.5


@pytest.mark.parametrize("error", [UNREACHABLE, TooLarge("too large", size=2, limit=1), ConfigError("wrong password")])
def test_what_was_surely_refused_cannot_land(error):
    world, mine = ScriptedWorld(), Attempts("mine")
    with pytest.raises(type(error)):
        ask(world, Scripted(world, claim=[error, error]), mine)
    assert mine.may_land_until == 0


def test_an_interrupted_claim_may_land_until_its_limit():
    def make():
        nonlocal mine
        mine = Attempts("mine")
        world = ScriptedWorld(now=100.0, server=None)
        store = Scripted(world, suspends=True, ping=[1000.0], claim=[SILENT, SILENT, grant()])
        return claim_surely(world, store, WISH, mine, within=3.0)

    mine = Attempts("mine")
    seen = []
    assert at_every_step(make, lambda step: seen.append(mine.may_land_until)) == 4
    assert seen[0] == 0  # nothing but a ping was sent
    assert all(until >= 1001.5 for until in seen[1:])


def test_what_does_no_harm_when_done_twice_is_asked_twice():
    world = ScriptedWorld()
    store = Scripted(world, ping=[SILENT, 5.0])
    assert run(twice(world, store.ping, within=3)) == (5.0, True)
    assert run(twice(world, Scripted(world, ping=[UNREACHABLE, 5.0]).ping, within=3)) == (5.0, False)


def test_asking_twice_takes_no_longer_than_allowed_and_says_that_the_store_is_down():
    world = ScriptedWorld(now=100.0)
    with pytest.raises(OutcomeUnknown):
        run(twice(world, Scripted(world, ping=[world.never, world.never]).ping, within=3))
    assert world.time <= 103.0 + 1e-6
    assert world.failures


def test_an_unknown_first_and_an_unreachable_second_attempt_end_unknown():
    """Rule 3 of asking."""
    world = ScriptedWorld()
    with pytest.raises(OutcomeUnknown):
        run(twice(world, Scripted(world, ping=[SILENT, UNREACHABLE]).ping, within=3))


def test_the_servers_time_is_estimated_from_what_is_known():
    world = ScriptedWorld(now=100.0, server=1000.0)
    assert run(server_now(world, Scripted(world), within=1)) == 1000.0
