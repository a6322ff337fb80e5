"""Real processes: forked, spawned, stopped, interrupted and ended while they hold a key."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest

from soloist import ConfigError, LockLost, Soloist
from tests.locks.conftest import until

FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")

# A fork beside other threads is what is tested here; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_a_forked_child(work) -> str:
    """Do it in a child made by os.fork; answers what it returned, or how it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException:  # noqa: BLE001 - whatever went wrong in the child is shown by the parent
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_does_not_have_what_its_parent_holds(shared_url, key):
    def work():
        with pytest.raises(LockLost) as lost:
            hold.check()
        assert (lost.value.why, hold.release(), lost.value.since) == ("forked", False, 0)
        assert "take it anew in the child" in str(lost.value)
        assert solo.lock(key).acquire() is None
        return "fine"

    with Soloist(shared_url) as solo, solo.lock(key) as hold:
        assert in_a_forked_child(work) == "fine"
        hold.check()
        assert solo.holder(key).fence == hold.fence


def test_a_forked_child_takes_and_renews_keys_of_its_own(shared_url, key):
    def work():
        with solo.lock(f"{key}/child", lease=1) as mine:
            before = mine.grant
            until(lambda: mine.grant is not before)  # it has a keeper of its own
            return solo.holder(f"{key}/child").info["pid"] == os.getpid()

    with Soloist(shared_url) as solo, solo.lock(key):
        assert in_a_forked_child(work) == "True"
        with solo.lock(f"{key}/child"):
            pass


def test_a_forked_child_may_fork_again(shared_url, key):
    def inner():
        with solo.lock(f"{key}/inner"):
            return "inner"

    def outer():
        with solo.lock(f"{key}/outer"):
            return in_a_forked_child(inner)

    with Soloist(shared_url) as solo, solo.lock(key):
        assert in_a_forked_child(outer) == "inner"


def test_a_forked_child_that_leaves_its_parents_with_block_releases_nothing(shared_url, key):
    with Soloist(shared_url) as solo, solo.lock(key) as hold:
        child = os.fork()
        if child == 0:
            try:
                hold.__exit__(None, None, None)
                solo.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        hold.check()
        assert solo.holder(key) is not None
        assert hold.release() is True


def test_a_child_that_was_forked_amid_a_busy_keeper_works(shared_url, key):
    """Whatever another thread had locked at the fork is locked for ever in the child, unless it is made anew."""
    stop = threading.Event()

    def busy(solo, number):
        while not stop.is_set():
            with solo.lock(f"{key}/{number}", lease=1):
                pass

    def work():
        with solo.lock(f"{key}/child", wait=10):
            return "fine"

    with Soloist(shared_url) as solo:
        threads = [threading.Thread(target=busy, args=(solo, number)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert [in_a_forked_child(work) for _ in range(10)] == ["fine"] * 10
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_memory_is_refused_in_a_forked_child(local, key):
    def work():
        with pytest.raises(ConfigError) as refused:
            local.lock(key).acquire()
        return refused.value

    with local.lock(key):
        assert "use sqlite:///soloist.db (one host) or a server" in in_a_forked_child(work)


def take_in_turn(url, key, path, times):
    """A counter in a file, changed by read and write: only a lock makes it right."""
    with Soloist(url) as solo:
        for _ in range(times):
            with solo.lock(key, wait=60):
                number = int(path.read_text())
                time.sleep(0.001)
                path.write_text(str(number + 1))


@pytest.mark.parametrize("context", [FORK, SPAWN], ids=["fork", "spawn"])
def test_processes_take_turns(shared_url, key, tmp_path, context):
    path = tmp_path / "counter"
    path.write_text("0")
    processes = [context.Process(target=take_in_turn, args=(shared_url, key, path, 10)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert path.read_text() == "30"


def script(source, *arguments):
    """A Python process of its own, whose lines we read."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(source), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, seconds=20):
    """What it said until its end."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


STOPPED = """
import sys, time
from soloist import LockLost, Soloist
solo = Soloist(sys.argv[1])
hold = solo.lock(sys.argv[2], lease=1).acquire()
print("held", flush=True)
sys.stdin.readline()
try:
    hold.check()
    print("still ours")
except LockLost as lost:
    print(lost.why)
"""


def test_a_process_that_was_stopped_past_its_lease_knows_that_it_has_lost(shared_url, key):
    command = [sys.executable, "-u", "-c", STOPPED, shared_url, key]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    os.kill(process.pid, signal.SIGSTOP)
    with Soloist(shared_url) as solo, solo.lock(key, wait=20) as ours:
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=20)
        assert out in {"unknown\n", "taken\n"}
        ours.check()


@pytest.mark.parametrize("store", ["memory://", "shared"])
def test_an_interpreter_that_ends_with_a_hold_neither_hangs_nor_prints(store, shared_url, key):
    source = """
        import sys
        from soloist import Soloist
        solo = Soloist(sys.argv[1])
        hold = solo.lock(sys.argv[2]).acquire()
        other = solo.semaphore(sys.argv[2] + "/semaphore", 2, lease=1, on_lost=print).acquire()
        print(hold.fence > 0)
    """
    process = script(source, shared_url if store == "shared" else store, key)
    assert ended(process) == ("True\n", "")
    assert process.returncode == 0


def test_an_interpreter_that_ends_in_asyncio_with_a_hold_neither_hangs_nor_prints(shared_url, key):
    source = """
        import asyncio, sys
        from soloist import AsyncSoloist
        solo = AsyncSoloist(sys.argv[1])
        async def main():
            global hold
            hold = await solo.lock(sys.argv[2]).acquire()
            print(hold.fence > 0)
        asyncio.run(main())
    """
    assert ended(script(source, shared_url, key)) == ("True\n", "")


def test_an_interpreter_that_ends_with_abandoned_tokens_neither_hangs_nor_prints(key):
    source = """
        import sys, time
        from soloist import Soloist
        from soloist.errors import OutcomeUnknown
        solo = Soloist("memory://")
        solo.lock("first").acquire().release()
        desk = solo._desk()
        async def silent(lines, *, within):
            time.sleep(within)
            raise OutcomeUnknown("no answer")
        desk.store.batch = silent
        for n in range(50):
            desk.abandon(0.0, f"k{n}", f"token/{n}", 1, 0)
        print(time.time())
    """
    out, err = ended(script(source))
    assert err == ""
    assert time.time() - float(out) < 10


def test_an_interpreter_that_ends_evicts_what_it_abandoned(shared_url, key):
    source = """
        import sys
        from soloist import Soloist
        solo = Soloist(sys.argv[1])
        hold = solo.lock(sys.argv[2], lease=600).acquire()
        desk = solo._desk()
        desk._wake = lambda: None
        desk.abandon(0.0, sys.argv[2], hold.grant.token, 1, 0)
    """
    assert ended(script(source, shared_url, key)) == ("", "")
    with Soloist(shared_url) as solo:
        assert solo.holder(key) is None


INTERRUPTED = """
import sys
from soloist import Soloist
solo = Soloist(sys.argv[1])
print("asking", flush=True)
try:
    solo.lock(sys.argv[2], lease=600).acquire(wait=600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    solo.close()
"""


@pytest.mark.parametrize("after", [0.05, 0.5])
def test_an_interrupted_acquire_ends_at_once_and_leaves_nothing(shared_url, key, after):
    with Soloist(shared_url) as solo:
        with solo.lock(key):
            process = script(INTERRUPTED, shared_url, key)
            assert process.stdout.readline() == "asking\n"
            time.sleep(after)
            process.send_signal(signal.SIGINT)
            assert ended(process) == ("interrupted\n", "")
        with solo.lock(key, wait=20):
            pass


def test_a_process_that_is_killed_leaves_its_key_for_one_lease(shared_url, key):
    process = script(STOPPED, shared_url, key)
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.communicate(timeout=20)
    with Soloist(shared_url) as solo, solo.lock(key, wait=20):
        pass


def test_a_process_identity_that_comes_round_again_gets_a_desk_of_its_own(local, key):
    local.lock(key).acquire().release()
    local._desk().forked = True  # an ancestor of this process had our number, and held something
    with local.lock(key) as hold:
        hold.check()
