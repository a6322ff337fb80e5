"""What SQLite alone promises: several processes on one file, clocks that jump, fences that never fall."""

import asyncio
import itertools
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from soloist._world import run
from soloist.contract import Busy, Gone, Grant, Look, Release, Renew
from soloist.errors import StoreUnavailable
from soloist.stores._sqlite.host import Clocks, host_clocks
from tests.stores.sqlites import MOUNTS, Host, claimed, execute, said, started, tokens

# ---- several processes


def test_processes_that_open_a_fresh_file_at_once_never_find_it_locked(tmp_path):
    start, rounds = time.time() + 0.6, 6
    script = """
        start, rounds, number, folder = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
        for i in range(rounds):
            store = opened(f"{folder}/{i}.db")
            time.sleep(max(0, start + i * 0.05 - time.time()))
            print(type(run(store.claim(f"k/{number}", "mine/1", 60, info={}))).__name__)
    """
    processes = [started(script, start, rounds, number, tmp_path) for number in range(6)]
    assert [said(process) for process in processes] == [["Grant"] * rounds] * 6


def test_a_key_that_processes_contend_for_has_one_holder_at_a_time(path, tmp_path):
    script = """
        store, log = opened(sys.argv[1]), open(sys.argv[2], "a")
        for i in range(60):
            while not isinstance(grant := run(store.claim("k", f"{os.getpid()}/{i}", 60, info={})), Grant):
                time.sleep(0.001)
            log.write("in\\n"); log.flush()
            log.write(f"{grant.fence}\\n"); log.flush()
            assert run(store.release(grant))
    """
    for process in [started(script, path, tmp_path / "log") for _ in range(4)]:
        said(process)
    entered, fences = (tmp_path / "log").read_text().split()[::2], (tmp_path / "log").read_text().split()[1::2]
    assert set(entered) == {"in"}
    assert len(fences) == 240
    assert fences == sorted(set(fences), key=int)


@pytest.mark.parametrize("before", range(3))
def test_whoever_gets_in_between_the_statements_of_a_claim_is_not_overwritten(path, opened, before):
    store, other, answers, statements = opened(path), opened(path), [], itertools.count()
    claimed(store, "opened")
    claimed(other, "opened too")

    def begins(_):
        if next(statements) == before:
            answers.append(run(other.claim("k", "other/1", 60, info={}, within=0.1)))

    store._file._db.set_trace_callback(begins)
    answers.append(run(store.claim("k", "mine/1", 60, info={})))
    assert [isinstance(answer, Grant) for answer in answers].count(True) == 1


def test_a_child_that_was_forked_has_locks_of_its_own(path):
    """With an inherited connection SQLite takes the parent's locks for the child's, and the parent throws away the child's log."""
    script = """
        store = opened(sys.argv[1])
        run(store.claim("parent", "parent/1", 60, info={}))
        ready, told = os.pipe(), os.pipe()
        if os.fork() == 0:
            grant = run(store.claim("k", "child/1", 60, info={}))
            os.write(ready[1], b"."); os.read(told[0], 1)
            run(store.renew(grant, 60, state="queued"))
            os._exit(0)
        os.read(ready[0], 1)
        run(store.close())
        third = opened(sys.argv[1])
        run(third.ping())
        os.write(told[1], b"."); os.wait()
        print(run(third.look("k"))[0].state)
    """
    assert said(started(script, path)) == ["queued"]


def test_a_parent_goes_on_after_a_fork_in_the_middle_of_its_threads_requests(path):
    script = """
        import threading, warnings
        warnings.simplefilter("ignore")
        store, stop = opened(sys.argv[1]), threading.Event()
        def work(i):
            while not stop.is_set():
                assert run(store.release(run(store.claim(f"k{i}", f"{i}/1", 60, info={}))))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads: thread.start()
        for _ in range(8):
            if (child := os.fork()) == 0:
                os._exit(0 if isinstance(run(store.claim(f"child {os.getpid()}", "child/1", 60, info={})), Grant) else 1)
            print(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads: thread.join()
    """
    assert said(started(script, path)) == ["0"] * 8


def test_threads_share_one_connection(path, opened):
    store, grants = opened(path), []
    threads = [threading.Thread(target=lambda i=i: grants.append(claimed(store, f"k{i}"))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({grant.key for grant in grants}) == 8


def test_a_busy_file_is_unavailable_in_time_and_nothing_was_done(path, opened):
    store = opened(path)
    grant = claimed(store, "k")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"transaction open.*store_timeout=.*0\.1 s"):
            run(store.claim("k2", "mine/1", 60, info={}, within=0.1))
        with pytest.raises(StoreUnavailable):
            run(store.batch([Release(grant)], within=0.1))
        assert time.monotonic() - began < 0.5
        assert tokens(store, "k") == ["mine/1"]
    assert isinstance(run(store.claim("k2", "mine/1", 60, info={})), Grant)


def test_a_file_that_is_busy_for_a_moment_is_waited_for(path, opened):
    store = opened(path)
    claimed(store, "k")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    threading.Timer(0.1, other.rollback).start()
    assert isinstance(run(store.claim("k2", "mine/1", 60, info={})), Grant)
    other.close()


def test_the_loop_goes_on_while_the_file_is_busy_and_every_claim_ends_in_time(path, opened):
    async def main():
        store = opened(path, aio=True)
        await store.claim("k", "mine/1", 60, info={})
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            claims = [asyncio.ensure_future(store.claim(f"k{i}", "mine/1", 60, info={}, within=0.15)) for i in range(40)]
            ticks, began = 0, time.monotonic()
            while not all(claim.done() for claim in claims):
                await asyncio.sleep(0.01)
                ticks += 1
            assert time.monotonic() - began < 0.6
        assert {type(claim.exception()) for claim in claims} == {StoreUnavailable}
        await store.close()
        return ticks

    assert asyncio.run(main()) > 5


def test_a_cancelled_claim_strands_nothing(path, opened):
    async def main():
        store = opened(path, aio=True)
        await store.claim("k", "mine/1", 60, info={})
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            claims = [asyncio.ensure_future(store.claim("k2", f"gone{i}/1", 60, info={}, within=0.15)) for i in range(40)]
            await asyncio.sleep(0.05)
            for claim in claims:
                claim.cancel()
            await asyncio.wait(claims)
            await asyncio.sleep(0.15)
        answer = await store.claim("k2", "next/1", 60, info={})
        await store.close()
        return answer

    assert isinstance(asyncio.run(main()), Grant)


def test_a_request_in_the_middle_of_ones_own_is_refused(path, host):
    """As a signal's handler may ask; here a clock does."""
    store = host.store(path)
    claimed(store, "k")
    inner = host.store(path)
    inner._clocks = Clocks(lambda: run(inner.ping()), lambda: 0.0, "")
    with pytest.raises(StoreUnavailable, match="signal"):
        run(inner.look("k"))
    assert tokens(store) == ["mine/1"]


def test_a_batch_that_an_exception_struck_has_done_nothing(path, host):
    store = host.store(path)
    grants = [claimed(store, key) for key in "ab"]
    times = iter([host.now])
    store._clocks = Clocks(lambda: next(times), lambda: host.uptime, host.boot)
    with pytest.raises(RuntimeError):
        run(store.batch([Release(grant) for grant in grants]))
    assert len(tokens(host.store(path))) == 2


def test_a_store_that_was_closed_opens_again(path, opened):
    store = opened(path)
    claimed(store, "k")
    run(store.close())
    assert list(path.parent.iterdir()) == [path]
    assert tokens(store) == ["mine/1"]


def test_a_store_that_was_closed_opens_again_in_a_loop(path, opened):
    async def main():
        store = opened(path, aio=True)
        await store.claim("k", "mine/1", 60, info={})
        await store.close()
        assert [holder.token for holder in await store.look("k")] == ["mine/1"]
        await store.close()

    asyncio.run(main())


# ---- clocks


def test_a_reboot_ends_running_and_publishing_holds_and_no_others(path, host):
    store = host.store(path)
    for state in ("publishing", "queued", "running", "kept"):
        claimed(store, state, f"{state}/1", state=state)
    run(store.release(claimed(store, "memory"), keep=60))
    host.boot, host.uptime = "second", 10.0
    store = host.store(path)
    assert tokens(store) == ["kept/1", "queued/1"]
    assert isinstance(run(store.claim("memory", "other/1", 60, info={}, expect="third/1")), Gone)
    assert isinstance(run(store.claim("running", "next/1", 60, info={})), Grant)


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock_moves_no_end_of_a_running_hold(path, host, step):
    store = host.store(path)
    grant = claimed(store, "k", ttl=30)
    host.now += step
    assert run(store.look("k"))[0].ttl == 30
    assert run(store.renew(grant, 40)).ttl == 40
    host.pass_time(40)
    assert run(store.look("k")) == ()


def test_a_queued_hold_runs_on_wall_time_and_a_running_one_again_on_the_other(path, host):
    store = host.store(path)
    grant = claimed(store, "k", ttl=30)
    assert run(store.renew(grant, 20, state="queued")).ttl == 30
    host.uptime += 100
    assert run(store.look("k"))[0].ttl == 30
    assert run(store.renew(grant, 20, state="running")).ttl == 30
    host.now += 100
    assert run(store.look("k"))[0].ttl == 30


def test_without_a_boot_id_everything_runs_on_wall_time(path):
    host = Host(boot="")
    store = host.store(path)
    claimed(store, "k", ttl=30)
    host.uptime = 0.0
    assert run(store.look("k"))[0].ttl == 30
    host.now += 30
    assert run(store.look("k")) == ()


def test_whoever_has_no_boot_id_believes_in_others_running_holds(path, host):
    grant = claimed(host.store(path), "k", ttl=30)
    host.boot = ""
    masked = host.store(path)
    assert isinstance(run(masked.claim("k", "other/1", 30, info={})), Busy)
    assert run(masked.renew(grant, 50)).ttl == 50
    host.boot = "first"
    assert run(host.store(path).look("k"))[0].ttl == 50


def test_a_container_with_a_boot_id_of_its_own_goes_by_wall_time(tmp_path):
    id_file = tmp_path / "sys/kernel/random/boot_id"
    id_file.parent.mkdir(parents=True)
    id_file.write_text("4be1\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    assert host_clocks(tmp_path).boot == ("4be1" if sys.platform == "linux" else "")
    (tmp_path / "self/mountinfo").write_text(MOUNTS + "40 22 0:50 /id /proc/sys/kernel/random/boot_id ro - tmpfs tmpfs ro\n")
    assert host_clocks(tmp_path).boot == ""


def test_the_shift_of_a_time_namespace_is_taken_away(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/timens_offsets").write_text("monotonic    86400         0\nboottime       -3600 500000000\n")
    assert host_clocks(tmp_path).up() - host_clocks(Path("/proc")).up() == pytest.approx(3599.5, abs=0.1)


# ---- fences, and what disappears


@pytest.mark.parametrize("remove", ["cleanup", "operator"])
def test_no_fence_falls_when_rows_are_removed_and_the_wall_clock_was_set_back(path, host, remove):
    store = host.store(path)
    grant = claimed(store, "k")
    run(store.release(grant))
    if remove == "cleanup":
        assert run(store.cleanup()) == 1
    else:
        execute(path, "delete from soloist_lock where key = 'k'")
    assert execute(path, "select count(*) from soloist_lock") == [(0,)]
    host.now -= 3600
    assert claimed(host.store(path), "k", "next/1").fence > grant.fence


def test_fences_grow_from_slot_to_slot(path, host):
    store = host.store(path)
    before = [claimed(store, "k", f"{i}/1", slots=3).fence for i in range(3)]
    assert before == sorted(set(before))
    host.now -= 3600
    run(store.evict("k", "0/1", slots=3))
    assert claimed(store, "k", "single/1").fence > max(before)


def test_a_cleanup_takes_what_has_ended_and_nothing_else(path, host):
    store = host.store(path)
    for i in range(3):
        claimed(store, f"ended{i}", ttl=1)
    run(store.release(claimed(store, "forgotten"), keep=1))
    host.pass_time(2)
    claimed(store, "k")
    claimed(store, "queued", state="queued")
    run(store.release(claimed(store, "remembered"), keep=60))
    assert run(store.cleanup()) == 4
    assert sorted(execute(path, "select key from soloist_lock")) == [("k",), ("queued",), ("remembered",)]


def test_a_table_that_nobody_cleans_up_stays_small(path, host):
    store = host.store(path)
    for i in range(300):
        claimed(store, f"held{i}", ttl=1e6)
    for i in range(1500):
        claimed(store, f"once{i}", ttl=1)
        host.pass_time(0.1)
    [(count,)] = execute(path, "select count(*) from soloist_lock")
    assert count < 300 + 600


# ---- keys


def test_a_prefix_lists_every_key_that_begins_with_it_and_no_other(path, host):
    store = host.store(path)
    keys = [
        "",
        "a",
        "A",
        "a\0",
        "a\0b",
        "a\n",
        "ab",
        "a\x7f",
        "aé",
        "a\ud800",
        "a\udfff",
        "a\uffff",
        "a\U0010ffff",
        "a%",
        "a_",
        "b",
        "\U0010ffffa",
    ]
    for i, key in enumerate(keys):
        claimed(store, key, f"{i}/1")
    for prefix in (*keys, "ax"):
        found, cursor = [], None
        while True:
            page = run(store.listing(prefix, cursor, 2))
            found += [holder.key for holder in page.holders]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == sorted(key for key in keys if key.startswith(prefix))


def test_namespaces_share_a_file_and_never_meet(path, host):
    mine, theirs = host.store(path), host.store(path, "so2")
    claimed(mine, "k")
    claimed(theirs, "k", "theirs/1")
    assert (tokens(mine), tokens(theirs)) == (["mine/1"], ["theirs/1"])


def test_a_batch_judges_each_line_by_itself(path, opened):
    store = opened(path)
    kept, lost = claimed(store, "a"), claimed(store, "b")
    run(store.evict("b", "mine/1"))
    renewed, gone, released, seen = run(store.batch([Renew(kept, 90), Renew(lost, 90), Release(kept), Look("a")]))
    assert isinstance(renewed, Grant)
    assert isinstance(gone, Gone)
    assert (released, seen) == (True, ())
