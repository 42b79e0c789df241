from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from nanobot_core.errors import ToolInputError
from nanobot_core.messages import JsonObject
from nanobot_core.testing import call_in
from nanobot_core.tools import ModelTool, ToolContext, ToolOutput, ToolRegistry


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
    with pytest.raises(
        ToolInputError, match="text is required; count must be <= 3; more is unknown"
    ):
        await RepeatTool().execute(call_in(tmp_path), {"count": 9, "more": 1})


def test_a_model_that_is_no_object_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="Number is not a model of named parameters"):

        class Counter(ModelTool[Number]):
            parameters_model = Number


class Row(BaseModel):
    name: str


class ManyParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=5)
    timeout: int | None = Field(None, ge=1, le=600)
    mode: Literal["read", "write"] = "read"
    rows: list[Row] = Field(default_factory=list, max_length=3)
    place: Path | None = None


class ManyTool(ModelTool[ManyParams]):
    name = "many"
    description = "Take many parameters."
    parameters_model = ManyParams

    async def run(self, context: ToolContext, params: ManyParams) -> ToolOutput:
        return ""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ({}, "path is required"),
        ({"path": "a", "timeout": 999}, "timeout must be <= 600"),
        ({"path": "a", "timeout": 0}, "timeout must be >= 1"),
        ({"path": "a", "timeout": "x"}, "timeout should be integer, found string"),
        ({"path": "a", "timeout": True}, "timeout should be integer, found boolean"),
        ({"path": ""}, "path must have at least 1 characters"),
        ({"path": "abcdef"}, "path must have at most 5 characters"),
        ({"path": "a", "mode": "eat"}, "mode must be one of read, write"),
        ({"path": "a", "rows": [{"name": "x"}] * 4}, "rows must have at most 3 items"),
        ({"path": "a", "rows": [{"name": "x"}, {}]}, "rows[1].name is required"),
        ({"path": "a", "rows": [{"name": 5}]}, "rows[0].name should be string, found integer"),
        ({"path": "a", "other": 1}, "other is unknown"),
    ],
)
async def test_the_model_is_what_validates_and_says_it_as_a_schema_does(
    arguments: JsonObject, finding: str
) -> None:
    registry = ToolRegistry()
    registry.register(ManyTool())
    entry = registry.get("many")
    assert entry is not None
    await entry.tool()

    assert entry.findings(arguments) == [finding]
    assert entry.findings({"path": "a", "timeout": None, "place": "x"}) == []
