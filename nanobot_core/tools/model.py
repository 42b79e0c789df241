"""A tool whose parameters are a pydantic model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from nanobot_core.contracts.tool import Tool, ToolContext, ToolOutput
from nanobot_core.errors import ToolInputError
from nanobot_core.messages import JsonObject, JsonValue

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

P = TypeVar("P", bound="BaseModel")
_DATA_KEYWORDS = frozenset({"default", "examples", "enum", "const"})
"""Keywords that hold data, in which "title" is no keyword."""


class ModelTool(Tool, Generic[P]):
    """Base of tools that receive an instance of `parameters_model`.

    A subclass sets `name`, `description` and `parameters_model` and implements `run`.
    """

    parameters: JsonObject
    parameters_model: ClassVar[type[BaseModel]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "parameters_model" in cls.__dict__:
            cls.parameters = model_schema(cls.parameters_model)

    @abstractmethod
    async def run(self, context: ToolContext, params: P) -> ToolOutput:
        """Run one call; see `Tool.execute` for results, errors and cancellation."""

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        """Validate `arguments` into the model and run the call."""
        return await self.run(context, validate_model(self.parameters_model, arguments))  # type: ignore[arg-type]  # P is the class that the subclass names


def validate_model(model: type[BaseModel], arguments: JsonObject) -> BaseModel:
    """Return `arguments` as an instance of `model`.

    Raises:
        ToolInputError: they do not fit; every finding is named with its path.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        raise ToolInputError("; ".join(_findings(error))) from error


def model_schema(model: type[BaseModel]) -> JsonObject:
    """Return the JSON Schema of `model` without titles and with local references resolved."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    plain = _simplify(schema, definitions, ())
    if not isinstance(plain, dict) or plain.get("type") != "object":
        msg = f"{model.__name__} is not a model of named parameters"
        raise TypeError(msg)
    plain.setdefault("properties", {})
    return plain


def _simplify(node: JsonValue, definitions: JsonObject, seen: tuple[str, ...]) -> JsonValue:
    if isinstance(node, list):
        return [_simplify(item, definitions, seen) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        name = reference.rsplit("/", 1)[-1]
        if name in seen:
            return {"type": "object"}
        target = _simplify(definitions.get(name, {}), definitions, (*seen, name))
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**target, **rest} if isinstance(target, dict) else rest
    result: JsonObject = {}
    for key, value in node.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in _DATA_KEYWORDS:
            result[key] = value
        elif key == "properties" and isinstance(value, dict):
            # Below `properties`, "title" is the name of a parameter, not a keyword.
            result[key] = {name: _simplify(part, definitions, seen) for name, part in value.items()}
        else:
            result[key] = _simplify(value, definitions, seen)
    return result


def _findings(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
