"""`./dev demo [locks] [--json FILE]`: four processes want one key; one dies, one stalls, one waits its turn. No server.

    the stage      this process: starts the others, strikes them, shows what they say, and keeps the history
    a worker       `demo.py --worker NAME FOLDER`: takes orders on stdin and says what it does on stdout, in lines of JSON
    the register   a file outside the store: it remembers the highest fence that wrote to it, and refuses smaller ones

1. Every wait is for an event, with a deadline that only a broken machine meets. Nothing relies on an amount of time.
2. Signals set a flag, and the one place that waits looks at it: so Ctrl-C, at any time, ends the workers and removes the folder.
3. A moment is read on a clock that all processes of this host share. "Gives back" is stamped before the hold's last check.
4. The summary is computed from the history alone, after the end, by `soloist.testing.checker` as far as it knows a rule.
   The exit status is 1 if any line of it is false.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import queue
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from soloist import Hold, LockLost, NotAcquired, Soloist, SoloistError
from soloist.testing.checker import check
from soloist.testing.history import Line

KEY = "report:42"
LEASE = 3.0
NAMES = ("ada", "ben", "cleo", "dan")
TURNS = 3
WORK = 0.05
BROKEN = 60.0  # seconds after which a wait is given up

FIELDS = {
    "at": "seconds since the demo began, on a clock that all processes share",
    "who": "the process that says it; the stage for what it does to one",
    "what": "ready, asks, acquired, refused, wrote, write refused, gives back, given back, told, lost, killed, stopped, continued",
    "fence, token": "of the hold; where one is refused, of whoever has the key",
    "seconds": "asks: how long it will wait; acquired, refused: how long it took; lost: since when, as far as it can tell",
    "value": "the counter in the register: what was written, or would have been",
    "text": "what the library said",
}


def clock() -> float:
    """Seconds on a clock that all processes of this host share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one process; FIELDS says what is what."""

    at: float
    who: str
    what: str
    fence: int = 0
    seconds: float = 0.0
    text: str = ""
    token: str = ""
    value: int = 0


def write(register: Path, fence: int) -> tuple[float, int, int]:
    """Count one up under a fence: when that was, the highest fence so far, and the count. Under a smaller one nothing is written."""
    with register.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        highest, count = max((tuple(map(int, line.split())) for line in register.read_text(encoding="utf-8").splitlines()), default=(0, 0))
        if fence >= highest:
            file.write(f"{fence} {count + 1}\n")
        return clock(), max(fence, highest), count + 1


class Worker:
    """One process that wants the key. It does what the stage says, so that each strike meets it where it should."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.register = folder / "register"
        self.lock = Soloist(f"sqlite:///{folder / 'locks.db'}").lock(KEY, lease=LEASE, on_lost=self.told)
        self.hold: Hold | None = None

    def say(self, what: str, *, at: float | None = None, seconds: float = 0.0, text: str = "", token: str = "", value: int = 0) -> None:
        """Tell the stage; a short line is written in one piece."""
        token = self.hold.grant.token if self.hold and self.hold.grant else token
        fence = (self.hold.fence or 0) if self.hold else 0
        event = Event(clock() if at is None else at, self.name, what, fence, seconds, text, token, value)
        os.write(1, (json.dumps(asdict(event)) + "\n").encode())

    def told(self, hold: Hold) -> None:
        """What the library calls when a hold is lost."""
        self.say("told", text=f"on_lost is called: {hold.lost}")

    def turns(self) -> None:
        """Take the key, work, and give it back, some times."""
        for _ in range(TURNS):
            self.take()
            self.write()
            time.sleep(WORK)  # the work that the lock is for
            self.give_back()
            time.sleep(WORK)  # the others' turn

    def ask(self) -> None:
        """Ask once, without waiting."""
        asked = clock()
        self.say("asks", at=asked)
        try:
            with self.lock as self.hold:
                self.say("acquired", seconds=clock() - asked)
                self.say("gives back")
        except NotAcquired as no:
            text, holder = str(no).partition(": pass wait=")[0], no.holder
            self.say("refused", seconds=clock() - asked, text=text, token=holder.token if holder else "")
        self.hold = None

    def take(self) -> None:
        """Wait for the key."""
        asked = clock()
        self.say("asks", at=asked, seconds=BROKEN)
        self.hold = self.lock.acquire(wait=BROKEN)
        assert self.hold, f"{self.name} got no turn in {BROKEN:g} s"
        now = clock()
        self.say("acquired", at=now, seconds=now - asked)

    def write(self) -> None:
        """Write to the register under our fence, without asking whether it is still ours."""
        assert self.hold, "there is nothing to write under"
        at, highest, count = write(self.register, self.hold.fence or 0)
        what = "wrote" if highest == self.hold.fence else "write refused"
        self.say(what, at=at, value=count, text=f"the register has seen fence {highest}")

    def check(self) -> None:
        """See whether it is still ours."""
        assert self.hold, "there is nothing to check"
        try:
            self.hold.check()
        except LockLost as lost:
            self.say("lost", seconds=max(lost.since, 0.0), text=str(lost))

    def give_back(self) -> None:
        """Release, unless it was lost."""
        assert self.hold, "there is nothing to give back"
        now = clock()
        self.check()
        if self.hold.lost is None:
            self.say("gives back", at=now)
        if self.hold.release():
            self.say("given back")
        self.hold = None


def worker(name: str, folder: Path) -> int:
    """Obey until the stage is gone."""
    logging.getLogger("soloist").addHandler(logging.NullHandler())  # the stage shows it
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        os._exit(0)  # the end of the orders is the end of the stage, whatever we wait for

    threading.Thread(target=listen, daemon=True).start()
    me = Worker(name, folder)
    does = {"ask": me.ask, "take": me.take, "write": me.write, "check": me.check, "back": me.give_back, "turns": me.turns}
    me.say("ready")
    while True:
        does[orders.get()]()


MARKS = {"holds": ("█", "#", "32"), "waits": ("·", ".", "2"), "stopped": ("‖", "=", "33"), "dead": ("†", "x", "31"), "": (" ", " ", "0")}
SHOWN = {  # what a process does after an event (None: what it did before), the event's colour, and the sentence
    "asks": ("waits", "0", "{who} asks for it"),
    "acquired": ("holds", "32", "{who} has it: fence {fence}, waited {seconds:.2f} s"),
    "refused": ("", "0", "{who} doesn't wait: {text}"),
    "wrote": (None, "0", "{who} counts to {value} in the register, which takes fence {fence}"),
    "write refused": (None, "31;1", "{who} counts under fence {fence}: REFUSED, {text}"),
    "gives back": ("", "0", "{who} gives it back"),
    "told": (None, "31", "{who}: {text}"),
    "lost": ("", "31", "{who} checks: {text}"),
    "killed": ("dead", "31;1", "{who} is killed (SIGKILL), and gives nothing back"),
    "stopped": ("stopped", "33;1", "{who} is stopped (SIGSTOP), and can't renew"),
    "continued": ("", "33;1", "{who} goes on (SIGCONT), as if nothing had happened"),
}


class Screen:
    """A line per event: when, a column per process, and what happened."""

    def __init__(self) -> None:
        self.colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self.states = dict.fromkeys(NAMES, "")

    def paint(self, text: str, colour: str) -> str:
        """Text in a colour, where there are any."""
        text = text if self.unicode else text.encode("ascii", "replace").decode()
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colours and colour != "0" else text

    def line(self, text: str = "", colour: str = "0") -> None:
        """A line of its own."""
        print(self.paint(text, colour), flush=True)

    def act(self, title: str) -> None:
        """A new scene."""
        self.line(f"\n{title}", "1")
        self.line(" " * 10 + "".join(f"{name:^6}" for name in NAMES), "2")

    def show(self, event: Event, *, quiet: bool) -> None:
        """Note what an event changes, and show it; `quiet` shows who gets the key, and no more."""
        if event.what in SHOWN:
            state, colour, sentence = SHOWN[event.what]
            self.states[event.who] = self.states[event.who] if state is None else state
            if event.what == "acquired" or not quiet:
                marks = "".join(self.mark(self.states[name]) for name in NAMES)
                print(f"{event.at:7.2f} s {marks}  {self.paint(sentence.format_map(asdict(event)), colour)}", flush=True)

    def mark(self, state: str) -> str:
        """One process's place in a line."""
        sign, plain, colour = MARKS[state]
        return self.paint(f"{sign if self.unicode else plain:^6}", colour)


class Stage:
    """The processes, and all that they said."""

    def __init__(self) -> None:
        self.signal = 0
        self.screen = Screen()
        self.history: list[Event] = []
        self.quiet = False
        self.began = clock()
        self._heard: list[Event] = []
        self._rest: dict[str, bytes] = {}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._wakes_us, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)
        self.folder = Path(tempfile.mkdtemp(prefix="soloist-demo-"))

    def _note(self, number: int, _: object) -> None:
        self.signal = number

    def close(self) -> None:
        """End what runs, stopped ones too, and remove every file."""
        for process in self._workers.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str) -> None:
        """A worker, in a process group of its own: Ctrl-C reaches us alone, and we end it."""
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, str(self.folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self._workers[name], self._rest[name] = process, b""
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)

    def order(self, name: str, what: str) -> None:
        """Tell a worker what to do."""
        pipe = self._workers[name].stdin
        os.write(pipe.fileno() if pipe else -1, f"{what}\n".encode())

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._do(name, "killed")
        self._workers[name].kill()
        self._workers[name].wait()

    def stop(self, name: str) -> None:
        """SIGSTOP, but not in the middle of a transaction: that would stop the embedded store for everybody."""
        pid = self._workers[name].pid
        while True:
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            store = sqlite3.connect(self.folder / "locks.db", timeout=0, isolation_level=None)
            with closing(store), suppress(sqlite3.OperationalError):
                store.execute("begin immediate")
                return self._do(name, "stopped")
            os.kill(pid, signal.SIGCONT)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self._do(name, "continued")
        os.kill(self._workers[name].pid, signal.SIGCONT)

    def _do(self, name: str, what: str) -> None:
        self._hear()
        fence, token = next(((event.fence, event.token) for event in reversed(self.of(name, "acquired"))), (0, ""))
        self._heard.append(Event(clock(), name, what, fence, token=token))
        self._show(float("inf"))

    def until(self, happened: Callable[[], bool]) -> None:
        """Show what happens until this has happened (rules 1 and 2)."""
        ends = time.monotonic() + BROKEN
        while not happened():
            if self.signal:
                raise KeyboardInterrupt
            if time.monotonic() > ends:
                raise SoloistError(f"nothing came for {BROKEN:g} s; this machine is too slow for the demo, or something is broken")
            alive = [process.stdout.fileno() for process in self._workers.values() if process.stdout and process.poll() is None]
            select.select([self._wakes_us, *alive], [], [], 0 if self._heard else 1)
            self._hear()
            newest = max((event.at for event in self._heard), default=0.0)
            self._hear()  # what came before the newest, from a pipe that we read before, is here now
            self._show(newest)

    def _hear(self) -> None:
        for name, process in self._workers.items():
            assert process.stdout
            *lines, self._rest[name] = (self._rest[name] + (process.stdout.read() or b"")).split(b"\n")
            self._heard += [Event(**json.loads(line)) for line in lines]
            dead = process.poll() is not None and not any(event.what == "killed" for event in self.of(name))
            if dead and not self.signal:
                raise SoloistError(f"{name} ended by itself; what it said stands above")

    def _show(self, newest: float) -> None:
        """Show what was heard, in the order in which it happened, up to a moment before which nothing is missing."""
        self._heard.sort(key=lambda event: event.at)
        while self._heard and self._heard[0].at <= newest:
            event = self._heard.pop(0)
            self.history.append(Event(round(event.at - self.began, 6), *list(asdict(event).values())[1:]))
            self.screen.show(self.history[-1], quiet=self.quiet)

    def of(self, name: str, *kinds: str) -> list[Event]:
        """What a process did, of some kinds."""
        return [event for event in self.history if event.who == name and (not kinds or event.what in kinds)]

    def holder(self) -> str:
        """Who got the key last."""
        return next(event.who for event in reversed(self.history) if event.what == "acquired")


def play(stage: Stage) -> None:
    """The story."""
    screen = stage.screen
    screen.line(f"Four processes, one key ({KEY!r}), a lease of {LEASE:g} s, and SQLite in {stage.folder}: no server.", "1")
    screen.line("Legend: " + ", ".join(f"{screen.mark(state).strip()} {state}" for state in MARKS if state))
    for name in NAMES:
        stage.start(name)
    stage.until(lambda: all(stage.of(name, "ready") for name in NAMES))
    screen.act("1. Everybody wants it; one at a time has it")
    stage.quiet = True
    for name in NAMES:
        stage.order(name, "turns")
    stage.until(lambda: all(len(stage.of(name, "gives back", "lost")) >= TURNS for name in NAMES))
    stage.quiet = False

    screen.act("2. The holder is killed; its lease ends; the next takes over with a higher fence")
    ada, ben, cleo, dan = NAMES
    then_on(stage, ada, "take", "acquired")
    then_on(stage, ada, "write", "wrote", "write refused")
    then_on(stage, ben, "ask", "refused", "gives back")
    for name in (ben, cleo, dan):
        then_on(stage, name, "take", "asks")
    stage.kill(ada)
    shown_by_the_store(stage)
    stage.until(lambda: stage.holder() != ada)

    stalled = stage.holder()
    screen.act(f"3. {stalled} is stopped past its lease, and learns that it has lost; the register refuses its late write")
    then_on(stage, stalled, "write", "wrote", "write refused")
    stage.stop(stalled)
    shown_by_the_store(stage)
    stage.until(lambda: stage.holder() != stalled)
    next_one = stage.holder()
    then_on(stage, next_one, "write", "wrote", "write refused")
    stage.order(stalled, "write")  # what it was about to do when it was stopped
    losses = len(stage.of(stalled, "lost"))
    stage.order(stalled, "check")
    stage.go_on(stalled)
    stage.until(lambda: len(stage.of(stalled, "lost")) > losses)

    screen.act("4. One has waited its turn since then, and gets it as soon as the key is given back")
    then_on(stage, next_one, "back", "gives back", "lost")
    stage.until(lambda: stage.holder() not in (stalled, next_one))
    then_on(stage, stage.holder(), "write", "wrote", "write refused")
    then_on(stage, stage.holder(), "back", "gives back", "lost")


def shown_by_the_store(stage: Stage) -> None:
    """What an operator sees now."""
    with Soloist(f"sqlite:///{stage.folder / 'locks.db'}") as solo:
        for who in solo.holders(KEY):
            stage.screen.line(f"{'':36}the store shows: pid {who.info['pid']}, fence {who.fence}, {who.ttl:.2f} s left", "2")


def then_on(stage: Stage, name: str, order: str, *answers: str) -> None:
    """Give an order, and wait for its answer."""
    before = len(stage.of(name, *answers))
    stage.order(name, order)
    stage.until(lambda: len(stage.of(name, *answers)) > before)


def lines(history: Sequence[Event]) -> Iterator[Line]:
    """The history in the checker's words. A deadline is what a process is known to have believed: it passed a check by then."""
    went_on = next((event.at for event in history if event.what == "continued"), float("inf"))
    for one in history:
        line = Line(at=one.at, what=one.what, who=one.who, key=KEY, token=one.token, fence=one.fence, call=one.at - one.seconds)
        match one.what:
            case "acquired":
                yield {**line, "lease": LEASE, "deadline": one.at}
            case "refused":
                yield {**line, "sent": one.at - one.seconds}
            case "wrote" | "write refused":
                yield {**line, "what": "wrote", "read": one.value - 1, "value": one.value, "ours": one.what == "wrote"}
            case "gives back":
                yield {**line, "what": "releasing", "deadline": one.at}
            case "given back":
                yield {**line, "what": "released", "ours": True}
            case "lost":
                yield {**line, "deadline": one.at - one.seconds}
            case "killed":
                yield {**line, "what": "renewed", "deadline": one.at}
                yield {**line, "what": "died"}
            case "stopped":
                yield {**line, "what": "stalled", "until": went_on}


def verdicts(history: Sequence[Event]) -> Iterator[tuple[bool, str]]:
    """What must be true of the history, and whether it is."""
    broken = check(lines(history))
    holds, wrote, late = (sum(event.what == what for event in history) for what in ("acquired", "wrote", "write refused"))
    rules = {
        "fences": f"{holds} holds, each with a higher fence than the one before",
        "exclusion": "no two processes believed to hold the key at once",
        "register": f"the register counted to {wrote} and lost no update; {late} came too late, and was refused",
        "refusals": "nobody was refused without a holder",
    }
    for rule, sentence in rules.items():
        yield not any(one.rule == rule for one in broken), sentence
    yield from ((False, f"{one.rule}: {one.text}") for one in broken)
    killed = next(event for event in history if event.what == "killed")
    heir = next(event for event in history if event.what == "acquired" and event.at > killed.at)
    yield heir.fence > killed.fence, f"{killed.who} died with the key; {heir.who} had it {heir.at - killed.at:.2f} s later"
    stopped, went_on = (next(event for event in history if event.what == what) for what in ("stopped", "continued"))
    lost = [event for event in history if event.what == "lost" and event.who == stopped.who and event.at > went_on.at]
    late_by = (lost[0].at - went_on.at) * 1000 if lost else float("inf")
    yield (
        bool(lost) and late > 0,
        f"{stopped.who} stood still for {went_on.at - stopped.at:.2f} s, and knew it {late_by:.0f} ms after it went on",
    )


def main(arguments: Sequence[str]) -> int:
    """Play, check, and tell."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="Processes contend for a lock, die, stall and take over.")
    parser.add_argument("what", nargs="?", choices=["locks"], default="locks")
    parser.add_argument("--json", metavar="FILE", help="write the recorded history")
    chosen = parser.parse_args(arguments)
    stage = Stage()
    try:
        play(stage)
        stage.history.sort(key=lambda event: event.at)
        told = list(verdicts(stage.history))
    except KeyboardInterrupt:
        stage.screen.line("\ninterrupted: nothing is left behind")
        return 128 + stage.signal
    except SoloistError as error:
        stage.screen.line(f"\n{error}", "31")
        return 1
    finally:
        stage.close()
    if chosen.json:
        record(Path(chosen.json), stage.history, told)
    stage.screen.line(f"\nChecked against the recorded history ({len(stage.history)} events, {clock() - stage.began:.1f} s):", "1")
    for right, sentence in told:
        stage.screen.line(
            f"  {'✓' if stage.screen.unicode else 'ok'} {sentence}" if right else f"  FALSE: {sentence}", "32" if right else "31;1"
        )
    return 0 if all(right for right, _ in told) else 1


def record(path: Path, history: Sequence[Event], told: Sequence[tuple[bool, str]]) -> None:
    """Write the history, and what was checked against it."""
    facts = [{name: value for name, value in asdict(event).items() if value != "" and (value or name == "at")} for event in history]
    checks = [{"true": right, "what": sentence} for right, sentence in told]
    whole = {"format": 1, "key": KEY, "lease": LEASE, "store": "sqlite", "fields": FIELDS, "checks": checks, "events": facts}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.exit(worker(sys.argv[2], Path(sys.argv[3])))
    sys.exit(main(sys.argv[1:]))
