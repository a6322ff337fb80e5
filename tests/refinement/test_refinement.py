"""Every store refines the model: random programs of verbs, run against both, get the same replies.

Nothing sleeps near an expiry: the model is asked at the store's own time, and a step during which a record of the model
ended is repeated for neither: the program ends there. Fences are compared by their order per key; a baton's token, which
each side draws for itself, only as *a* baton.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from soloist._world import run
from soloist.contract import Busy, Evict, Gone, Grant, Holder, Last, Late, Look, Release, Renew, Store
from soloist.errors import StoreError
from soloist.stores import open_store
from soloist.stores.memory import Model, Record, Ticket
from tests.subjects import KINDS, STORES

SOON = 0.1
"""Seconds of a short lease; every other one outlives the program."""

NEAR = 0.02
"""Seconds that two clocks' ideas of what is left may differ."""

TOKENS = ["ann/1", "ann/2", "bob/1", "a/b/5.0/x", "a/b/5.1/y"]
TTLS = st.sampled_from([SOON, 60.0, 120.0, 600.0])
STATES = st.sampled_from(["publishing", "queued", "running", "kept"])
INFOS = st.dictionaries(st.sampled_from(["host", "pid", "ü", "limit"]), st.integers(0, 9) | st.text(max_size=5), max_size=3)
KEYS = st.sampled_from(["k", "k2", "other:{key}\n"])
TOKEN = st.sampled_from(TOKENS)
SLOTS = st.sampled_from([1, 1, 1, 3])

step = st.one_of(
    st.tuples(
        *(st.just("claim"), KEYS, TOKEN, TTLS, INFOS, STATES, st.none() | st.none() | TOKEN, SLOTS),
        *(st.booleans(), st.sampled_from([0, 0, 0, 5, -5])),
    ),
    st.tuples(st.just("renew"), KEYS, TOKEN, TTLS, st.none() | STATES, st.none() | INFOS),
    st.tuples(st.just("release"), KEYS, TOKEN, st.sampled_from([0, 0, SOON, 90]), st.none() | st.tuples(TOKEN, STATES)),
    st.tuples(st.just("evict"), KEYS, TOKEN, SLOTS),
    st.tuples(st.just("look"), KEYS, SLOTS),
    st.tuples(st.just("listing"), st.sampled_from(["", "k", "k2", "x"]), st.sampled_from([1, 2, 100])),
    st.tuples(st.just("wait"), KEYS),
    st.tuples(st.just("pass time")),
    st.tuples(st.just("batch"), st.lists(st.tuples(st.sampled_from(["renew", "release", "evict", "look"]), KEYS, TOKEN), max_size=5)),
)


@dataclass
class Pair:
    """A store and its model, with the grants that each of them gave."""

    store: Store
    fresh: str
    model: Model = field(default_factory=lambda: Model(lambda: "baton/1"))
    grants: dict[tuple[str, str], tuple[Grant, Grant]] = field(default_factory=dict)
    fences: dict[str, dict[int, int]] = field(default_factory=dict)
    took: float = 0.0
    """Seconds that the last request took at most, by the store's clock; of so much two moments may be apart."""

    def now(self) -> float:
        return run(self.store.ping())

    def same_moment(self, before: float) -> bool:
        """Nothing in the model ended between then and now, so both sides were asked at the same time, as it were."""
        after = self.now()
        self.took = after - before
        return not any(before - NEAR <= record.until <= after + NEAR for record in self.records())

    def records(self) -> list[Record]:
        """The model's."""
        return [record for slots in self.model._slots.values() for record in slots.values()]

    def grant(self, key: str, token: str) -> tuple[Grant, Grant]:
        forged = Grant(key, token, 1, None, 0, 1.0, 0.0)
        return self.grants.get((key, token), (forged, forged))

    def compare(self, theirs: Any, ours: Any) -> None:
        """The store's reply and the model's."""
        assert type(theirs) is type(ours), (theirs, ours)
        if isinstance(theirs, Grant):
            assert (theirs.key, theirs.slot, theirs.last) == (ours.key, ours.slot, ours.last)
            assert self.plain(theirs.token) == self.plain(ours.token)
            self.near(theirs.ttl, ours.ttl)
            self.ordered(ours.key, theirs.fence, ours.fence)
            self.grants[ours.key, theirs.token if theirs.token in TOKENS else "baton"] = (theirs, ours)
        elif isinstance(theirs, Busy):
            self.compare(theirs.holders, ours.holders)
        elif isinstance(theirs, Gone):
            assert (theirs.last, theirs.state) == (ours.last, ours.state)
        elif isinstance(theirs, tuple) and not isinstance(theirs, Late | Holder):
            assert len(theirs) == len(ours), (theirs, ours)
            for one, other in zip(theirs, ours, strict=True):
                self.compare(one, other)
        elif isinstance(theirs, Holder):
            assert self.bare(theirs) == self.bare(ours)
            self.near(theirs.ttl, ours.ttl)
            self.ordered(ours.key, theirs.fence, ours.fence)
        elif not isinstance(theirs, Late):
            assert theirs == ours

    def bare(self, holder: Holder) -> Holder:
        """Without what is compared otherwise."""
        return holder._replace(token=self.plain(holder.token), fence=0, ttl=0)

    def plain(self, token: str) -> str:
        return token if token in TOKENS else "baton"

    def near(self, theirs: float, ours: float) -> None:
        assert ours - NEAR - self.took <= theirs <= ours + NEAR + self.took + self.store.capabilities.late_by

    def ordered(self, key: str, theirs: int | None, ours: int | None) -> None:
        assert theirs is not None
        assert ours is not None
        known = self.fences.setdefault(key, {})
        assert known.setdefault(ours, theirs) == theirs
        assert all(one[1] < other[1] for one, other in pairwise(sorted(known.items()))), known

    def step(self, program: tuple[Any, ...]) -> bool:  # noqa: C901, PLR0911, PLR0912 - a table of verbs
        """Ask both sides; False where the clock came between them."""
        match program:
            case ("pass time",):
                now = self.now()
                short = [record.until - now for record in self.records() if now < record.until < now + 1.1]
                time.sleep(max(short, default=0) + 2 * NEAR if short else 0)
                return True
            case ("claim", key, token, ttl, info, state, expect, slots, will_wait, late):
                key = self.fresh + key
                before = self.now()
                arguments: dict[str, Any] = {"info": info, "state": state, "expect": expect, "slots": slots}
                arguments["not_after"] = before + late if late else None
                arguments["will_wait"] = will_wait and expect is None and bool(self.store.capabilities.push)
                theirs = run(self.store.claim(key, token, ttl, **arguments))
                if not self.same_moment(before):
                    return False
                self.compare(theirs, self.model.claim(theirs.now, key, token, ttl, **arguments))
            case ("renew", key, token, ttl, state, info):
                grant, ours = self.grant(self.fresh + key, token)
                before = self.now()
                answer = run(self.store.renew(grant, ttl, state=state, info=info))
                if not self.same_moment(before):
                    return False
                self.compare(answer, self.model.renew(answer.now, ours, ttl, state=state, info=info))
            case ("release", key, token, keep, last):
                grant, ours = self.grant(self.fresh + key, token)
                remembered = Last(*last) if last and keep else None
                before = self.now()
                done = run(self.store.release(grant, keep, remembered))
                if not self.same_moment(before):
                    return False
                self.compare(done, self.model.release(before, ours, keep, remembered))
            case ("evict", key, token, slots):
                before = self.now()
                done = run(self.store.evict(self.fresh + key, token, slots=slots))
                if not self.same_moment(before):
                    return False
                self.compare(done, self.model.evict(before, self.fresh + key, token, slots=slots))
            case ("look", key, slots):
                before = self.now()
                found = run(self.store.look(self.fresh + key, slots=slots))
                if not self.same_moment(before):
                    return False
                self.compare(found, self.model.look(before, self.fresh + key, slots=slots))
            case ("listing", prefix, limit):
                before = self.now()
                pages = self.pages(prefix, limit)
                if not self.same_moment(before):
                    return False
                expected = self.model.listing(before, self.fresh + prefix, None, 10_000).holders
                self.compare(tuple(sorted(pages)), tuple(sorted(expected)))
            case ("wait", key):
                return self.wait(self.fresh + key)
            case ("batch", lines):
                return self.batch(lines)
        return True

    def pages(self, prefix: str, limit: int) -> list[Holder]:
        found: list[Holder] = []
        cursor = None
        while True:
            page = run(self.store.listing(self.fresh + prefix, cursor, limit))
            found += page.holders
            cursor = page.cursor
            if cursor is None:
                return found

    def wait(self, key: str) -> bool:
        """Only where a baton lies: elsewhere nothing would wake us."""
        records = self.model._slots.get(key, {})
        before = self.now()
        if not any(record.lying and record.until > before + 2 * NEAR for record in records.values()):
            return True
        theirs = run(self.store.wait(key, before, within=1))
        if not self.same_moment(before):
            return False
        given: list[Grant] = []
        self.model.enter(before, key, Ticket(lambda baton: given.append(baton.grant(before))))
        self.compare(theirs, given[0])
        return True

    def batch(self, lines: list[tuple[str, str, str]]) -> bool:
        kinds = {
            "renew": lambda key, token, side: Renew(self.grant(key, token)[side], 300),
            "release": lambda key, token, side: Release(self.grant(key, token)[side]),
            "evict": lambda key, token, side: Evict(key, token, 3),
            "look": lambda key, token, side: Look(key, 3),
        }
        theirs, ours = ([kinds[kind](self.fresh + key, token, side) for kind, key, token in lines] for side in (0, 1))
        before = self.now()
        verdicts = run(self.store.batch(theirs))
        if not self.same_moment(before):
            return False
        for verdict, line in zip(verdicts, ours, strict=True):
            assert not isinstance(verdict, StoreError), verdict
            self.compare(verdict, self.alone(before, line))
        return True

    def alone(self, now: float, line: object) -> object:
        match line:
            case Renew(grant, ttl, state, info):
                return self.model.renew(now, grant, ttl, state=state, info=info)
            case Release(grant, keep, last):
                return self.model.release(now, grant, keep, last)
            case Evict(key, token, slots):
                return self.model.evict(now, key, token, slots=slots)
            case Look(key, slots):
                return self.model.look(now, key, slots=slots)
            case _:
                raise AssertionError(line)


def refine(store: Store, program: list[tuple[Any, ...]]) -> None:
    pair = Pair(store, f"{uuid4().hex}:")
    for line in program:
        if not pair.step(line):
            return


PROGRAMS = st.lists(step, max_size=25)
LENIENT = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
    "print_blob": True,
}


@pytest.fixture(scope="module", params=STORES)
def store(request, tmp_path_factory):
    return open_store(KINDS[request.param].url(request, tmp_path_factory.mktemp("refinement")), "so", aio=False)


@settings(max_examples=500, **LENIENT)
@given(program=PROGRAMS)
def test_every_store_refines_the_model(store, program):
    refine(store, program)
