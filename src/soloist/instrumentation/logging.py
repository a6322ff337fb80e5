"""Events as lines of the standard library's logger `soloist`: what needs somebody's eye as warnings, its end at INFO, what is
everyday at DEBUG."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from soloist import events

if TYPE_CHECKING:
    from soloist.events import Event

log = logging.getLogger("soloist")

QUIET = (events.Acquired, events.Released, events.Refused)
WARNINGS: dict[type[Event], str] = {
    events.ReleaseFailed: "%(key)r (fence %(fence)s) couldn't be released: %(error)s. It is tried again, and its lease ends by itself",
    events.Lost: "%(key)r (fence %(fence)s) was lost (%(why)s): its holder must stop",
    events.Dropped: "the hold of %(key)r (fence %(fence)s) was forgotten without a release: it ends with its lease. Keep it, or use `with`",
    events.Degraded: "%(key)r runs without protection, since the store is down: %(error)s",
    events.StoreDown: "the store is down: %(error)s",
    events.ClockJump: "the wall clock of the %(whose)s jumped by %(seconds).1f s: leases may have ended early or late",
    events.LimitsDiffer: "semaphore %(key)r: asked for with limit %(ours)d, held with limit %(theirs)d; use one limit everywhere",
    events.CallbackFailed: "%(what)s raised %(error)s",
}
NOTICES: dict[type[Event], str] = {
    events.Protected: "%(key)r is protected again (fence %(fence)s)",
    events.StoreBack: "the store answers again, after %(seconds).1f s",
}


def listen(event: Event) -> None:
    """Log one event."""
    if isinstance(event, QUIET):
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", event)
    elif isinstance(event, events.ForceReleased):
        log.warning("%r was taken away from token %s (fence %s) by %s", event.holder.key, event.holder.token, event.holder.fence, event.by)
    elif (line := WARNINGS.get(type(event))) is not None:
        log.warning(line, event._asdict())
    else:
        log.info(NOTICES[type(event)], event._asdict())
