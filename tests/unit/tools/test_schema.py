from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nanobot_core.testing import call_in
from nanobot_core.tools import (
    ArraySchema,
    IntegerSchema,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    Tool,
    ToolContext,
    ToolRegistry,
    tool_parameters,
    tool_parameters_schema,
)

SCHEMA = tool_parameters_schema(
    required=["path"],
    path=StringSchema("file", min_length=1, max_length=9),
    mode=StringSchema(enum=["read", "write"]),
    level=IntegerSchema(enum=[1, 2], minimum=0, nullable=True),
    share=NumberSchema(minimum=0, maximum=0.5),
    deep={"type": "boolean"},
    rows=ArraySchema(
        ObjectSchema({"n": IntegerSchema(1, maximum=3)}, required=["n"]),
        min_items=1,
        max_items=2,
    ),
)


def test_fragments_become_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "file", "minLength": 1, "maxLength": 9},
            "mode": {"type": "string", "enum": ["read", "write"]},
            "level": {"type": ["integer", "null"], "minimum": 0, "enum": [1, 2]},
            "share": {"type": "number", "minimum": 0, "maximum": 0.5},
            "deep": {"type": "boolean"},
            "rows": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "maximum": 3}},
                    "required": ["n"],
                    "additionalProperties": False,
                },
                "minItems": 1,
                "maxItems": 2,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_requiring_an_unknown_parameter_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="unknown parameters: pth"):
        tool_parameters_schema(required=["pth"], path=StringSchema())


def test_nobody_can_bend_the_parameters_of_a_tool() -> None:
    schema = tool_parameters_schema(path=StringSchema())

    @tool_parameters(schema)
    class Reader(Tool):
        name = "reader"
        description = "Read."

        async def execute(self, context: ToolContext, arguments: object) -> str:
            return ""

    before = Reader().to_schema()
    schema.clear()
    Reader.parameters.clear()
    Reader().parameters.clear()

    assert Reader().to_schema() == before
    assert Reader.parameters["type"] == "object"


@tool_parameters(
    tool_parameters_schema(
        query=StringSchema("Search query"),
        count=IntegerSchema(1, description="Results (1-10)", minimum=1, maximum=10),
        kind={"type": "string", "enum": ["web", "news"]},
        required=["query"],
    )
)
class SearchTool(Tool):
    @property
    def name(self) -> str:  # type: ignore[override]  # as tools of the original are written
        return "search"

    @property
    def description(self) -> str:  # type: ignore[override]  # as above
        return "Search."

    async def execute(self, query: str, count: int = 5, **params: object) -> str:  # type: ignore[override]  # as above
        return f"{query} {count} {params}"


@pytest.mark.anyio
async def test_a_tool_in_the_form_of_the_original_takes_its_parameters_by_name(
    tmp_path: Path,
) -> None:
    tool: Tool = SearchTool()
    registry = ToolRegistry()
    registry.register(tool)

    assert registry.names() == ["search"]
    result = await tool.execute(call_in(tmp_path), {"query": "x", "kind": "news"})
    assert result == "x 5 {'kind': 'news'}"
    assert await SearchTool().execute(query="x", count=2) == "x 2 {}"
    refused = registry.prepare_call("search", {"query": "x", "count": 11})
    assert "count must be <= 10" in str(refused.error)
