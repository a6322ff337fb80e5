"""`with` blocks: in any order, interrupted, and left while the store refuses."""

import contextlib
import time

import pytest

from soloist import ConfigError, Soloist


def test_two_blocks_on_one_semaphore_may_end_in_any_order(solo, key):
    slots = solo.semaphore(key, limit=2)

    def block():
        with slots as hold:
            yield hold

    first, second = block(), block()
    ours, theirs = next(first), next(second)
    first.close()
    assert ours.lost is None
    theirs.check()
    second.close()
    assert solo.holders(key) == []


def test_a_block_may_be_left_by_an_exit_stack(solo, key):
    with contextlib.ExitStack() as stack:
        stack.enter_context(solo.lock(key)).check()
    assert solo.holder(key) is None


def test_an_interrupted_release_is_renewed_no_more(solo, key):
    hold = solo.lock(key).acquire()
    desk, kept = hold._desk, hold._kept
    desk.here = Interrupting(desk.here)
    with pytest.raises(KeyboardInterrupt):
        hold.release()
    assert kept not in desk.book.kept.values()


class Interrupting(dict):
    """Ctrl-C in the middle of letting go, once."""

    struck = False

    def get(self, *asked):
        if not self.struck:
            self.struck = True
            raise KeyboardInterrupt
        return super().get(*asked)


def test_a_release_that_the_store_refuses_does_not_make_finished_work_fail(solo, key, monkeypatch):
    with solo.lock(key) as hold:
        monkeypatch.setattr(hold._desk.store, "release", refused)


async def refused(*_, **__):
    raise ConfigError("the password was changed")


def test_a_semaphore_of_one_is_a_semaphore(solo, key):
    with solo.semaphore(key, limit=1) as hold:
        assert solo.semaphore(key, limit=1).acquire() is None
        assert solo.holder(key).info["limit"] == 1
        hold.check()


def test_a_listener_that_exits_neither_ends_the_keeper_nor_the_caller(key):
    def leave(_event):
        raise SystemExit

    with Soloist("memory://", listeners=[leave]) as solo, solo.lock(key, lease=0.3) as hold:
        time.sleep(0.5)
        hold.check()
