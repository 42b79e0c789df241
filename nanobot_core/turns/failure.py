"""A turn that failed: told to its user in a sentence, and to the log with everything."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from nanobot_core.errors import NanobotError
from nanobot_core.events import ErrorRaised, TurnOutcome

if TYPE_CHECKING:
    from nanobot_core.events import TurnInfo
    from nanobot_core.hooks.caller import Hooks


def failed_outcome(turn: TurnInfo, hooks: Hooks, error: Exception) -> TurnOutcome:
    """Log and report what ended a turn, and return the sentence that its user reads.

    An error of ours is shown unchanged; of any other the user learns the id that the log has.
    """
    from loguru import logger

    error_id = uuid4().hex[:8]
    bound = logger.bind(session=turn.session_key, turn=turn.id)
    if isinstance(error, NanobotError):
        sentence = str(error)
        bound.opt(exception=error).debug("turn failed ({})", error_id)
        bound.error("turn failed ({}): {}", error_id, type(error).__name__)
    else:
        sentence = f"Something went wrong inside nanobot; the log has it under {error_id}"
        bound.opt(exception=error).error("turn failed ({})", error_id)
    if hooks.on_error:
        hooks.on_error(
            ErrorRaised(
                id=error_id,
                place="turn",
                error_type=type(error).__name__,
                message=str(error),
                turn=turn,
            )
        )
    return TurnOutcome(
        turn=turn, reply=None, stop_reason="failed", error=sentence, error_id=error_id
    )
