"""What the user of a simulated process does: take keys on all terms that there are, work under them, give them back.

1. What is written goes to a register that refuses smaller fences, those of readers too. Its writer reads, works, and writes
   one more than it read.
2. A careful holder checks before it writes; a careless one doesn't, and the register must be the one to refuse.
3. Whatever interrupts a section, its hold is released, as by `with`; but a few holds are dropped instead.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from soloist._flows import locking
from soloist._flows.locking import Terms
from soloist.errors import NotAcquired, StoreError
from soloist.testing._simulation.process import KEYS, PATIENCE, InterruptedByUserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from soloist._flows.renewing import Kept
    from soloist.testing._simulation.process import Process
    from soloist.testing.history import Line

LEASES = (1.5, 3.0, 6.0)
EXTENSION = 9.0
"""What `extend` asks for at most."""

LONG = 20.0
"""Seconds of a lease that shows two drifting clocks, now and then."""

LENGTHS = (0.01, 0.01, 0.01, 0.1, 0.1, 0.1, 0.5, 1.8)
"""How long a section lasts at most, in leases."""

WAITS = (0, 0, 0.3, 4.0, math.inf)
INFOS: tuple[Mapping[str, int], ...] = ({}, {}, {"limit": 2}, {"limit": 3})


def _terms(key: str, slots: int) -> list[Terms]:
    downs: tuple[Literal["raise", "run"], ...] = ("raise", "run")
    found: list[Terms] = []
    for lease, down in itertools.product(LEASES, downs):
        plain = Terms(key=key, lease=lease, slots=slots, if_store_down=down, patience=PATIENCE)
        found += [plain, plain, plain, replace(plain, renew=False), replace(plain, max_hold=4.0), replace(plain, min_hold=1.0)]
    found += [replace(found[0], lease=LONG, renew=False)] * 2
    return found


TERMS = {(key, slots): _terms(key, slots) for key in KEYS for slots in (1, 2, 3)}


class Registers:
    """What the keys guard: per key a counter that refuses smaller fences than it saw (rule 1)."""

    def __init__(self, history: list[Line]) -> None:
        self._history = history
        self._values = dict.fromkeys(KEYS, 0)
        self._fences = dict.fromkeys(KEYS, 0)

    def read(self, key: str, fence: int) -> int | None:
        """The counter, or None for a reader with too small a fence."""
        if fence < self._fences[key]:
            return None
        self._fences[key] = fence
        return self._values[key]

    def write(self, at: float, key: str, fence: int, read: int) -> bool:
        """Count one up from what was read; False if the fence was too small."""
        taken = fence >= self._fences[key]
        self._history.append({"at": at, "what": "wrote", "key": key, "fence": fence, "read": read, "value": read + 1, "ours": taken})
        if taken:
            self._fences[key], self._values[key] = fence, read + 1
        return taken


class Worker:
    """What all users of a schedule have in common: the registers, and how many slots each key has."""

    def __init__(self, registers: Registers, slots: Mapping[str, int], pace: float) -> None:
        self.registers = registers
        self.slots = slots
        self.pace = pace
        self.tried = 0
        """How often a key was asked for."""

    async def work(self, process: Process) -> None:
        """Take and give back keys, one after another, until all is done."""
        random, timeline = process.timeline.random, process.timeline
        while process.todo:
            try:
                await timeline.sleep(self.pace * random() ** 2)
                process.todo -= 1
                key = KEYS[random() < 0.3]  # noqa: PLR2004 - the first is asked for more often
                choices = TERMS[key, self.slots[key]]
                terms = choices[int(random() * len(choices))]
                await self._once(process, terms, WAITS[int(random() * len(WAITS))])
            except InterruptedByUserError:
                timeline.see("a user was interrupted")

    async def _once(self, process: Process, terms: Terms, wait: float) -> None:
        timeline = process.timeline
        self.tried += 1
        process.called = call = timeline.now
        process.asks = (terms.key, terms.lease, terms.slots)
        try:
            kept = await locking.acquire(process.world, process.store, terms, INFOS[terms.slots], wait)
        except NotAcquired as refusal:
            if terms.slots > 1:
                timeline.see("a semaphore was full")
            holder = refusal.holder
            assert process.user is not None
            timeline.history.append(
                {
                    "at": timeline.now,
                    "what": "refused",
                    "who": process.name,
                    "key": terms.key,
                    "limit": terms.slots,
                    "call": call,
                    "sent": process.user.sent,
                    "own": process.world.last_token,
                    "token": holder.token if holder else "",
                    "state": holder.state if holder else "",
                }
            )
            return
        except StoreError:
            return
        finally:
            process.called = 0.0
        process.add(kept, call)
        await self._section(process, terms, kept)

    async def _section(self, process: Process, terms: Terms, kept: Kept) -> None:
        timeline, random = process.timeline, process.timeline.random
        try:
            await self._body(process, terms, kept)
        except InterruptedByUserError:
            timeline.see("a section was interrupted")
        if random() < 0.03:  # noqa: PLR2004 - rarely
            process.forget(kept)
            deadline = process.world.when(kept.place.deadline)
            timeline.history.append({"at": timeline.now, "what": "dropped", "token": kept.token, "deadline": deadline})
            return
        process.remove(kept)
        protected = kept.grant is not None
        if protected:
            deadline = process.world.when(kept.place.deadline)
            timeline.history.append({"at": timeline.now, "what": "releasing", "token": kept.token, "deadline": deadline})
        try:
            ours = await locking.give_back(process.world, process.store, terms, kept)
        except StoreError:
            return
        if protected:
            timeline.history.append({"at": timeline.now, "what": "released", "token": kept.token, "ours": ours, "kept": process.rest})

    async def _body(self, process: Process, terms: Terms, kept: Kept) -> None:
        """Work under a hold: short mostly, sometimes longer than its lease."""
        timeline, random = process.timeline, process.timeline.random
        length = LENGTHS[int(random() * len(LENGTHS))] * terms.lease * random()
        if terms.lease == LONG:
            length = LONG * (0.6 + 0.5 * random())
        elif kept.grant is None:  # time enough for the store to answer again, just as the run ends
            length = 3 * random()
        fence, read = kept.fence, None
        careful = random() < 0.75  # noqa: PLR2004 - most are
        if fence is not None and terms.slots == 1:
            read = self.registers.read(terms.key, fence)
        await timeline.sleep(length)
        if random() < 0.1 and process.check(kept):  # noqa: PLR2004 - one of ten
            await self._extend(process, terms, kept, EXTENSION * random())
        if careful and not process.check(kept):
            return
        if fence is not None and read is not None:
            if random() < 0.3:  # noqa: PLR2004 - to write takes its time now and then
                await timeline.sleep(0.01 * random())
            if not self.registers.write(timeline.now, terms.key, fence, read):
                timeline.see("an older fence was refused")

    async def _extend(self, process: Process, terms: Terms, kept: Kept, seconds: float) -> None:
        timeline = process.timeline
        if kept.grant is not None:
            timeline.history.append({"at": timeline.now, "what": "extending", "token": kept.token, "lease": seconds})
        try:
            await locking.extend(process.world, process.store, terms, kept, seconds)
        except StoreError:
            timeline.see("an extension got no answer")
