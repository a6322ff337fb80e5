"""One of several processes that contend for a few keys, and write down what happens, line by line.

python worker.py URL NAME DIRECTORY SEED: runs until the file `DIRECTORY/stop` is there. The page `DIRECTORY/holding` has a
byte per worker, 1 while it holds something, so that signals can be aimed.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from soloist import Hold, LockLost, NotAcquired, Soloist, StoreError
from soloist._world import boottime
from soloist.events import Acquired, Event, Lost
from tests.processes import register

LEASE = 1.0
KEYS = ("red", "green", "blue")


class Worker:
    """Its history, and its share of the page."""

    def __init__(self, url: str, name: str, directory: Path, seed: int) -> None:
        self.name = name
        self.directory = directory
        self.chance = random.Random(seed)
        self.number = int(name.partition("-")[0])
        self.history = os.open(directory / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.page = mmap.mmap(os.open(directory / "holding", os.O_RDWR), 64)
        self.tokens: dict[int | None, str] = {}
        self.acquired = 0.0
        self.told = threading.Event()
        self.solo = Soloist(url, listeners=[self.hear])

    def note(self, what: str, **facts: Any) -> None:
        """One line, written at once: who is killed leaves off between two of them."""
        os.write(self.history, json.dumps({"at": boottime(), "what": what, "who": self.name, **facts}).encode() + b"\n")

    def hear(self, event: Event) -> None:
        """What is told, when it is told: who is stopped before the next line here would write down a later time."""
        if isinstance(event, Acquired):
            self.acquired = boottime()
        if isinstance(event, Lost):
            self.note("lost", token=self.tokens.get(event.fence, ""), why=event.why)
            self.told.set()

    def run(self) -> None:
        """Section after section."""
        while not (self.directory / "stop").exists():
            self.section(self.chance.choice(KEYS))

    def section(self, key: str) -> None:
        """Take the key, count, give it back."""
        call = boottime()
        wait = self.chance.choice((0, 0, 0.3, 5, 5, 5, 5, 5))
        self.note("asking", key=key, call=call, lease=LEASE)
        try:
            with self.solo.lock(key, lease=LEASE, wait=wait) as hold:
                self.page[self.number] = 1
                self.held(hold, call)
        except NotAcquired as refusal:
            token = refusal.holder.token if refusal.holder else ""
            self.note("refused", key=key, limit=1, call=call, sent=call if wait == 0 else boottime() - 1, token=token)
        except StoreError:
            self.note("failed", key=key, call=call, lease=LEASE)

    def held(self, hold: Hold, call: float) -> None:
        """What is done under the lock."""
        grant = hold.grant
        assert grant is not None
        self.tokens[grant.fence] = grant.token
        self.told.clear()
        facts: dict[str, Any] = {"key": hold.key, "slot": grant.slot, "limit": 1, "fence": grant.fence, "renewed": True}
        self.note("acquired", at=self.acquired, token=grant.token, call=call, lease=LEASE, deadline=self.deadline(hold), **facts)
        path = self.directory / f"{hold.key}.register"
        before = register.read(path, grant.fence or 0)
        self.work(hold, grant.token)
        register.write(path, {"who": self.name, "key": hold.key, "fence": grant.fence or 0, "read": before, "value": before + 1})
        self.page[self.number] = 0
        self.note("releasing", token=grant.token, deadline=self.deadline(hold))
        if hold.lost is None:
            self.note("released", token=grant.token, ours=hold.release())

    def work(self, hold: Hold, token: str) -> None:
        """Mostly short; now and then longer than a lease. The careful ask before they write, the careless don't."""
        time.sleep(1.5 if self.chance.random() < 0.02 else self.chance.random() * 0.01)
        if self.chance.random() < 0.5:
            try:
                hold.check()
            except LockLost:
                self.told.wait(10)  # the keeper, if it noticed first, may be in the middle of telling
                self.note("checked", token=token, ours=False)
            else:
                self.note("checked", token=token, ours=True, deadline=self.deadline(hold))

    @staticmethod
    def deadline(hold: Hold) -> float:
        """Until when it is ours, as this process knows it."""
        return hold._kept.place.deadline


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])).run()
