"""How long things may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Seconds that things may take.

    Attributes:
        step_s: connecting, and each wait for bytes.
        call_s: a call as a whole.
        transfer_s: sending or fetching files.
        poll_s: how long Telegram may keep a question for updates open.
    """

    step_s: float = 30.0
    call_s: float = 60.0
    transfer_s: float = 180.0
    poll_s: float = 30.0
