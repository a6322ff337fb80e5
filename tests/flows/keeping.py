"""What the tests of the keeper share: holds, a book of them, and a round."""

import math

from soloist._flows.asking import deadline
from soloist._flows.renewing import Book, Kept, Local, renew_due
from soloist._world import run
from tests.flows.scripted import grant


def kept_since(world, *, lease=30.0, token="mine", **facts):  # noqa: S107 - a token guards nothing here
    """A hold that was granted just now, and is due at once."""
    granted = grant(token, key=facts.get("key", "k"), ttl=lease)
    return Kept(
        **{"key": "k", "token": token, "grant": granted, "place": Local(deadline(world.time, lease)), "lease": lease, "due": world.time}
        | facts
    )


def book_of(*all_kept):
    book = Book()
    for kept in all_kept:
        book.add(kept)
    return book


def renew(world, store, book, patience=3.0):
    run(renew_due(world, store, book, patience))


def renewed(call):
    """Each line's renewal is granted, for the time that it asks for."""
    return tuple(line.grant._replace(ttl=line.ttl) for line in call.lines)


def degraded(world, **facts):
    return kept_since(world, **{"grant": None, "place": Local(math.inf)} | facts)
