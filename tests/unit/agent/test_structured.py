"""How a model is asked for an object."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from nanobot_core import Ability, ChatRequest, LLMResponse, ModelInfo, ToolRegistry
from nanobot_core.agent.run import Model
from nanobot_core.agent.structured import AnswerForm
from nanobot_core.testing import FakeProvider


class Answer(BaseModel):
    number: int


@pytest.mark.parametrize(
    ("abilities", "has_schema"),
    [(None, True), ({"tools", "json_schema"}, True), ({"tools"}, False)],
)
def test_a_model_that_is_known_to_lack_schemas_gets_the_tool(
    abilities: set[Ability] | None, has_schema: bool
) -> None:
    known = frozenset(abilities) if abilities is not None else None
    model = Model(
        name="m",
        wire_name="m",
        provider=FakeProvider(),
        provider_name="fake",
        plugin="fake",
        json_schema=True,
        info=ModelInfo(name="m", abilities=known),
    )
    form = AnswerForm(Answer)
    request = ChatRequest(messages=(), model="m", tools=form.offered(ToolRegistry()))

    shaped = form.shape(model, request)

    assert (shaped.output_schema is not None) == has_schema
    assert (shaped.tools == ()) == has_schema


def test_what_a_model_reads_about_an_invalid_answer_is_bounded() -> None:
    findings = [f"{'x' * 1_000}.{number} is unknown" for number in range(1_000)]
    response = LLMResponse(content="{}")

    (_, asked) = AnswerForm(Answer).correction(response, (), findings)

    assert isinstance(asked.content, str)
    assert len(asked.content) < 5_000
