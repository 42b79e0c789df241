"""Validation of arguments against a JSON Schema, with readable findings."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

from nanobot_core.messages import JsonObject, json_type
from nanobot_core.tools.bounded import (
    CheckTooCostly,
    build_schema_validator,
    build_validator,
    cpu_limit,
)

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_MAX_FINDINGS = 20
_MAX_LISTED = 100
_MAX_ERRORS = 1_000
"""Errors to sort; broken arguments may cause millions."""
_MAX_SCHEMA_CHARS = 500_000
_SCHEMA_LIMIT_S = 2.0
_CHECK_LIMIT_S = 0.25
"""CPU seconds. A schema is checked once, in a thread; arguments while the loop waits."""


_RULES = {
    "minimum": "must be >= {}",
    "maximum": "must be <= {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "pattern": "must match the pattern {}",
}


class ParameterSchema:
    """The schema of one tool's parameters, compiled at the first check.

    Schemas are not trusted: remote references are never fetched, and neither a schema nor
    arguments made for it block the process: see `nanobot_core.tools.bounded`.
    """

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        self._validator: Draft202012Validator | None = None
        self._problem: str | None = None

    def findings(self, params: object) -> list[str]:
        """Return the problems of `params`, each with its path."""
        if self.schema.get("type") != "object":
            return ["the tool's schema is not an object schema, so it cannot be called"]
        if not isinstance(params, dict):
            return [f"arguments must be an object, found {json_type(params)}"]
        if self._problem is None:
            self._problem = self._compile()
        if self._problem or self._validator is None:
            return [f"the tool's schema cannot be used: {self._problem}"]
        try:
            with cpu_limit(_CHECK_LIMIT_S):
                errors = list(islice(self._validator.iter_errors(params), _MAX_ERRORS))
        except _schema_errors() as error:
            return [f"the tool's schema cannot be used: {_reason(error)}"]
        errors.sort(key=lambda error: error.json_path)
        return [_in_words(_meant(error)) for error in errors[:_MAX_FINDINGS]]

    def _compile(self) -> str:
        """Make the validator; return the problem of the schema, or an empty string."""
        try:
            text = json.dumps(self.schema)
            if len(text) > _MAX_SCHEMA_CHARS:
                return f"it has {len(text):,} characters, and {_MAX_SCHEMA_CHARS:,} are accepted"
            with cpu_limit(_SCHEMA_LIMIT_S):
                wrong = next(build_schema_validator().iter_errors(self.schema), None)
            if wrong is not None:
                return f"{wrong.json_path}: {wrong.message[:300]}"
            self._validator = build_validator(self.schema, text)
        except _schema_errors() as error:
            return _reason(error)
        return ""


def validate_params(schema: JsonObject, params: object) -> list[str]:
    """Return the problems of `params` under `schema`, each with its path.

    Such as ``timeout must be <= 600``, ``path is required``, ``items[2].name should be string``.
    """
    return ParameterSchema(schema).findings(params)


def _schema_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the validator library for a broken schema.

    `ValueError` comes from identifiers that are not URLs, `ArithmeticError` from numbers that
    ``multipleOf`` cannot divide.
    """
    import re

    from jsonschema.exceptions import UnknownType
    from referencing.exceptions import Unresolvable

    return (
        CheckTooCostly,
        UnknownType,
        Unresolvable,
        re.error,
        RecursionError,
        ValueError,
        ArithmeticError,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, CheckTooCostly):
        return "checking by it takes too long; give fewer and shorter arguments"
    return f"{type(error).__name__}: {str(error)[:300]}"


def _meant(error: ValidationError) -> ValidationError:
    """Return the error of the only alternative with the type of the value, or `error` itself."""
    while error.validator in {"anyOf", "oneOf"}:
        branches: dict[object, list[ValidationError]] = {}
        for inner in islice(error.context or (), _MAX_ERRORS):
            branches.setdefault(inner.schema_path[0], []).append(inner)
        fitting = [
            found
            for found in branches.values()
            if not any(each.validator == "type" and not each.path for each in found)
        ]
        if len(fitting) != 1:
            break
        error = fitting[0][0]
    return error


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
            return f"{place} should be {wanted}, found {json_type(error.instance)}"
        case "anyOf" | "oneOf" if wanted := _alternatives(error):
            return f"{place} should be {wanted}, found {json_type(error.instance)}"
        case "enum" if isinstance(limit, list):
            return f"{place} must be one of {_listed(limit)}"
    if rule := _RULES.get(str(error.validator)):
        return f"{place} {rule.format(str(limit)[:300])}"
    return f"{place}: {error.message[:300]}"


def _alternatives(error: ValidationError) -> str:
    """Return the expected types; empty if the type is not the problem."""
    found = list(islice(error.context or (), _MAX_LISTED))
    if all(each.validator == "type" and not each.path for each in found):
        return " or ".join(dict.fromkeys(str(each.validator_value) for each in found))
    return ""


def _listed(values: list[object]) -> str:
    shown = ", ".join(str(value)[:100] for value in values[:_MAX_LISTED])
    more = len(values) - _MAX_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _missing_name(error: ValidationError) -> str:
    """Return the missing property, which the library names only in its message."""
    names = error.validator_value if isinstance(error.validator_value, list) else []
    return next((name for name in names if error.message.startswith(repr(name))), error.message)
