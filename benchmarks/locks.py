"""`./dev bench locks [PART ...] [--rounds N] [--json FILE]`: what a lock costs, as ratios of one run. It asserts nothing.

Parts: `redis`, `asyncio`, `sqlite`, `handover`, `memory`, `import`; without one, all. Every number is a ratio to a floor that was
measured between the same rounds, on the same core; the median of the rounds is shown:

    redis, asyncio   a raw socket with hiredis: SET key token NX PX, then EVALSHA of compare-and-delete
    sqlite           the store's own statements of a claim and a release, sent by the sqlite3 module alone
    handover         a bare baton: BLPOP, a section of 1 ms, LPUSH; eight processes
    memory           SET of the same key and token with PX

Client and server are pinned to one core, where the system can do that: what is compared is work, and not who waits for whom.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import socket
import sqlite3
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import hiredis
import redis
import redis.asyncio

from soloist import AsyncSoloist, Lock, Soloist
from soloist._world import run
from soloist.contract import Grant, Info, Store
from soloist.stores import open_store
from soloist.stores.sqlite import RELEASE, TAKE
from tools.servers import RedisServer, redis_server

KEY = "bench:0123456789"  # 16 bytes
TOKEN = "0123456789abcdef/01234567"  # as long as ours  # noqa: S105 - no secret
LOCKS = 30_000
WAITERS = 8
SECTION = 0.001
UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
INFO: Info = {"host": "web-1", "pid": 4711, "since": 1763500800}
TOP_LEVEL = ("evalsha", "eval", "blpop", "lpush")
"""What clients send here. The rest of `commandstats` is what scripts call."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result."""

    what: str
    measured: float
    unit: str = "x"
    budget: float | None = None
    least: bool = False  # the budget is a lower bound

    @property
    def met(self) -> bool | None:
        """Whether the budget is met; None where there is none."""
        if self.budget is None:
            return None
        return self.measured >= self.budget if self.least else self.measured <= self.budget


class Raw:
    """A plain socket and hiredis: the least that a client can do."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def ask(self, *words: str | int) -> object:
        """One command, and its reply."""
        self.socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub means a tuple of any length
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(65536))
        return reply

    def text(self, *words: str | int) -> str:
        """One command whose reply is text."""
        reply = self.ask(*words)
        assert isinstance(reply, bytes), reply
        return reply.decode()


@contextmanager
def pinned_server() -> Iterator[RedisServer]:
    """A server of our own, on our core."""
    with redis_server() as server:
        pin(server.pid)
        yield server


def pin(pid: int) -> None:
    """To the first of our cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})


def seconds(work: Callable[[], object], times: int) -> float:
    """How long it takes, each time."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def ratios(candidates: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The first one's median in microseconds, the others' median ratio to it in the same round. The order turns from round to round."""
    names = list(candidates)
    found: dict[str, list[float]] = {name: [] for name in names}
    for at in range(rounds + 1):  # the first one warms up
        order = names[at % len(names) :] + names[: at % len(names)]
        taken = {name: candidates[name]() for name in order}
        if at:
            for name in names:
                found[name].append(taken[name] * 1e6 if name == names[0] else taken[name] / taken[names[0]])
    return {name: statistics.median(values) for name, values in found.items()}


def floor(raw: Raw, sha: str) -> None:
    """The least that a lock can be: taken and given back, by its owner alone."""
    raw.ask("SET", KEY, TOKEN, "NX", "PX", 30000)
    raw.ask("EVALSHA", sha, 1, KEY, TOKEN)


def redis_pairs(rounds: int) -> Iterator[Row]:
    """Acquire and release, blocking."""
    with pinned_server() as server:
        raw = Raw(server.port)
        sha = raw.text("SCRIPT", "LOAD", UNLOCK)
        peer = redis.Redis(port=server.port)
        solo, store = Soloist(server.url), open_store(server.url, "so", aio=False)
        far = run(store.ping()) + 1e6
        plain, renewed = solo.lock(KEY, renew=False), solo.lock(KEY)

        def verbs() -> None:
            grant = run(store.claim(KEY, TOKEN, 30, info=INFO, not_after=far))
            assert isinstance(grant, Grant)
            run(store.release(grant))

        def held(lock: Lock) -> None:
            with lock:
                pass

        def theirs() -> None:
            with peer.lock(f"peer:{KEY}", timeout=30, blocking=False):
                pass

        works: dict[str, Callable[[], object]] = {
            "floor": partial(floor, raw, sha),
            "verbs": verbs,
            "off": partial(held, plain),
            "on": partial(held, renewed),
            "redis-py": theirs,
        }
        found = ratios({name: partial(seconds, work, 1500) for name, work in works.items()}, rounds)
        solo.close()
        run(store.close())
        peer.close()
    yield Row("redis: the floor, a raw socket", found["floor"], "µs")
    yield Row("redis: the two verbs alone", found["verbs"])
    yield Row("redis: with solo.lock(), renew=False", found["off"], budget=1.75)
    yield Row("redis: with solo.lock(), renewed", found["on"], budget=1.75)
    yield Row("redis: redis-py's Lock", found["redis-py"])


def asyncio_pairs(rounds: int) -> Iterator[Row]:
    """Acquire and release in an event loop."""

    async def ours(url: str, times: int) -> float:
        async with AsyncSoloist(url) as solo:
            lock = solo.lock(KEY)
            async with lock:
                pass
            began = time.perf_counter()
            for _ in range(times):
                async with lock:
                    pass
            return (time.perf_counter() - began) / times

    async def theirs(port: int, times: int) -> float:
        peer = redis.asyncio.Redis(port=port)
        async with peer.lock(f"peer:{KEY}", timeout=30, blocking=False):
            pass
        began = time.perf_counter()
        for _ in range(times):
            async with peer.lock(f"peer:{KEY}", timeout=30, blocking=False):
                pass
        taken = (time.perf_counter() - began) / times
        await peer.aclose()
        return taken

    with pinned_server() as server:
        raw = Raw(server.port)
        sha = raw.text("SCRIPT", "LOAD", UNLOCK)
        candidates = {
            "floor": lambda: seconds(lambda: floor(raw, sha), 1500),
            "ours": lambda: asyncio.run(ours(server.url, 1000)),
            "redis-py": lambda: asyncio.run(theirs(server.port, 500)),
        }
        found = ratios(candidates, rounds)
    yield Row("asyncio: async with solo.lock()", found["ours"], budget=2.2)
    yield Row("asyncio: redis-py's asyncio Lock", found["redis-py"])


def sqlite_pairs(rounds: int) -> Iterator[Row]:
    """Claim and release on a file."""
    take = """insert into bare values (?, ?, ?, ?) on conflict (key) do update set token = excluded.token, until = excluded.until,
              fence = max(fence + 1, excluded.fence) where until <= ? or token = '' returning fence"""
    give = "update bare set token = '', until = 0 where key = ? and token = ? and until > ?"
    with tempfile.TemporaryDirectory(prefix="soloist-bench-") as folder:
        bare = sqlite3.connect(f"{folder}/bare.db", isolation_level=None)
        for pragma in ("page_size = 1024", "journal_mode = wal", "synchronous = normal"):
            bare.execute(f"pragma {pragma}").fetchall()
        bare.execute("create table bare (key text primary key, token text, fence integer, until real)")
        url = f"sqlite:///{folder}/ours.db"
        solo, store = Soloist(url), open_store(url, "so", aio=False)
        lock, far = solo.lock(KEY), time.time() + 1e6

        def least() -> None:
            now = time.time()
            bare.execute(take, (KEY, TOKEN, int(now * 1e6), now + 30, now)).fetchall()
            bare.execute(give, (KEY, TOKEN, now))

        def verbs() -> None:
            grant = run(store.claim(KEY, TOKEN, 30, info=INFO, not_after=far))
            assert isinstance(grant, Grant)
            run(store.release(grant))

        def held() -> None:
            with lock:
                pass

        verbs()  # the tables are there now
        same = sqlite3.connect(f"{folder}/ours.db", isolation_level=None)
        same.execute("pragma synchronous = normal")
        facts = {"namespace": "bare", "key": KEY.encode(), "slot": 0, "first": 0, "final": 0, "token": TOKEN, "expect": None, "boot": "b"}
        facts |= {"its_boot": "b", "state": "running", "info": json.dumps(INFO), "last": None, "last_state": None}

        def statements() -> None:
            wall, up = time.time(), time.monotonic()
            now = facts | {"wall": wall, "up": up, "wall_us": int(wall * 1e6)}
            same.execute(TAKE, now | {"until": up + 30}).fetchall()
            same.execute(RELEASE, now | {"until": 0})

        works: dict[str, Callable[[], object]] = {"own": statements, "floor": least, "verbs": verbs, "ours": held}
        found = ratios({name: partial(seconds, work, 1500) for name, work in works.items()}, rounds)
        solo.close()
        run(store.close())
        bare.close()
        same.close()
    yield Row("sqlite: the floor, our two statements alone", found["own"], "µs")
    yield Row("sqlite: the simplest two statements", found["floor"])
    yield Row("sqlite: claim and release", found["verbs"], budget=1.5)
    yield Row("sqlite: with solo.lock(), renewed", found["ours"])


Turns = list[tuple[float, float, int]]  # when it was asked for, when it came, and to which process


def wait_in_turn(kind: str, port: int, ready: Barrier, lasts: float, turns: "Queue[Turns]") -> None:
    """One of the waiters: takes the key again and again, and tells when it asked and when it had it."""
    found: Turns = []
    raw = Raw(port)
    ours = Soloist(f"redis://127.0.0.1:{port}/0").lock(KEY, wait=30)
    theirs = redis.Redis(port=port).lock(f"peer:{KEY}", timeout=30)
    ready.wait(120)
    ends = time.time() + lasts
    while (asked := time.time()) < ends:
        if kind == "bare":
            raw.ask("BLPOP", "baton", 30)
        hold = ours.acquire() if kind == "ours" else None
        if kind == "redis-py":
            theirs.acquire()
        found.append((asked, time.time(), os.getpid()))
        time.sleep(SECTION)
        if kind == "bare":
            raw.ask("LPUSH", "baton", "1")
        elif hold:
            hold.release()
        else:
            theirs.release()
    turns.put(found)


def handovers(kind: str, lasts: float) -> tuple[float, float, float]:
    """Handovers per second, client commands for each, and the share of those that overtook somebody who had asked a section before."""
    with pinned_server() as server:
        raw = Raw(server.port)
        raw.ask("LPUSH", "baton", "1")
        context = multiprocessing.get_context("spawn")
        turns: Queue[Turns] = context.Queue()
        ready = context.Barrier(WAITERS + 1)
        arguments = (kind, server.port, ready, lasts, turns)
        waiters = [context.Process(target=wait_in_turn, args=arguments, daemon=True) for _ in range(WAITERS)]
        for waiter in waiters:
            waiter.start()
        ready.wait(120)
        begins = time.time()
        raw.ask("CONFIG", "RESETSTAT")
        found = sorted((turn for _ in waiters for turn in turns.get(timeout=60 + lasts)), key=lambda turn: turn[1])
        sent = commands(raw)
        for waiter in waiters:
            waiter.join()
    overtaken = sum(overtakes(found, at) for at in range(len(found)))
    passed = sum(one[2] != other[2] for one, other in pairwise(found))  # who takes it again himself has handed nothing over
    return passed / (found[-1][1] - begins), sent / passed, overtaken / len(found)


def commands(raw: Raw) -> int:
    """How many commands clients have sent since the last reset."""
    told = raw.text("INFO", "commandstats")
    lines = (line.removeprefix("cmdstat_").partition(":calls=") for line in told.splitlines())
    return sum(int(rest.partition(",")[0]) for name, _, rest in lines if name in TOP_LEVEL)


def overtakes(turns: Turns, at: int) -> bool:
    """Whether somebody who got in later had asked earlier, by a section at least."""
    return any(other[0] < turns[at][0] - SECTION for other in turns[at + 1 : at + 200])


def contended(rounds: int) -> Iterator[Row]:
    """Eight processes, one key, sections of a millisecond."""
    lasts = 2.0
    shares, sent, overtaken = [], [], []
    for _ in range(max(1, rounds // 3)):
        bare, _, _ = handovers("bare", lasts)
        ours = handovers("ours", lasts)
        shares.append(100 * ours[0] / bare)
        sent.append(ours[1])
        overtaken.append(100 * ours[2])
    theirs, _, _ = handovers("redis-py", lasts)
    yield Row("handover: share of a bare baton's rate", statistics.median(shares), "%", 93, least=True)
    yield Row("handover: client commands each", statistics.median(sent), "", 3.1)
    yield Row("handover: overtakes", statistics.median(overtaken), "%", 1)
    yield Row("handover: redis-py's Lock, share of the rate", 100 * theirs / bare, "%")


def memory(_: int) -> Iterator[Row]:
    """Bytes per lock in Redis, beyond a SET of the same key and token."""

    def used(fill: Callable[[RedisServer, str], object]) -> float:
        with pinned_server() as server:
            raw = Raw(server.port)
            fill(server, "first")  # connections and scripts are there now
            before = in_memory(raw)
            for at in range(LOCKS):
                fill(server, f"{at:016}")
            return (in_memory(raw) - before) / LOCKS

    def claiming(info: Info) -> Callable[[RedisServer, str], object]:
        stores: dict[int, Store] = {}

        def claim(server: RedisServer, key: str) -> None:
            if server.port not in stores:
                stores[server.port] = open_store(server.url, "so", aio=False)
            assert isinstance(run(stores[server.port].claim(key, TOKEN, 3600, info=info)), Grant)

        return claim

    raws: dict[int, Raw] = {}

    def bare(server: RedisServer, key: str) -> None:
        if server.port not in raws:
            raws[server.port] = Raw(server.port)
        raws[server.port].ask("SET", key, TOKEN, "PX", 3600000)

    least = used(bare)
    yield Row("memory: SET of key and token with PX", least, "bytes")
    yield Row("memory: over that, without info", used(claiming({})) - least, "bytes", 75)
    yield Row("memory: over that, with host, pid and since", used(claiming(INFO)) - least, "bytes")


def in_memory(raw: Raw) -> int:
    """What the server's data takes."""
    told = raw.text("INFO", "memory")
    return next(int(line.partition(":")[2]) for line in told.splitlines() if line.startswith("used_memory:"))


def importing(rounds: int) -> Iterator[Row]:
    """A fresh interpreter's `import soloist`."""
    timed = "import time; began = time.perf_counter(); import soloist; print(time.perf_counter() - began)"
    taken = [float(subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True).stdout) for _ in range(2 * rounds + 3)]
    yield Row("import soloist", statistics.median(taken) * 1000, "ms", 50)


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "redis": redis_pairs,
    "asyncio": asyncio_pairs,
    "sqlite": sqlite_pairs,
    "handover": contended,
    "memory": memory,
    "import": importing,
}


def versions() -> dict[str, str]:
    """What was measured, and with what."""

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    with redis_server() as server:
        told = Raw(server.port).text("INFO", "server")
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
        f"{', profile-guided' if optimized else ', not profile-guided'}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "server": " ".join(line.partition(":")[2] for line in told.splitlines() if line.startswith(("redis_version", "valkey_version"))),
        "sqlite": sqlite3.sqlite_version,
        **{name: of(name) for name in ("redis", "hiredis", "soloist")},
    }


def main(arguments: Sequence[str]) -> int:
    """Measure, and show."""
    parser = argparse.ArgumentParser(prog="./dev bench locks")
    parser.add_argument("part", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", type=Path)
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.part) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    facts = versions()
    print("\n".join(f"{name:<8} {what}" for name, what in facts.items()), flush=True)
    print(f"\n{'':<46}{'measured':>10}  {'budget':>8}  met", flush=True)
    pin(0)
    rows = []
    for name, part in PARTS.items():
        for row in part(chosen.rounds) if name in (chosen.part or PARTS) else ():
            rows.append(row)
            bound = "" if row.budget is None else f"{'>=' if row.least else '<='} {row.budget:g}"
            met = {None: "", True: "yes", False: "NO"}[row.met]
            print(f"{row.what:<46}{row.measured:>10.2f} {row.unit:<5} {bound:>8}  {met}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"versions": facts, "rows": [asdict(row) | {"met": row.met} for row in rows]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
