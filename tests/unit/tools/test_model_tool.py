from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from nanobot_core.errors import ToolInputError
from nanobot_core.testing import call_in
from nanobot_core.tools import ModelTool, ToolContext, ToolOutput


class RepeatParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="what to say")
    count: int = Field(1, ge=1, le=3)


class RepeatTool(ModelTool[RepeatParams]):
    name = "repeat"
    description = "Say something several times."
    parameters_model = RepeatParams
    read_only = True

    async def run(self, context: ToolContext, params: RepeatParams) -> ToolOutput:
        return params.text * params.count


class Number(RootModel[int]):
    pass


class LouderTool(RepeatTool):
    name = "louder"


def test_the_model_is_the_schema() -> None:
    assert RepeatTool().to_schema() == {
        "type": "function",
        "function": {
            "name": "repeat",
            "description": "Say something several times.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "text": {"type": "string", "description": "what to say"},
                    "count": {"type": "integer", "default": 1, "minimum": 1, "maximum": 3},
                },
                "required": ["text"],
            },
        },
    }


def test_a_subclass_keeps_the_schema() -> None:
    assert LouderTool.parameters == RepeatTool.parameters


@pytest.mark.anyio
async def test_the_tool_receives_an_instance_of_the_model(tmp_path: Path) -> None:
    assert await RepeatTool().execute(call_in(tmp_path), {"text": "ab", "count": 2}) == "abab"


@pytest.mark.anyio
async def test_every_finding_is_named_for_the_model(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError, match=r"text: .*; count: .*; more: "):
        await RepeatTool().execute(call_in(tmp_path), {"count": 9, "more": 1})


def test_a_model_that_is_no_object_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="Number is not a model of named parameters"):

        class Counter(ModelTool[Number]):
            parameters_model = Number
