"""Two greenlets contend for one key, in a process that gevent has patched: `python under_gevent.py URL` prints what happens."""

# ruff: noqa: E402, T201 - the patch comes first; whoever runs this reads what it prints
from gevent import monkey

monkey.patch_all()

import sys

import gevent
from gevent.event import Event

from soloist import AlreadyHeldHere, NotAcquired, Soloist

LEASE = 1.0


def main(url):
    """The first keeps the key beyond its lease, which takes renewals; the second is refused, and then waits for its turn."""
    held = Event()
    with Soloist(url) as solo:

        def first():
            with solo.lock("k", lease=LEASE) as hold:
                try:
                    solo.lock("k").acquire()
                except AlreadyHeldHere:
                    print("the first is told that it has it already")
                held.set()
                gevent.sleep(2.5 * LEASE)
                hold.check()
                print("the first has it still")

        def second():
            held.wait()
            try:
                with solo.lock("k"):
                    print("the second broke in")
            except NotAcquired:
                print("the second is refused")
            with solo.lock("k", wait=30):
                print("the second has it")

        gevent.joinall([gevent.spawn(first), gevent.spawn(second)], raise_error=True)


if __name__ == "__main__":
    main(sys.argv[1])
