"""What must be noted in the message queue, noted as soon as the disk allows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nanobot_core.errors import BusError

if TYPE_CHECKING:
    from nanobot_core.clock import Clock

RETRY_S = 5.0
_DOUBLINGS = 30


def growing_delay_s(attempt: int, longest_s: float) -> float:
    """Return the seconds to wait after `attempt`, counted from 1: 1, 2, 4 and so on."""
    # A day of attempts is more doublings than a float can hold.
    return min(2.0 ** min(attempt - 1, _DOUBLINGS), longest_s)


async def insist(step: Callable[[], Awaitable[object]], clock: Clock, what: str) -> None:
    """Do `step` until the message queue has taken it.

    A lease that is neither acknowledged nor released holds up its session or chat, so a full disk
    must cost time and not the rest of the process's life.

    Args:
        step: one change of the queue, all or nothing.
        clock: source of time.
        what: what is noted, for the log.

    Cancellation:
        Passed on; the next process hands the message out again.
    """
    from loguru import logger

    is_told = False
    while True:
        try:
            await step()
        except BusError as error:
            log = logger.debug if is_told else logger.error
            log("{} cannot be noted, trying on: {}", what, error)
            is_told = True
            await clock.sleep(RETRY_S)
        else:
            return
