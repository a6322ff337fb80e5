"""Locks as their users write them, on every store."""

import gc
import inspect
import math
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from soloist import AlreadyHeldHere, ConfigError, LockLost, NotAcquired, OutcomeUnknown, Soloist, StoreUnavailable
from soloist.events import Acquired, CallbackFailed, Dropped, ForceReleased, LimitsDiffer, Lost, Refused, Released, ReleaseFailed
from tests.locks.conftest import until


def test_a_with_block_holds_the_key_and_gives_it_back(solo, key):
    with solo.lock(key, lease=30) as hold:
        assert solo.holder(key).fence == hold.fence
        hold.check()
    assert solo.holder(key) is None


def test_a_with_block_gives_the_key_back_when_its_body_raises(solo, key):
    with pytest.raises(ZeroDivisionError), solo.lock(key):
        raise ZeroDivisionError
    assert solo.holder(key) is None


def test_a_held_key_is_refused_at_once_and_its_holder_named(solo, url, key):
    with Soloist(url).lock(key), pytest.raises(NotAcquired) as refused, ThreadPoolExecutor(1) as other:
        other.submit(solo.lock(key).__enter__).result()
    assert refused.value.holder.key == key
    assert refused.value.holder.info["pid"]
    assert "pass wait= to wait" in str(refused.value)


def in_another_thread(function, *arguments):
    with ThreadPoolExecutor(1) as other:
        return other.submit(function, *arguments).result()


def test_acquire_answers_none_while_another_thread_has_the_key(solo, key):
    with solo.lock(key):
        assert in_another_thread(solo.lock(key).acquire) is None
        assert in_another_thread(solo.lock(key).acquire, 0.05) is None


def test_acquire_answers_a_hold_that_is_released_once(solo, key):
    hold = solo.lock(key).acquire()
    assert hold is not None
    assert hold.release() is True
    assert hold.release() is False
    assert solo.holder(key) is None


@pytest.mark.parametrize("wait", [10, math.inf])
def test_a_waiter_gets_the_key_when_it_is_released(solo, key, wait):
    hold = solo.lock(key).acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(solo.lock(key).acquire, wait)
        time.sleep(0.1)
        assert not waiting.done()
        hold.release()
        later = waiting.result(5)
    assert later.fence > hold.fence
    later.release()


def test_waiting_is_bounded_by_the_locks_own_wait(solo, key):
    began = time.monotonic()
    with solo.lock(key), pytest.raises(NotAcquired):
        in_another_thread(solo.lock(key, wait=0.2).__enter__)
    assert time.monotonic() - began >= 0.2


def test_acquire_waits_as_long_as_the_lock_says_if_it_isnt_told(local, key):
    began = time.monotonic()
    with local.lock(key):
        assert in_another_thread(local.lock(key, wait=0.2).acquire) is None
    assert time.monotonic() - began >= 0.2


def test_a_release_that_fails_hides_nothing_that_happened_in_the_block(local, events, key, monkeypatch):
    async def silent(*_, **__):
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(local._desk().store, "release", silent)
    with pytest.raises(ZeroDivisionError), local.lock(key):
        raise ZeroDivisionError
    assert any(isinstance(event, ReleaseFailed) for event in events)


def test_a_hold_of_a_dead_client_ends_with_its_lease(solo, key):
    in_another_thread(solo.lock(key, lease=0.3, renew=False).acquire)
    with solo.lock(key, wait=10):
        pass


def test_fences_grow_with_every_hold(solo, key):
    fences = []
    for _ in range(5):
        with solo.lock(key) as hold:
            fences.append(hold.fence)
    assert fences == sorted(set(fences))


def test_many_threads_share_one_lock_object_one_at_a_time(solo, key):
    lock, inside, fences = solo.lock(key, wait=30), [], []

    def work(_):
        with lock as hold:
            inside.append(1)
            assert len(inside) == 1
            fences.append(hold.fence)
            inside.pop()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(30)))
    assert fences == sorted(set(fences))


def test_a_lock_can_be_used_again_and_again(local, key):
    lock = local.lock(key)
    for _ in range(3):
        with lock as hold:
            hold.check()


def test_a_hold_may_be_released_by_another_thread(solo, key):
    hold = solo.lock(key).acquire()
    assert in_another_thread(hold.release) is True
    assert solo.holder(key) is None
    solo.lock(key).acquire().release()  # and this thread may take it again


def test_a_hold_is_a_context_manager_too(local, key):
    with local.lock(key).acquire() as hold:
        hold.check()
    assert local.holder(key) is None


def test_taking_a_key_twice_in_one_thread_names_the_line_that_has_it(local, key):
    with local.lock(key):
        line = inspect.currentframe().f_lineno - 1
        for take in (local.lock(key).__enter__, local.lock(key).acquire, lambda: local.lock(key).acquire(wait=math.inf)):
            with pytest.raises(AlreadyHeldHere) as refused:
                take()
            assert refused.value.line == f"{__file__}:{line}"
            assert f"{__file__}:{line}" in str(refused.value)


def test_a_key_that_this_thread_lost_may_be_taken_again_and_kept(local, key):
    former = local.lock(key).acquire()
    local.force_release(key)
    with pytest.raises(LockLost):
        former.extend(60)
    with local.lock(key):
        former.release()
        with pytest.raises(AlreadyHeldHere):
            local.lock(key).acquire()


def test_a_semaphore_may_be_taken_twice_by_one_thread(local, key):
    with local.semaphore(key, 2), local.semaphore(key, 2):
        assert len(local.holders(key)) == 2


def test_blocks_on_one_semaphore_end_in_reverse_order(local, key):
    semaphore = local.semaphore(key, limit=2)
    with semaphore as outer:
        with semaphore as inner:
            pass
        outer.check()
        assert [holder.fence for holder in local.holders(key)] == [outer.fence]
    assert inner.release() is False


def test_check_raises_after_the_release(local, key):
    hold = local.lock(key).acquire()
    hold.release()
    with pytest.raises(LockLost, match="this process released it") as lost:
        hold.check()
    assert (lost.value.why, lost.value.key, lost.value.fence) == ("released", key, hold.fence)
    assert lost.value.since >= 0


def test_extend_puts_the_end_off_and_never_brings_it_nearer(solo, key):
    with solo.lock(key, lease=30, renew=False) as hold:
        hold.extend(600)
        assert 590 < solo.holder(key).ttl <= 601
        hold.extend(1)
        assert 590 < solo.holder(key).ttl <= 601


def test_extend_raises_once_the_key_is_lost(solo, key):
    with solo.lock(key) as hold:
        solo.force_release(key)
        with pytest.raises(LockLost) as lost:
            hold.extend(60)
        assert (hold.lost, lost.value.why) == ("vanished", "vanished")


def test_a_lease_that_is_not_renewed_is_lost_at_its_end(solo, key):
    hold = solo.lock(key, lease=0.2, renew=False).acquire()
    until(lambda: hold.lost)
    with pytest.raises(LockLost, match="its time was up") as lost:
        hold.check()
    assert lost.value.why == "unknown"
    assert lost.value.since >= 0
    assert hold.release() is False


def test_a_shortest_hold_outlives_its_release(solo, key):
    with solo.lock(key, min_hold=0.8):
        pass
    assert solo.holder(key).state == "kept"
    assert solo.lock(key).acquire() is None
    solo.lock(key).acquire(wait=10).release()


def test_a_longest_hold_ends(solo, key):
    with solo.lock(key, lease=0.2, max_hold=0.3) as hold:
        until(lambda: hold.lost)
        until(lambda: solo.holder(key) is None)


def test_a_semaphore_lets_so_many_in(solo, key):
    with solo.semaphore(key, limit=3), solo.semaphore(key, limit=3), solo.semaphore(key, limit=3):
        assert sorted(holder.slot for holder in solo.holders(key)) == [0, 1, 2]
        assert solo.semaphore(key, limit=3).acquire() is None
        with pytest.raises(NotAcquired):
            solo.semaphore(key, limit=3).__enter__()
    with solo.semaphore(key, limit=3):
        pass


def test_a_waiter_gets_the_slot_that_is_released(solo, key):
    first, second = solo.semaphore(key, 2).acquire(), solo.semaphore(key, 2).acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(solo.semaphore(key, 2).acquire, 10)
        time.sleep(0.05)
        second.release()
        third = waiting.result(5)
    assert third is not None
    assert third.release() is first.release() is True


def test_holder_finds_a_semaphore_in_a_higher_slot_and_force_release_frees_all(solo, key):
    holds = [solo.semaphore(key, 3).acquire() for _ in range(3)]
    holds[0].release()
    assert solo.holder(key).slot == 1
    assert {holder.fence for holder in solo.force_release(key)} == {hold.fence for hold in holds[1:]}
    assert solo.holders(key) == []


def test_force_release_frees_every_slot_of_a_semaphore(solo, key):
    semaphore = solo.semaphore(key, limit=2)
    with semaphore as one, semaphore as other:
        assert {holder.fence for holder in solo.force_release(key)} == {one.fence, other.fence}
        assert solo.holders(key) == []


def test_a_semaphore_asked_for_with_another_limit_is_told(local, events, key):
    with local.semaphore(key, limit=3):
        in_another_thread(local.semaphore(key, limit=1).acquire)
    assert LimitsDiffer(key, 1, 3) in events


def test_holders_are_listed_by_prefix(solo, key):
    with solo.lock(f"{key}/a"), solo.lock(f"{key}/b"), solo.lock(f"other/{key}"):
        assert sorted(holder.key for holder in solo.holders(f"{key}/")) == [f"{key}/a", f"{key}/b"]
        assert {f"{key}/a", f"other/{key}"} <= {holder.key for holder in solo.holders()}


def test_a_holder_says_who_it_is_and_how_long(solo, key):
    with solo.lock(key, lease=30) as hold:
        holder = solo.holder(key)
    assert (holder.key, holder.slot, holder.fence, holder.state) == (key, 0, hold.fence, "running")
    assert holder.token == hold.grant.token
    assert 29 < holder.ttl <= 31
    assert holder.info["pid"] > 0
    assert abs(holder.info["since"] - time.time()) < 60
    assert holder.info["host"]


def test_force_release_takes_the_key_away_and_says_from_whom(solo, events, key):
    hold = solo.lock(key).acquire()
    (taken,) = solo.force_release(key)
    assert (taken.fence, solo.holder(key)) == (hold.fence, None)
    assert [event.holder.key for event in events if isinstance(event, ForceReleased)] == [key]
    assert solo.force_release(key) == ()
    assert hold.release() is False


def test_force_release_with_a_fence_frees_that_hold_alone(solo, key):
    with solo.lock(key) as hold:
        assert solo.force_release(key, fence=hold.fence - 1) == ()
        hold.extend(60)
        assert len(solo.force_release(key, fence=hold.fence)) == 1


def test_namespaces_on_one_server_are_apart(url, key):
    with Soloist(url, namespace="staging") as staging, Soloist(url, namespace="production") as production:
        with staging.lock(key), production.lock(key):
            assert [holder.key for holder in staging.holders(key)] == [key]
        assert production.holders(key) == []


def test_without_a_url_the_environment_names_the_store(monkeypatch, tmp_path, key):
    monkeypatch.setenv("SOLOIST_URL", f"memory://{tmp_path.name}")
    monkeypatch.setenv("SOLOIST_NAMESPACE", "staging")
    with Soloist() as solo, Soloist(f"memory://{tmp_path.name}", namespace="staging") as same, solo.lock(key):
        assert same.holder(key) is not None


def test_the_same_memory_url_is_the_same_store_and_another_name_another(tmp_path, key):
    name = tmp_path.name
    with Soloist(f"memory://{name}") as one, Soloist(f"memory://{name}") as same, Soloist(f"memory://{name}-2") as other, one.lock(key):
        assert same.holder(key) is not None
        assert other.holder(key) is None


def test_a_closed_client_opens_again(solo, key):
    lock = solo.lock(key)
    with lock:
        pass
    solo.close()
    with lock:
        assert solo.holder(key) is not None
    solo.close()
    solo.close()


def test_a_hold_that_outlives_its_client_can_be_released(url, key):
    solo = Soloist(url)
    hold = solo.lock(key).acquire()
    solo.close()
    assert hold.release() is True
    solo.close()


def test_a_hold_that_is_dropped_is_told_and_ends_with_its_lease(solo, events, key):
    hold = solo.lock(key, lease=0.6).acquire()
    fence = hold.fence
    del hold
    gc.collect()
    assert Dropped(key, fence) in events
    assert not any(isinstance(event, Lost) for event in events)
    with solo.lock(key, wait=10):
        pass


def test_an_on_lost_keeps_no_hold_alive(local, events, key):
    hold = local.lock(key, on_lost=print).acquire()
    fence = hold.fence
    del hold
    gc.collect()
    assert Dropped(key, fence) in events


def test_a_hold_that_is_released_is_not_told_as_dropped(local, events, key):
    with local.lock(key):
        pass
    local.lock(key).acquire().release()
    gc.collect()
    assert not any(isinstance(event, Dropped) for event in events)


def test_each_hold_is_told_from_its_beginning_to_its_end(local, events, key):
    with local.lock(key) as hold:
        in_another_thread(local.lock(key).acquire)
    kinds = [event for event in events if isinstance(event, Acquired | Refused | Released)]
    assert [type(event) for event in kinds] == [Acquired, Refused, Released]
    assert kinds[0][:3] == (key, hold.fence, 0)
    assert kinds[1].holder.fence == hold.fence
    assert kinds[2] == Released(key, hold.fence, ours=True, kept=0)


def test_on_lost_is_called_once_with_the_hold_in_a_thread_of_its_own(solo, key):
    seen, done = [], threading.Event()

    def told(hold):
        seen.append((hold, hold.lost, threading.current_thread()))
        done.set()
        time.sleep(0.5)  # it may take its time

    with solo.lock(key, lease=1, on_lost=told) as hold, solo.lock(f"{key}/other", lease=1) as other:
        solo.force_release(key)
        assert done.wait(10)
        until(lambda: other.grant.now > hold.grant.now)  # renewed meanwhile
    assert [(found is hold, why) for found, why, _ in seen] == [(True, "vanished")]
    assert seen[0][2] is not threading.current_thread()
    assert seen[0][2].name != "soloist-keeper"


def test_an_on_lost_that_raises_is_told_and_harms_nobody(local, events, key):
    def told(hold):
        raise ValueError("no")

    with local.lock(key, lease=1, on_lost=told), local.lock(f"{key}/other", lease=1) as other:
        local.force_release(key)
        until(lambda: CallbackFailed("on_lost", "ValueError('no')") in events)
        before = other.grant
        until(lambda: other.grant is not before)


def test_a_listener_that_raises_harms_nobody(tmp_path, key, caplog):
    heard = []

    def broken(event):
        raise ValueError("no")

    with Soloist(f"memory://{tmp_path.name}", listeners=[broken, heard.append]) as solo, solo.lock(key):
        pass
    assert [type(event) for event in heard] == [Acquired, Released]
    assert "a listener raised ValueError('no')" in caplog.text


@pytest.mark.parametrize("if_store_down", ["raise", "run"])
def test_a_store_that_is_down_costs_the_work_or_the_protection(if_store_down, key, events):
    from tools.servers import free_port

    pytest.importorskip("redis")
    with Soloist(f"redis://127.0.0.1:{free_port()}/0", listeners=[events.append], store_timeout=1) as solo:
        lock = solo.lock(key, if_store_down=if_store_down)
        if if_store_down == "raise":
            with pytest.raises(StoreUnavailable), lock:
                pass
        else:
            with lock as hold:
                assert (hold.degraded, hold.fence, hold.lost) == (True, None, None)
                hold.check()
            assert hold.release() is False


def test_a_grant_travels_as_a_value(local, key):
    with local.lock(key) as hold:
        assert pickle.loads(pickle.dumps(hold.grant)) == hold.grant  # noqa: S301 - our own bytes


def test_errors_travel_with_their_facts(local, key):
    with local.lock(key):
        with pytest.raises(NotAcquired) as refused:
            in_another_thread(local.lock(key).__enter__)
        with pytest.raises(AlreadyHeldHere) as here:
            local.lock(key).acquire()
    for error in (refused.value, here.value, LockLost(key, fence=7, why="taken", since=2.0)):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_nothing_shown_names_more_than_the_scheme(key):
    pytest.importorskip("redis")
    solo = Soloist("redis://me:secret@localhost:1/0")
    assert "secret" not in repr(solo)
    assert repr(solo.lock(key)) == f"<Lock {key!r} lease=30 wait=0>"


def test_a_hold_shows_its_state(local, key):
    hold = local.lock(key).acquire()
    assert repr(hold) == f"<Hold {key!r} fence={hold.fence} held>"
    hold.release()
    assert repr(hold).endswith("released>")


def test_an_impossible_min_hold_is_refused(local, key):
    with pytest.raises(ConfigError, match="min_hold=60 is longer than max_hold=5"):
        local.lock(key, min_hold=60, max_hold=5, lease=5)


def test_a_coroutine_function_can_not_hear_of_a_blocking_locks_loss(solo, key):
    async def lost(hold):
        raise AssertionError(hold)

    with pytest.raises(ConfigError, match="only an AsyncSoloist"):
        solo.lock(key, on_lost=lost)
