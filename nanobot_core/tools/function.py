"""Tools made from typed functions."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints, overload

from nanobot_core.contracts.tool import Tool, ToolContext, ToolOutput, ToolResult
from nanobot_core.messages import ImageBlock, JsonObject, TextBlock
from nanobot_core.tools.model import model_schema, validate_model

if TYPE_CHECKING:
    from pydantic import BaseModel

ToolFunction = Callable[..., Any]
_FIELD_PREFIX = "p_"
"""Keeps parameters apart from the attributes of a pydantic model (``schema``, ``copy``)."""
_ARGS_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters):\s*$", re.MULTILINE)
_NEXT_SECTION = re.compile(r"^\s*(Returns|Raises|Yields|Example|Examples|Note):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


class FunctionTool(Tool):
    """A tool that calls a function; made by `tool`."""

    parameters_model: type[BaseModel]

    def __init__(self, function: ToolFunction, name: str) -> None:
        description, arguments = _parse_docstring(inspect.getdoc(function) or "")
        self.name = name
        self.description = description
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._context_parameter, self.parameters_model = _build_model(function, arguments)
        self._fields = tuple(self.parameters_model.model_fields)
        self.parameters: JsonObject = model_schema(self.parameters_model)

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        """Call the function with validated arguments, in a thread if it is not async."""
        params = validate_model(self.parameters_model, arguments)
        values = {name.removeprefix(_FIELD_PREFIX): getattr(params, name) for name in self._fields}
        if self._context_parameter:
            values[self._context_parameter] = context
        if self._is_async:
            return _as_output(await self._function(**values))
        return _as_output(await asyncio.to_thread(self._function, **values))


@overload
def tool(function: ToolFunction, /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    read_only: bool = ...,
    exclusive: bool = ...,
    compactable: bool = ...,
    for_guests: bool = ...,
    idempotent: bool | None = ...,
    timeout_s: float | None = ...,
) -> Callable[[ToolFunction], FunctionTool]: ...
def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    read_only: bool = False,
    exclusive: bool = False,
    compactable: bool = False,
    for_guests: bool = False,
    idempotent: bool | None = None,
    timeout_s: float | None = None,
) -> FunctionTool | Callable[[ToolFunction], FunctionTool]:
    """Make a tool from a typed function.

    The schema comes from the type hints (``Annotated[int, Field(ge=1)]``, ``Literal``, nested
    models, defaults), the description from the docstring, the descriptions of the parameters from
    its ``Args:`` section. A parameter typed `ToolContext` receives the context of the call and is
    not part of the schema. A sync function runs in a thread. A result that is neither text, blocks
    nor a `ToolResult` reaches the model as JSON.

    Args:
        function: sync or async; for the other parameters see `Tool`.
        name: by default the name of the function.
    """

    def make(target: ToolFunction) -> FunctionTool:
        made = FunctionTool(target, name or target.__name__)
        made.read_only = read_only
        made.exclusive = exclusive
        made.compactable = compactable
        made.for_guests = for_guests
        made.idempotent = idempotent
        made.timeout_s = timeout_s
        return made

    return make if function is None else make(function)


def _build_model(
    function: ToolFunction, descriptions: dict[str, str]
) -> tuple[str | None, type[BaseModel]]:
    """Return the name of the context parameter, if any, and the model of the others."""
    from pydantic import ConfigDict, Field, create_model

    hints = get_type_hints(function, include_extras=True)
    context_parameter: str | None = None
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        if hint is ToolContext:
            context_parameter = name
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        if name in descriptions and not _has_description(hint):
            hint = Annotated[hint, Field(description=descriptions[name])]
        fields[_FIELD_PREFIX + name] = (Annotated[hint, Field(alias=name)], default)
    model = create_model(
        f"{function.__name__}_parameters", __config__=ConfigDict(extra="forbid"), **fields
    )
    return context_parameter, model


def _has_description(hint: object) -> bool:
    return get_origin(hint) is Annotated and any(
        getattr(part, "description", None) for part in get_args(hint)[1:]
    )


def _parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into the description and those of the parameters."""
    args = _ARGS_SECTION.search(doc)
    following = _NEXT_SECTION.search(doc)
    first = min((match.start() for match in (args, following) if match), default=len(doc))
    if args is None:
        return doc[:first].strip(), {}
    after = _NEXT_SECTION.search(doc, args.end())
    section = doc[args.end() : after.start() if after else len(doc)]
    descriptions: dict[str, str] = {}
    current = ""
    for line in section.splitlines():
        if match := _ARGUMENT.match(line):
            current = match[1]
            descriptions[current] = match[2].strip()
        elif current and line.strip():
            descriptions[current] += f" {line.strip()}"
    return doc[:first].strip(), descriptions


def _as_output(value: object) -> ToolOutput:
    if value is None:
        return ""
    if isinstance(value, str | ToolResult):
        return value
    if isinstance(value, Sequence) and value:
        blocks = [item for item in value if isinstance(item, TextBlock | ImageBlock)]
        if len(blocks) == len(value):
            return blocks
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, bytes_mode="base64", fallback=str)
    return json.dumps(plain, ensure_ascii=False)
