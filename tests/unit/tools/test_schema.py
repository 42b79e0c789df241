from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from nanobot_core.tools import (
    ArraySchema,
    BooleanSchema,
    IntegerSchema,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    Tool,
    ToolContext,
    tool_parameters,
    tool_parameters_schema,
)

SCHEMA = tool_parameters_schema(
    required=["path"],
    path=StringSchema(description="file", min_length=1, max_length=9),
    mode=StringSchema(enum=["read", "write"]),
    level=IntegerSchema(enum=[1, 2], minimum=0, nullable=True),
    share=NumberSchema(minimum=0, maximum=0.5),
    deep=BooleanSchema(),
    rows=ArraySchema(
        items=ObjectSchema(properties={"n": IntegerSchema(maximum=3)}, required=["n"]),
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
