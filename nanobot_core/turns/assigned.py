"""Turns that are not started by a person's message: their rights, and who gets the answer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.agent.run import AgentRunResult
    from nanobot_core.events import TurnOutcome
    from nanobot_core.messages import InboundMessage

Standing: TypeAlias = Literal["owner", "guest", "revoked"]
"""The rights of a sender now; ``revoked``: their work is refused."""
REVOKED = "The person who asked for this may no longer write to the agent, so it was not done."
NOT_NOTABLE = "(nothing worth a message)"


async def standing_by_request(message: InboundMessage) -> Standing:
    """Return the rights that the requester had; in a program, they cannot be revoked."""
    given = message.assignment
    return "guest" if given is None or given.requester.authority == "guest" else "owner"


@cache
def report_form() -> type[BaseModel]:
    """Return the form of an answer that may be withheld."""
    from pydantic import BaseModel, Field

    class Report(BaseModel):
        """The result of a task in the background."""

        worth_a_message: bool = Field(
            description="Whether the person should be interrupted for it: something is new, "
            "wrong, or needs a decision."
        )
        text: str = Field(description="The message to the person, in Markdown.")

    return Report


def as_report(result: AgentRunResult) -> AgentRunResult:
    """Return the result of a run in that form with its text as the answer.

    A run that ended without the form, by its budget for instance, has nothing worth a message.
    Its text is kept only as the error of a failed run. It is not stored, because a restart could
    send it.
    """
    text = str(getattr(result.output, "text", "")).strip()
    is_notable = text and getattr(result.output, "worth_a_message", False)
    shown = text if is_notable else NOT_NOTABLE
    answer = replace(result.messages[-1], content=shown)
    content = result.content if result.stop_reason == "failed" else shown
    messages = (*result.messages[:-1], answer)
    return replace(result, content=content, messages=messages, output=None)


def text_for_chat(outcome: TurnOutcome) -> str | None:
    """Return the text for the chat of a turn, or ``None``; failures of work are not sent to it."""
    given = outcome.turn.assignment
    if given is None:
        return outcome.error or outcome.reply
    is_withheld = given.delivery == "when_notable" and outcome.reply == NOT_NOTABLE
    return None if given.delivery == "never" or is_withheld or outcome.error else outcome.reply


def joins(message: InboundMessage, running: InboundMessage) -> bool:
    """Whether a message could belong to the turn of another if both have the same rights.

    Args:
        message: the one that arrives.
        running: the one of the turn.
    """
    given = [each.assignment for each in (message, running) if each.assignment is not None]
    if not given:
        return message.sender_id == running.sender_id
    return _origin(message) == _origin(running) and all(each.is_plain for each in given)


def _origin(message: InboundMessage) -> tuple[str, str, str]:
    return message.channel, message.chat_id, message.sender_id
