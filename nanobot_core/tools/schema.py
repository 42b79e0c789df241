"""Schema fragments for tools whose parameters are written by hand.

Each fragment is a dict: the JSON Schema itself. A ready-made dict works wherever a fragment does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from nanobot_core.contracts.tool import Tool
from nanobot_core.messages import JsonObject, JsonValue

ToolT = TypeVar("ToolT", bound=type[Tool])


class SchemaFragment(dict[str, JsonValue]):
    """One parameter. `nullable` also accepts JSON null; keywords that are ``None`` are omitted."""

    def __init__(
        self, kind: str, description: str, *, nullable: bool = False, **keywords: JsonValue
    ) -> None:
        super().__init__(type=[kind, "null"] if nullable else kind)
        if description:
            self["description"] = description
        self.update({key: value for key, value in keywords.items() if value is not None})


class StringSchema(SchemaFragment):
    """Text; lengths are in characters."""

    def __init__(
        self,
        description: str = "",
        *,
        min_length: int | None = None,
        max_length: int | None = None,
        enum: Sequence[str] | None = None,
        nullable: bool = False,
    ) -> None:
        super().__init__(
            "string",
            description,
            nullable=nullable,
            minLength=min_length,
            maxLength=max_length,
            enum=None if enum is None else list(enum),
        )


class NumberSchema(SchemaFragment):
    """A number; bounds are inclusive. `value` is an example that the schema does not contain."""

    _kind = "number"

    def __init__(
        self,
        value: str | float = "",
        *,
        description: str = "",
        minimum: float | None = None,
        maximum: float | None = None,
        enum: Sequence[float] | None = None,
        nullable: bool = False,
    ) -> None:
        super().__init__(
            self._kind,
            value if isinstance(value, str) and value else description,
            nullable=nullable,
            minimum=minimum,
            maximum=maximum,
            enum=None if enum is None else list(enum),
        )


class IntegerSchema(NumberSchema):
    """A whole number; otherwise as `NumberSchema`."""

    _kind = "integer"


class BooleanSchema(SchemaFragment):
    """True or false."""

    def __init__(
        self, description: str = "", *, default: bool | None = None, nullable: bool = False
    ) -> None:
        super().__init__("boolean", description, nullable=nullable, default=default)


class ArraySchema(SchemaFragment):
    """A list of `items`."""

    def __init__(
        self,
        items: JsonObject | None = None,
        *,
        description: str = "",
        min_items: int | None = None,
        max_items: int | None = None,
        nullable: bool = False,
    ) -> None:
        super().__init__(
            "array",
            description,
            nullable=nullable,
            items=items,
            minItems=min_items,
            maxItems=max_items,
        )


class ObjectSchema(SchemaFragment):
    """An object; `required` names keys of `properties`, which keywords may add to."""

    def __init__(
        self,
        properties: Mapping[str, JsonObject] | None = None,
        *,
        required: Sequence[str] | None = None,
        description: str = "",
        additional_properties: bool | JsonObject = False,
        nullable: bool = False,
        **more: JsonObject,
    ) -> None:
        super().__init__(
            "object",
            description,
            nullable=nullable,
            properties={**(properties or {}), **more},
            required=list(required or ()),
            additionalProperties=additional_properties,
        )


def tool_parameters_schema(
    *, required: Sequence[str] | None = None, description: str = "", **properties: JsonObject
) -> JsonObject:
    """Return the schema of a tool's parameters, each given by name as a fragment or a dict.

    Raises:
        ValueError: `required` names a parameter that is not given.
    """
    unknown = [name for name in required or () if name not in properties]
    if unknown:
        msg = f"required names unknown parameters: {', '.join(unknown)}"
        raise ValueError(msg)
    return ObjectSchema(properties, required=required, description=description)


class _FrozenSchema:
    """Class attribute that returns a fresh copy on each access, so that no caller changes it."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = copy.deepcopy(schema)

    def __get__(self, instance: object, owner: type | None = None) -> JsonObject:
        return copy.deepcopy(self._schema)


def tool_parameters(schema: JsonObject) -> Callable[[ToolT], ToolT]:
    """Give a `Tool` class its `parameters`, frozen.

    Args:
        schema: JSON Schema of an object, for instance from `tool_parameters_schema`.
    """

    def decorate(tool_class: ToolT) -> ToolT:
        setattr(tool_class, "parameters", _FrozenSchema(schema))  # noqa: B010 - a descriptor
        return tool_class

    return decorate
