"""Schema fragments for tools whose parameters are written by hand."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nanobot_core.contracts.tool import Tool
from nanobot_core.messages import JsonObject, JsonValue

ToolT = TypeVar("ToolT", bound=type[Tool])


@dataclass(frozen=True, kw_only=True)
class SchemaFragment(ABC):
    """One parameter. `nullable` admits JSON null as well."""

    description: str = ""
    nullable: bool = False

    @abstractmethod
    def _type(self) -> str: ...

    @abstractmethod
    def _keywords(self) -> Mapping[str, JsonValue]: ...

    def to_json(self) -> JsonObject:
        """Return the JSON Schema of this parameter."""
        kind = self._type()
        schema: JsonObject = {"type": [kind, "null"] if self.nullable else kind}
        if self.description:
            schema["description"] = self.description
        schema.update({key: value for key, value in self._keywords().items() if value is not None})
        return schema


@dataclass(frozen=True, kw_only=True)
class StringSchema(SchemaFragment):
    """Text; lengths are in characters."""

    min_length: int | None = None
    max_length: int | None = None
    enum: Sequence[str] | None = None

    def _type(self) -> str:
        return "string"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "enum": None if self.enum is None else list(self.enum),
        }


@dataclass(frozen=True, kw_only=True)
class IntegerSchema(SchemaFragment):
    """A whole number; bounds are inclusive."""

    minimum: int | None = None
    maximum: int | None = None
    enum: Sequence[int] | None = None

    def _type(self) -> str:
        return "integer"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "enum": None if self.enum is None else list(self.enum),
        }


@dataclass(frozen=True, kw_only=True)
class NumberSchema(SchemaFragment):
    """A number; bounds are inclusive."""

    minimum: float | None = None
    maximum: float | None = None

    def _type(self) -> str:
        return "number"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {"minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, kw_only=True)
class BooleanSchema(SchemaFragment):
    """True or false."""

    def _type(self) -> str:
        return "boolean"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {}


@dataclass(frozen=True, kw_only=True)
class ArraySchema(SchemaFragment):
    """A list of `items`."""

    items: SchemaFragment
    min_items: int | None = None
    max_items: int | None = None

    def _type(self) -> str:
        return "array"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {
            "items": self.items.to_json(),
            "minItems": self.min_items,
            "maxItems": self.max_items,
        }


@dataclass(frozen=True, kw_only=True)
class ObjectSchema(SchemaFragment):
    """An object; `required` names keys of `properties`."""

    properties: Mapping[str, SchemaFragment] = field(default_factory=dict)
    required: Sequence[str] = ()
    additional_properties: bool = False

    def _type(self) -> str:
        return "object"

    def _keywords(self) -> Mapping[str, JsonValue]:
        return {
            "properties": {name: part.to_json() for name, part in self.properties.items()},
            "required": list(self.required),
            "additionalProperties": self.additional_properties,
        }


def tool_parameters_schema(
    *, required: Sequence[str] = (), **fragments: SchemaFragment
) -> JsonObject:
    """Return the schema of a tool's parameters, given by name.

    Raises:
        ValueError: `required` names a parameter that is not given.
    """
    unknown = [name for name in required if name not in fragments]
    if unknown:
        msg = f"required names unknown parameters: {', '.join(unknown)}"
        raise ValueError(msg)
    return ObjectSchema(properties=fragments, required=required).to_json()


class _FrozenSchema:
    """Class attribute that hands out a fresh copy at each access, so that no caller can bend it."""

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
