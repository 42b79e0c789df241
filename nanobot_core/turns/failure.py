"""Failed turns: a message with an id for the user, and the details under that id in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from nanobot_core.errors import FOREIGN_ERRORS, NanobotError
from nanobot_core.events import ErrorRaised, TurnOutcome
from nanobot_core.text import shorten

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pydantic import BaseModel

    from nanobot_core.agent.run import AgentRunResult
    from nanobot_core.events import TurnInfo
    from nanobot_core.hooks.caller import Hooks

T = TypeVar("T")
INVALID_OUTPUT = (
    "the answer is not a valid {name}: {findings}; describe the fields of {name}, simplify it or "
    "choose another model; the model answered: {answer}"
)


async def or_instead(instead: T, work: Awaitable[T], consequence: str) -> T:
    """Return the result of a service that a turn can do without; `instead` if it fails."""
    try:
        return await work
    except FOREIGN_ERRORS as error:
        from loguru import logger

        logger.warning("{}: {}: {}", consequence, type(error).__name__, error)
        return instead


async def outcome_of(turn: TurnInfo, hooks: Hooks, work: Awaitable[TurnOutcome]) -> TurnOutcome:
    """Return the outcome of a turn; a failure is logged, reported, and does not affect other turns.

    The message for the user ends with the id under which the log has the details. The text of an
    error that is not ours is not shown, because it may contain anything.
    """
    try:
        return await work
    except FOREIGN_ERRORS as error:
        from loguru import logger

        error_id = uuid4().hex[:8]
        bound = logger.bind(session=turn.session_key, turn=turn.id)
        if isinstance(error, NanobotError):
            sentence = f"{error} (error {error_id})"
            bound.opt(exception=error).debug("traceback of error {}", error_id)
            bound.error("turn failed, error {}: {}: {}", error_id, type(error).__name__, error)
        else:
            sentence = (
                "Something went wrong inside nanobot. Please send the message again; if that "
                f"fails, the owner finds the details in the log (error {error_id})"
            )
            bound.opt(exception=error).error("turn failed, error {}", error_id)
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


def error_of(result: AgentRunResult, output: type[BaseModel] | None) -> str | None:
    """Return the message for the user if a run failed that had to return an `output`."""
    if result.stop_reason != "failed":
        return None
    if not result.findings or output is None:
        return result.content
    return INVALID_OUTPUT.format(
        name=output.__name__,
        findings="; ".join(result.findings),
        answer=shorten(result.content, 300),
    )
