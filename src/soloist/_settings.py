"""Settings: what is given in code, else the environment, else a default. And the refusals: one sentence each, with what to do.

The environment has `SOLOIST_URL` and `SOLOIST_NAMESPACE`, nothing else. There is no default store: it would exclude nobody.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeVar, cast, get_args

from soloist.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from soloist.contract import Capabilities

C = TypeVar("C")

IfStoreDown = Literal["raise", "run"]

NAMESPACE = "so"
STORE_TIMEOUT = 3.0
LONGEST_TIMEOUT = 3600.0
MOST_SLOTS = 10_000
LEASE = 30.0

FOREIGN_WORDS = {
    "timeout": "lease= is how long the hold outlives a dead holder, wait= how long to wait for it",
    "blocking": "wait=0 asks once, wait=math.inf waits for ever; lease= is how long the hold outlives a dead holder",
}
"""Words of other libraries: `timeout` is the lease in redis-py, and the wait in `threading`."""


ENDLESS = {
    "lease": "choose how long a dead holder may block the others, and let it be renewed",
    "max_hold": "None means that it is renewed for ever",
}
"""What to write instead of infinity."""


def url(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The store's URL."""
    found = environment.get("SOLOIST_URL") if given is None else given
    if found is None or found == "":
        raise ConfigError(
            'no store is given: pass a URL, as in Soloist("sqlite:///soloist.db") for the processes of one host, '
            "or set the environment variable SOLOIST_URL"
        )
    if not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        # Its type alone: a URL in bytes may hold a password.
        raise ConfigError(f'a store is named by a URL such as "redis://localhost:6379/0", a str, not by {type(found).__name__}')
    return found


def namespace(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The prefix that keeps two applications on one server apart."""
    found = given if given is not None else environment.get("SOLOIST_NAMESPACE", NAMESPACE)
    if found == "" or not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the same
        raise ConfigError(f"namespace= is a short name such as {NAMESPACE!r}, not {_shown(found)}")
    return _encodable("namespace", found)


def key(given: str) -> str:
    """A key that every store takes."""
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the same
        raise ConfigError(f"a key is a str, not {_shown(given)}: write f'report:{{id}}', for example")
    if not given:
        raise ConfigError("a key can't be empty: name what is guarded, as in 'report:42'")
    return _encodable("key", given)


def prefix(given: str) -> str:
    """What the keys that are asked for begin with."""
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the same
        raise ConfigError(f"a prefix of keys is a str, not {_shown(given)}: '' means all of them")
    return _encodable("prefix", given)


def fence(given: int | None) -> int | None:
    """The fence of a certain hold."""
    if given is not None and (isinstance(cast("object", given), bool) or not isinstance(cast("object", given), int)):
        raise ConfigError(f"fence= is the number of a hold, as `holder.fence` shows it, not {_shown(given)}")
    return given


def seconds(name: str, given: float, *, least: float = 0.0, above: bool = False, endless: bool = False, most: float = math.inf) -> float:
    """A number of seconds; `above` excludes `least` itself, `endless` allows infinity."""
    if isinstance(cast("object", given), bool) or not isinstance(cast("object", given), int | float) or given != given:  # noqa: PLR0124 - nan
        raise ConfigError(f"{name}= is a number of seconds, not {_shown(given)}")
    try:
        found = float(given)
    except OverflowError:  # an int with more digits than a float can hold
        found = math.inf if given > 0 else -math.inf
    if found < least or (above and found == least):
        raise ConfigError(f"{name}={found:g} is too short: it must be {'more than' if above else 'at least'} {least:g} s")
    if math.isinf(found) and not endless:
        raise ConfigError(f"{name}= can't be infinite: " + ENDLESS.get(name, "choose a number of seconds"))
    if found > most:
        raise ConfigError(f"{name}={found:g} is too long: it must be at most {most:g} s")
    return found


def lease(name: str, given: float, store: Capabilities) -> float:
    """Seconds that a record may live in this store."""
    found = seconds(name, given, above=True)
    if found < store.shortest_ttl:
        raise ConfigError(f"{name}={found:g} is too short for this store: its shortest lease is {store.shortest_ttl:g} s")
    if found > store.longest_ttl:
        raise ConfigError(f"{name}={found:g} is too long for this store: its longest lease is {store.longest_ttl:g} s")
    return found


def limit(given: int) -> int:
    """How many may hold a semaphore at once."""
    if isinstance(cast("object", given), bool) or not isinstance(cast("object", given), int) or given < 1:
        raise ConfigError(f"limit= is how many may hold the key at once, 1 or more, not {_shown(given)}")
    if given > MOST_SLOTS:
        raise ConfigError(f"limit={given!r:.20} is too high: each claim reads every slot, so {MOST_SLOTS} at most; split the key")
    return given


def if_store_down(given: IfStoreDown) -> IfStoreDown:
    """What to do without a store."""
    if given not in get_args(IfStoreDown):
        raise ConfigError(f'if_store_down= is "raise" (no store, no work) or "run" (work without protection), not {_shown(given)}')
    return given


def switch(name: str, given: bool) -> bool:  # noqa: FBT001 - the value of an option, not a flag
    """True or False."""
    if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # the same
        raise ConfigError(f"{name}= is True or False, not {_shown(given)}")
    return given


def callback(name: str, given: C | None, *, aio: bool) -> C | None:
    """A function, or None. Where nothing awaits, a coroutine function would do nothing."""
    if not aio and inspect.iscoroutinefunction(given):
        raise ConfigError(f"{name}= is a coroutine function, which only an AsyncSoloist can call: give Soloist a plain one")
    if given is not None and not callable(given):
        raise ConfigError(f"{name}= is a function, or None, not {_shown(given)}")
    return given


def callbacks(name: str, given: Iterable[C]) -> tuple[C, ...]:
    """Several functions."""
    if callable(given) or not isinstance(cast("object", given), Iterable) or not all(map(callable, found := tuple(given))):
        raise ConfigError(f"{name}= is a list of functions, such as [print], not {_shown(given)}")
    return found


def refuse(where: str, wrong: Mapping[str, object]) -> None:
    """Refuse keyword arguments that don't exist, with a sentence for the words of other libraries."""
    for name in wrong:
        raise ConfigError(f"{where} has no {name}=: " + FOREIGN_WORDS.get(name, "see its docstring for the options that it has"))


def _encodable(what: str, given: str) -> str:
    try:
        given.encode()
    except UnicodeEncodeError as error:
        at = error.start
        raise ConfigError(f"the {what} {given!r} has a lone surrogate at {at}: decode the text before it becomes a {what}") from None
    return given


def _shown(given: object) -> str:
    return f"{type(given).__name__} {given!r:.60}"
