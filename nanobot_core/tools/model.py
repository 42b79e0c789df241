"""A tool whose parameters are a pydantic model."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nanobot_core.contracts.tool import Tool, ToolContext, ToolOutput
from nanobot_core.errors import ToolInputError
from nanobot_core.messages import JsonObject, JsonValue, json_type

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

P = TypeVar("P", bound="BaseModel")
_DATA_KEYWORDS = frozenset({"default", "examples", "enum", "const"})
"""Keywords with data as their value, in which "title" is not a keyword."""


class ModelTool(Tool, Generic[P]):
    """Base of tools that receive an instance of `parameters_model`.

    A subclass sets `name`, `description` and `parameters_model` and implements `run`.
    """

    parameters: JsonObject
    parameters_model: type[BaseModel]

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
        raise ToolInputError("; ".join(_findings(error, arguments))) from error


def read_model(model: type[BaseModel], content: JsonObject) -> BaseModel:
    """Return `content` as an instance of `model`, as pydantic reads JSON.

    Raises:
        ToolInputError: it does not fit; every finding is named with its path.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise ToolInputError("; ".join(_findings(error, content))) from error


def model_findings(model: type[BaseModel], arguments: JsonObject) -> list[str]:
    """Return what is wrong with `arguments`, in the words of `validate_params`.

    Unlike `validate_model` nothing is converted: JSON types must fit as they are.
    """
    from pydantic import ValidationError

    try:
        model.model_validate_json(json.dumps(arguments), strict=True)
    except ValidationError as error:
        return _findings(error, arguments)
    return []


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


_KINDS = {"int": "integer", "float": "number", "bool": "boolean", "list": "array"} | dict.fromkeys(
    ("dict", "model", "model_attributes"), "object"
)
_RULES = {
    "missing": "is required",
    "greater_than_equal": "must be >= {ge}",
    "greater_than": "must be > {gt}",
    "less_than_equal": "must be <= {le}",
    "less_than": "must be < {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match the pattern {pattern}",
}
"""Type of a pydantic error to what `validate_params` says."""


def _findings(error: ValidationError, arguments: JsonObject) -> list[str]:
    """Return one finding for each place; of a union, those of the intended alternative."""
    kinds: dict[str, list[str]] = {}
    findings: dict[str, str] = {}
    for item in error.errors(include_url=False):
        path = _path(item["loc"], arguments)
        kind = item["type"].removesuffix("_type")
        if kind != item["type"]:
            kinds.setdefault(path, []).append(_KINDS.get(kind, kind))
            wanted = " or ".join(dict.fromkeys(kinds[path]))
            found = json_type(item["input"])
            # A rule that the value breaks says more than the types of the other alternatives.
            findings.setdefault(path, "")
            if not findings[path] or " should be " in findings[path]:
                findings[path] = f"{path} should be {wanted}, found {found}"
        elif item["type"] == "extra_forbidden":
            findings[path] = f"{path} is unknown"
        elif item["type"] in {"literal_error", "enum"}:
            allowed = item["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
            findings[path] = f"{path} must be one of {allowed}"
        elif rule := _RULES.get(item["type"]):
            findings[path] = f"{path} {rule.format_map(item.get('ctx', {}))}"
        else:
            findings[path] = f"{path}: {item['msg'][:300]}"
    return list(findings.values())


def _path(loc: tuple[int | str, ...], arguments: JsonValue) -> str:
    """Return the place in `arguments`, without the names that pydantic gives to alternatives."""
    path, value = "", arguments
    for number, part in enumerate(loc):
        is_last = number == len(loc) - 1
        if isinstance(value, dict) and isinstance(part, str) and (part in value or is_last):
            path, value = f"{path}.{part}" if path else part, value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path, value = f"{path}[{part}]", value[part]
    return path or "arguments"
