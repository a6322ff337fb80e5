"""The life of a task, by hand: published, queued, taken over, renewed by a parent that never acquired it, and given back after a kill.

    the publisher     claims as `publishing`, its keeper's book makes it `queued`, and it goes away
    the child         takes over with `expect=`, sends its grant to its parent, and checks its hold
    the parent        renews the grant in its batch, and writes each deadline into a page that the child reads

Everything is done with flows and the contract alone. A grant is a value that travels from process to process; no hold does.
"""

import mmap
import multiprocessing
import os
import pickle
import signal
import struct
import time
from typing import get_args

import pytest

from soloist import LockLost
from soloist._flows.asking import Attempts, Wish, claim_surely, deadline
from soloist._flows.locking import Terms, give_back
from soloist._flows.renewing import Book, Kept, settle, tend
from soloist._keeper import Keeper
from soloist._lock import Hold
from soloist._world import BlockingWorld, boottime, run
from soloist.contract import Gone, Grant, Loss
from soloist.stores import open_store

FORK = multiprocessing.get_context("fork")
LEASE = 1.0
NAMESPACE = "life"
LOSSES = (None, *get_args(Loss))


class Page:
    """A place that two processes share: the parent writes it, the child reads it. Each field is written in one piece."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def deadline(self) -> float:
        return struct.unpack_from("d", self._memory, 0)[0]

    @deadline.setter
    def deadline(self, value: float) -> None:
        struct.pack_into("d", self._memory, 0, value)

    @property
    def lost(self) -> Loss | None:
        return LOSSES[self._memory[8]]

    @lost.setter
    def lost(self, value: Loss | None) -> None:
        self._memory[8] = LOSSES.index(value)


class Process:
    """What one process has: a store of its own, a world, and a book that its keeper would tend."""

    def __init__(self, url: str) -> None:
        self.store = open_store(url, NAMESPACE, aio=False)
        self.book = Book()
        self.told: list[object] = []
        self.world = BlockingWorld(self.told.append, self.book.abandon)

    def keep(self, grant: Grant, place, **facts) -> Kept:
        kept = Kept(grant.key, grant.token, grant, place, LEASE, boottime() + LEASE / 3, **facts)
        self.book.add(kept)
        return kept

    def tend(self, seconds: float) -> None:
        """Be the keeper for a while."""
        ends = boottime() + seconds
        while boottime() < ends:
            run(tend(self.world, self.store, self.book, patience=3))
            time.sleep(max(0.0, min(self.book.due(), ends) - boottime()))


def publisher(url, key, token, pipe) -> None:
    """Claim for the task, publish its message, make it queued, and go away."""
    me = Process(url)
    wish = Wish(key, 60, {"task": "reports.rebuild", "pid": os.getpid()}, state="publishing")
    mine = Attempts(token)
    grant = run(claim_surely(me.world, me.store, wish, mine, within=3))
    assert isinstance(grant, Grant)
    (claimed,) = run(me.store.look(key))
    page = Page(mmap.mmap(-1, 16))
    page.deadline = deadline(mine.sent, grant.ttl)
    me.keep(grant, page, turn_into="queued", once=True)
    run(settle(me.world, me.store, me.book, patience=3))  # as its keeper does before this process ends
    (queued,) = run(me.store.look(key))
    pipe.send((claimed.state, queued.state, len(me.book.kept), me.told))


def child(url, key, token, former, memory, pipe) -> None:
    """Take over from the queued claim, and work under it until the end."""
    me = Process(url)
    mine = Attempts(token)
    answer = run(claim_surely(me.world, me.store, Wish(key, LEASE, {"pid": os.getpid()}, expect=former), mine, within=3))
    assert isinstance(answer, Grant), answer
    page = Page(memory)
    page.deadline = deadline(mine.sent, answer.ttl)
    kept = Kept(key, token, answer, page, LEASE, due=page.deadline)
    hold = Hold(Keeper(me.store, me.told.append, 3), Terms(key=key, lease=LEASE), kept, None)
    pipe.send(pickle.dumps(answer))
    while True:  # it asks nobody: its deadline is what the parent writes
        try:
            hold.check()
            pipe.send((boottime(), hold.fence, None))
        except LockLost as lost:
            pipe.send((boottime(), lost.fence, lost.why))
        time.sleep(0.02)


def parent(url, key, token, former, pipe) -> None:
    """Start the child, renew its hold in this process's batch, kill it, and give its hold back."""
    me = Process(url)
    memory = mmap.mmap(-1, 16)
    page, (reading, writing) = Page(memory), FORK.Pipe(duplex=False)
    worker = FORK.Process(target=child, args=(url, key, token, former, memory, writing))
    worker.start()
    grant = pickle.loads(reading.recv())._replace(fence=None, version=None)  # noqa: S301 - our own bytes; a header has no more
    kept = me.keep(grant, page)
    first = page.deadline
    me.tend(1.6 * LEASE)
    pipe.send(("renewed", first, page.deadline, drained(reading)))
    order = pipe.recv()
    if order == "watch":
        me.tend(0.6 * LEASE)
    else:
        os.kill(worker.pid, signal.SIGKILL)
    if order == "kill":
        worker.join()
        me.book.remove(kept)
        ours = run(give_back(me.world, me.store, Terms(key=key, lease=LEASE), kept))
        pipe.send(("released", ours, run(me.store.look(key)), me.told))
    else:
        pipe.send(("lost", drained(reading), me.told))
    worker.kill()
    worker.join()


def drained(pipe) -> list:
    """All that the other side has said."""
    said = []
    while pipe.poll():
        said.append(pipe.recv())
    return said


@pytest.fixture
def life(shared_url, key):
    """A task that was published and is being performed: the pipe to its performer's parent."""
    claim, run_of = f"{key}/publication/{os.urandom(4).hex()}", f"{key}/run/{os.urandom(4).hex()}"
    here, there = FORK.Pipe()
    publishing = FORK.Process(target=publisher, args=(shared_url, key, claim, there))
    publishing.start()
    assert answer(here) == ("publishing", "queued", 0, [])
    publishing.join()
    performing = FORK.Process(target=parent, args=(shared_url, key, run_of, claim, there))
    performing.start()
    yield here, claim, run_of
    performing.join(20)
    assert performing.exitcode == 0


def answer(pipe, seconds=20):
    assert pipe.poll(seconds), "the other process said nothing"
    return pipe.recv()


def test_a_task_lives_through_three_processes_and_its_key_is_free_as_soon_as_it_is_killed(life, shared_url, key):
    pipe, claim, run_of = life
    _, first, last, checks = answer(pipe)
    assert last > first + LEASE / 2  # renewed by the parent, beyond the first lease
    assert [why for _, _, why in checks if why] == []
    assert [at for at, _, _ in checks if at > first]  # the child's own check was right beyond the first deadline
    assert len({fence for _, fence, _ in checks}) == 1
    me = Process(shared_url)
    (holder,) = run(me.store.look(key))
    assert (holder.token, holder.state, holder.fence) == (run_of, "running", checks[0][1])
    late = run(claim_surely(me.world, me.store, Wish(key, 60, {}, expect=claim), Attempts("a/duplicate/1"), within=3))
    assert not isinstance(late, Grant)  # the claim was taken over; a second delivery finds it in another's hands
    pipe.send("kill")
    _, ours, holders, told = answer(pipe)
    assert (ours, holders) == (True, ())
    assert [type(event).__name__ for event in told] == ["Released"]
    again = run(claim_surely(me.world, me.store, Wish(key, 1, {}), Attempts("next/1"), within=3))
    assert isinstance(again, Grant)
    assert again.fence > holder.fence


def test_a_loss_that_the_parent_sees_is_known_to_the_child(life, shared_url, key):
    pipe, _, run_of = life
    answer(pipe)
    assert run(Process(shared_url).store.evict(key, run_of)) is True
    pipe.send("watch")
    _, checks, told = answer(pipe)
    assert checks[-1][2] == "vanished"
    assert [type(event).__name__ for event in told] == ["Lost"]


def test_a_vacancy_that_remembers_another_task_is_not_taken_over(shared_url, key):
    me = Process(shared_url)
    done = run(claim_surely(me.world, me.store, Wish(key, 60, {}), Attempts("done/run/1"), within=3))
    assert run(me.store.release(done, 60)) is True
    answer = run(claim_surely(me.world, me.store, Wish(key, 60, {}, expect="other/claim/1"), Attempts("other/run/1"), within=3))
    assert isinstance(answer, Gone)
    assert (answer.last, answer.state) == ("done/run/1", "running")
