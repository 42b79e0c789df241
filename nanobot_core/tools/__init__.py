"""Tools: three ways to write one, and the registry that finds, casts and validates a call.

1. ``@tool`` on a typed function.
2. A `ModelTool` subclass with a pydantic model of its parameters.
3. A `Tool` subclass with a hand-made schema: ``@tool_parameters(tool_parameters_schema(...))``.
"""

from nanobot_core.contracts.tool import LazyTool, Tool, ToolContext, ToolOutput, ToolResult
from nanobot_core.tools.casting import cast_params
from nanobot_core.tools.function import tool
from nanobot_core.tools.model import ModelTool
from nanobot_core.tools.registry import PreparedCall, RegisteredTool, ToolRegistry
from nanobot_core.tools.schema import (
    ArraySchema,
    BooleanSchema,
    IntegerSchema,
    NumberSchema,
    ObjectSchema,
    StringSchema,
    tool_parameters,
    tool_parameters_schema,
)
from nanobot_core.tools.strict import strict_schema
from nanobot_core.tools.validation import validate_params

__all__ = [
    "ArraySchema",
    "BooleanSchema",
    "IntegerSchema",
    "LazyTool",
    "ModelTool",
    "NumberSchema",
    "ObjectSchema",
    "PreparedCall",
    "RegisteredTool",
    "StringSchema",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolRegistry",
    "ToolResult",
    "cast_params",
    "strict_schema",
    "tool",
    "tool_parameters",
    "tool_parameters_schema",
    "validate_params",
]
