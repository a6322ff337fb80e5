"""Real processes on real stores, killed and stopped at the worst moments."""

from __future__ import annotations

import json
import os
import sys
import time
from uuid import uuid4

import pytest

from soloist import Soloist
from soloist.testing.checker import check
from tests.processes import register
from tests.processes.contest import Contest
from tests.processes.worker import KEYS, LEASE
from tests.subjects import KINDS, SHARED

SHORT = pytest.param({"sections": 250, "kills": 4, "stops": 4, "limit": 90}, 0, id="short", marks=pytest.mark.long)
WHOLE = pytest.param({"sections": 2000, "kills": 20, "stops": 20, "limit": 600}, 1, id="whole", marks=pytest.mark.full)
"""How much there must be, and how many late writes that were refused: whether there are any in a short run is luck."""


@pytest.fixture(params=SHARED)
def url(request, tmp_path, monkeypatch):
    monkeypatch.setenv("SOLOIST_NAMESPACE", uuid4().hex)  # the workers' keys are the same in each run
    return KINDS[request.param].url(request, tmp_path)


@pytest.mark.parametrize(("size", "least_refused"), [SHORT, WHOLE])
def test_no_update_is_lost_whoever_is_killed_or_stopped(url, size, least_refused, tmp_path, capsys):
    seed = int(os.environ.get("SOLOIST_SEED", time.time_ns() % 1_000_000))
    contest = Contest(url, tmp_path, seed)
    contest.run(**size)
    history = contest.history()
    (tmp_path / "history.json").write_text(json.dumps(history))
    written = [line for line in history if line["what"] == "wrote"]
    refused = sum(not line["ours"] for line in written)
    with capsys.disabled():
        struck = contest.strikes
        sys.stdout.write(
            f"\n{url.partition(':')[0]}, seed {seed}: {len(written)} sections; of {struck.sent} signals {struck.kills} killed a holder, "
            f"{struck.stops} stopped one past its lease; {refused} late writes were refused\n"
        )
    assert check(history) == []
    assert refused >= least_refused, "no signal made anybody write too late, so nothing shows that the fence is needed"
    for key in KEYS:
        accepted = sum(line["ours"] for line in written if line["key"] == key)
        assert register.value(tmp_path / f"{key}.register") == accepted


@pytest.mark.long
def test_no_key_stays_stuck_past_its_lease(url, tmp_path):
    contest = Contest(url, tmp_path, 1, workers=3)
    contest.run(sections=20, kills=2, stops=0, limit=60)
    with Soloist(url) as solo:
        for key in KEYS:
            with solo.lock(key, wait=LEASE + 1):
                pass
