"""What an operator reads in the log: a line for each event, at the right level, without any configuration."""

import logging
import subprocess
import sys
from typing import get_args

import pytest

from soloist import Soloist, events
from soloist.contract import Holder
from soloist.instrumentation.logging import listen

HOLDER = Holder("k", 0, "token", 7, 12.0, "running", {"pid": 1})
LINES = [
    (events.Acquired("k", 7, 0, 0.5), logging.DEBUG, "Acquired(key='k', fence=7, slot=0, waited=0.5)"),
    (events.Refused("k", HOLDER, 0.5), logging.DEBUG, "Refused(key='k'"),
    (events.Released("k", 7, ours=True, kept=0), logging.DEBUG, "Released(key='k'"),
    (events.ReleaseFailed("k", 7, "no answer"), logging.WARNING, "'k' (fence 7) couldn't be released: no answer. It is tried again"),
    (events.Lost("k", 7, "taken"), logging.WARNING, "'k' (fence 7) was lost (taken): its holder must stop"),
    (events.Dropped("k", 7), logging.WARNING, "the hold of 'k' (fence 7) was forgotten without a release"),
    (events.Degraded("k", "no answer"), logging.WARNING, "'k' runs without protection, since the store is down: no answer"),
    (events.Protected("k", 7), logging.INFO, "'k' is protected again (fence 7)"),
    (events.StoreDown("refused"), logging.WARNING, "the store is down: refused"),
    (events.StoreBack(7.0), logging.INFO, "the store answers again, after 7.0 s"),
    (events.ClockJump("server", -60.0), logging.WARNING, "the wall clock of the server jumped by -60.0 s"),
    (events.LimitsDiffer("k", 3, 5), logging.WARNING, "semaphore 'k': asked for with limit 3, held with limit 5"),
    (events.ForceReleased(HOLDER, "me on web-1"), logging.WARNING, "'k' was taken away from token token (fence 7) by me on web-1"),
    (events.CallbackFailed("on_lost", "ValueError('no')"), logging.WARNING, "on_lost raised ValueError('no')"),
]


@pytest.mark.parametrize(("event", "level", "line"), LINES, ids=[type(event).__name__ for event, _, _ in LINES])
def test_each_event_has_a_line_at_its_level(event, level, line, caplog):
    with caplog.at_level(logging.DEBUG, logger="soloist"):
        listen(event)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("soloist", level)
    assert record.getMessage().startswith(line)


def test_every_event_is_in_the_table():
    assert {type(event) for event, _, _ in LINES} == set(get_args(events.Event))


def test_a_key_that_looks_like_a_format_is_shown_as_it_is(caplog):
    listen(events.Lost("100%(key)s%d", 7, "taken"))
    assert "'100%(key)s%d'" in caplog.text


def test_what_happens_all_the_time_costs_nothing_while_nobody_listens(caplog):
    with caplog.at_level(logging.INFO, logger="soloist"):
        listen(events.Acquired("k", 7, 0, 0.5))
    assert caplog.records == []


SCRIPT = """
from soloist import Soloist
solo = Soloist("memory://")
with solo.lock("quiet"):
    pass
hold = solo.lock("report:42").acquire()
solo.force_release("report:42")
"""


def test_warnings_reach_the_screen_without_any_configuration_and_the_rest_does_not():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "'report:42' was taken away from token" in done.stderr
    assert "quiet" not in done.stderr


def test_a_password_is_never_logged(caplog, key):
    from tools.servers import free_port

    pytest.importorskip("redis")
    url = f"redis://me:secret-word@127.0.0.1:{free_port()}/0"
    with caplog.at_level(logging.DEBUG), Soloist(url, store_timeout=0.5) as solo, solo.lock(key, if_store_down="run"):
        pass
    assert "runs without protection" in caplog.text
    assert "secret-word" not in caplog.text
