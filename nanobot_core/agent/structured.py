"""Structured output: a run that ends with an object which fits a pydantic model.

A model of a service with JSON Schemas answers by the schema; the others call a tool whose
parameters are the schema. The object is read from either, because a fallback may be of the other
kind. An answer that is not valid is returned to the model once, with what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.agent.run import Model
from nanobot_core.contracts.provider import ChatRequest, LLMResponse
from nanobot_core.errors import ToolInputError
from nanobot_core.events import ToolDefinition
from nanobot_core.messages import JsonObject, Message, ToolCall
from nanobot_core.record import dataclass
from nanobot_core.text import repair_json_object, shorten
from nanobot_core.tools.casting import cast_params
from nanobot_core.tools.model import model_schema, read_model
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.tools.strict import without_unset

if TYPE_CHECKING:
    from pydantic import BaseModel

ANSWER_TOOL = "final_answer"
DESCRIPTION = (
    "Give the final answer to the user. The task ends with this call: make it alone, once, when "
    "everything else is done. An answer in words does not reach the user."
)
REJECTED = "Your answer is not valid: {findings}."
CORRECT = "Correct it, and answer with the whole object and nothing else."
CUT = "it was too long and was cut off; give a shorter answer"
EMPTY = "it is empty"
MAX_FINDINGS_CHARS = 4_000
NOT_AN_OBJECT = "it is not a JSON object"
TWICE = "{name} was called {count} times; call it once, with the whole answer"


@dataclass(frozen=True, slots=True)
class ObjectAnswer:
    """An answer that should be an object.

    Attributes:
        text: the answer as JSON, or as the model gave it if it is none.
        value: the object, or ``None`` if the answer is not valid.
        findings: what is wrong with it.
    """

    text: str
    value: BaseModel | None = None
    findings: tuple[str, ...] = ()


class AnswerForm:
    """The object that one run has to end with.

    Attributes:
        name: of the tool that takes the object; it differs from the names of the run's tools.
        is_last: the next call must give the object: nothing else is offered.

    Args:
        model: the object's class.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.name: str = ANSWER_TOOL
        self.is_last: bool = False
        self._model = model
        self._schema = answer_schema(model)

    def offered(self, tools: ToolRegistry) -> tuple[ToolDefinition, ...]:
        """Return what the next call offers: the tools and the one for the object."""
        number, self.name = 1, ANSWER_TOOL
        while self.name in tools:
            number += 1
            self.name = f"{ANSWER_TOOL}_{number}"
        about = self._schema.get("description")
        description = f"{DESCRIPTION}\n\n{about}" if about else DESCRIPTION
        own = ToolDefinition(name=self.name, description=description, parameters=self._schema)
        return (own,) if self.is_last else (*tools.get_definitions(), own)

    def shape(self, model: Model, request: ChatRequest) -> ChatRequest:
        """Return `request` in the form in which `model` can be made to give the object."""
        if _answers_by_schema(model):
            tools = tuple(tool for tool in request.tools if tool.name != self.name)
            return replace(request, tools=tools, output_schema=self._schema)
        return replace(request, tool_choice="required") if self.is_last else request

    def work(self, response: LLMResponse) -> LLMResponse | None:
        """Return `response` with its calls of other tools; ``None`` if it is the answer.

        An answer beside other calls was given without their results, so the model gives it again.
        """
        calls = tuple(call for call in response.tool_calls if call.name != self.name)
        return replace(response, tool_calls=calls) if calls and not self.is_last else None

    def read(self, response: LLMResponse) -> ObjectAnswer:
        """Return the object in an answer; calls of other tools do not count."""
        calls = [call for call in response.tool_calls if call.name == self.name]
        text = "\n".join(map(_text_of, calls)) if calls else response.content or ""
        if response.finish_reason == "length":
            return ObjectAnswer(text, findings=(CUT,))
        if not calls:
            return self.read_text(text)
        if len(calls) > 1:
            return ObjectAnswer(text, findings=(TWICE.format(name=self.name, count=len(calls)),))
        return self._validated(text, None if calls[0].unparsed is not None else calls[0].arguments)

    def read_text(self, text: str) -> ObjectAnswer:
        """Return the object in a text, which may have words around it."""
        if not text.strip():
            return ObjectAnswer("", findings=(EMPTY,))
        return self._validated(text.strip(), _object_in(text))

    def correction(
        self, response: LLMResponse, calls: Sequence[ToolCall], findings: Sequence[str]
    ) -> list[Message]:
        """Return the messages that report an invalid answer to the model.

        Args:
            response: the answer.
            calls: its calls, with ids that every provider accepts.
            findings: what is wrong with it.
        """
        listed = shorten("; ".join(findings), MAX_FINDINGS_CHARS)
        text = f"{REJECTED.format(findings=listed)} {CORRECT}"
        content = response.content or ""
        if not calls or response.finish_reason == "length":
            said = [Message(role="assistant", content=content)] if content else []
            return [*said, Message(role="user", content=text)]
        made = Message(
            role="assistant",
            content=content,
            tool_calls=tuple(calls),
            reasoning=response.reasoning,
            provider_blocks=response.provider_blocks,
        )
        results = [
            Message(role="tool", content=text, tool_call_id=call.id, name=call.name, is_error=True)
            for call in calls
        ]
        return [made, *results]

    def _validated(self, text: str, arguments: JsonObject | None) -> ObjectAnswer:
        if arguments is None:
            return ObjectAnswer(text, findings=(NOT_AN_OBJECT,))
        unset = without_unset(self._schema, arguments)
        cast = cast_params(self._schema, unset if isinstance(unset, dict) else arguments)
        text = json.dumps(cast, ensure_ascii=False)
        try:
            return ObjectAnswer(text, read_model(self._model, cast))
        except ToolInputError as error:
            return ObjectAnswer(text, findings=(str(error),))


def answer_schema(model: object) -> JsonObject:
    """Return the JSON Schema of `model`.

    Raises:
        TypeError: it is not a pydantic model with named fields.
    """
    from pydantic import BaseModel

    if isinstance(model, type) and issubclass(model, BaseModel):
        return model_schema(model)
    msg = f"output must be a subclass of pydantic's BaseModel, found {model!r}; wrap it in one"
    raise TypeError(msg)


def _answers_by_schema(model: Model) -> bool:
    abilities = model.abilities
    return model.json_schema and (abilities is None or "json_schema" in abilities)


def _text_of(call: ToolCall) -> str:
    return call.unparsed or json.dumps(call.arguments, ensure_ascii=False)


def _object_in(text: str) -> JsonObject | None:
    """Return the first JSON object in `text`, repaired if it is certain what it should be."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return repair_json_object(text[start:])
    # Again, because this refuses what JSON does not have, and too many levels.
    return repair_json_object(json.dumps(found))
