"""Structured output in the SDK: turns that end with an object, and the errors of the others."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nanobot_core.agent.structured import answer_schema
from nanobot_core.errors import NanobotError
from nanobot_core.events import StructuredOutcome, TurnOutcome

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.turns.request import TurnRequest


class NoOutput(NanobotError):
    """A run with `output` ended without the object.

    Attributes:
        outcome: of the run, with its usage; its `stop_reason` and `error` say why.
    """

    def __init__(self, outcome: TurnOutcome) -> None:
        self.outcome: TurnOutcome = outcome
        reason = outcome.error or outcome.reply or "it was stopped"
        super().__init__(f"the run ended without the object: {reason}")


class OutputInvalid(NoOutput):
    """The model gave an answer that is not valid, and could not correct it.

    Attributes:
        answer: the last answer, as JSON if it is an object.
        findings: what is wrong with it, each with its place.
    """

    def __init__(self, outcome: TurnOutcome) -> None:
        self.answer: str = outcome.reply or ""
        self.findings: tuple[str, ...] = outcome.findings
        super().__init__(outcome)


def with_output(request: TurnRequest, output: type[BaseModel]) -> TurnRequest:
    """Return `request` for an answer that is an object.

    Raises:
        TypeError: `output` is not a pydantic model with named fields.
    """
    answer_schema(output)
    return replace(request, output=output)


async def object_of(work: Awaitable[TurnOutcome]) -> StructuredOutcome[Any]:
    """Return the outcome of a turn if it has the object.

    Raises:
        OutputInvalid: the model's answers do not fit.
        NoOutput: the turn failed or was stopped before there was an object.
    """
    outcome = await work
    if isinstance(outcome, StructuredOutcome):
        return outcome
    raise (OutputInvalid if outcome.findings else NoOutput)(outcome)
