"""Arguments held against a JSON Schema, findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.messages import JsonObject

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_MAX_FINDINGS = 20


class ParameterSchema:
    """The schema of one tool's parameters, compiled at the first check.

    Remote references are never fetched: schemas come from strangers, and the validator library
    would load them by default.
    """

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        self._validator: Draft202012Validator | None = None

    def findings(self, params: object) -> list[str]:
        """Return what is wrong with `params`, each with its path; empty when nothing is."""
        if self.schema.get("type") != "object":
            return ["the tool's schema is no object schema, so it cannot be called"]
        if not isinstance(params, dict):
            return [f"arguments must be an object, found {_json_type(params)}"]
        try:
            errors = sorted(self._compiled().iter_errors(params), key=lambda error: error.json_path)
            return [_in_words(error) for error in errors[:_MAX_FINDINGS]]
        except _schema_errors() as error:
            return [f"the tool's schema cannot be used: {error}"]

    def _compiled(self) -> Draft202012Validator:
        if self._validator is None:
            from jsonschema import Draft202012Validator
            from referencing import Registry

            Draft202012Validator.check_schema(self.schema)
            self._validator = Draft202012Validator(self.schema, registry=Registry())
        return self._validator


def validate_params(schema: JsonObject, params: object) -> list[str]:
    """Return what is wrong with `params` under `schema`, each finding with its path.

    Such as ``timeout must be <= 600``, ``path is required``, ``items[2].name should be string``.
    """
    return ParameterSchema(schema).findings(params)


def _schema_errors() -> tuple[type[Exception], ...]:
    """Exceptions by which the validator library says that a schema itself is broken.

    Of these `ValueError` comes from identifiers that are no URL, `ArithmeticError` from numbers
    beyond what ``multipleOf`` can divide.
    """
    import re

    from jsonschema.exceptions import SchemaError, UnknownType
    from referencing.exceptions import Unresolvable

    return (
        SchemaError,
        UnknownType,
        Unresolvable,
        re.error,
        RecursionError,
        ValueError,
        ArithmeticError,
    )


def _in_words(error: ValidationError) -> str:
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    ).lstrip(".")
    place = path or "arguments"
    limit: object = error.validator_value
    match error.validator:
        case "required":
            missing = _missing_name(error)
            return f"{path}.{missing} is required" if path else f"{missing} is required"
        case "type":
            wanted = " or ".join(str(kind) for kind in limit) if isinstance(limit, list) else limit
            return f"{place} should be {wanted}, found {_json_type(error.instance)}"
        case "enum" if isinstance(limit, list):
            return f"{place} must be one of {', '.join(str(item) for item in limit)}"
        case "minimum":
            return f"{place} must be >= {limit}"
        case "maximum":
            return f"{place} must be <= {limit}"
        case "minLength":
            return f"{place} must have at least {limit} characters"
        case "maxLength":
            return f"{place} must have at most {limit} characters"
        case "minItems":
            return f"{place} must have at least {limit} items"
        case "maxItems":
            return f"{place} must have at most {limit} items"
    return f"{place}: {error.message[:300]}"


def _missing_name(error: ValidationError) -> str:
    """The property that one finding misses; the library tells it only in its message."""
    names = error.validator_value if isinstance(error.validator_value, list) else []
    return next((name for name in names if error.message.startswith(repr(name))), error.message)


def _json_type(value: object) -> str:
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number"}
    names |= {str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)
