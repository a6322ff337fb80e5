"""Where gevent has patched threads, locks and sockets, a greenlet is what a thread is elsewhere."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

HAPPENS = ["the first is told that it has it already", "the second is refused", "the first has it still", "the second has it"]


@pytest.mark.long
def test_greenlets_exclude_one_another_and_renewals_go_on_while_they_wait(url):
    environ = os.environ | {"SOLOIST_NAMESPACE": uuid4().hex}
    command = [sys.executable, Path(__file__).with_name("under_gevent.py"), url]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == HAPPENS, done.stderr
    assert done.returncode == 0, done.stderr
