"""A field of a form of settings, and the values that can be written in it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nanobot_core import MASK

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue

MAX_DEPTH: Final = 8
"""Of sections in a section, and of references."""
Kind: TypeAlias = Literal[
    "text",
    "long",
    "number",
    "scalar",
    "switch",
    "choice",
    "lines",
    "map",
    "json",
    "secret",
    "locked",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A key of a map, and its value.

    Attributes:
        key: the key; without one, the row is empty, or removes what was there.
        text: its value as the form shows it; of a secret always empty.
        kind: how it is edited.
        error: what is wrong with what was sent.
    """

    key: str = ""
    text: str = ""
    kind: Kind = "text"
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form.

    Attributes:
        path: its key path, which is also its name in the form.
        group: key path of the section around it.
        label: its key.
        kind: how it is edited.
        text: its value as the form shows it; of a secret always empty.
        options: of a choice.
        help: what the schema says of it.
        note: why it is locked, or whether a secret is set.
        is_optional: an empty field means that there is no value.
        is_integer: of a number, also in a map.
        item: how values of a map are edited.
        rows: of a map, with empty ones at the end.
        default: of a map: what it contains if the file does not have it.
        error: what is wrong with what was sent.
    """

    path: str
    group: str
    label: str
    kind: Kind
    text: str = ""
    options: tuple[str, ...] = ()
    help: str = ""
    note: str = ""
    is_optional: bool = False
    is_integer: bool = False
    item: Kind = "text"
    rows: tuple[Row, ...] = ()
    default: JsonObject = field(default_factory=dict)
    error: str = ""


class FieldInvalid(ValueError):
    """What was sent for a field cannot be its value."""


def parse_value(field: Field) -> JsonValue:
    """Return the value that the text of a field stands for; ``None`` for no value.

    Raises:
        FieldInvalid: there is none.
    """
    text = field.text.strip()
    if field.kind == "switch":
        return text == "true"
    if field.kind == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if field.kind in ("text", "long"):
        return None if not text and field.is_optional else field.text
    if not text:
        return None
    if field.kind == "choice":
        if text not in field.options:
            raise FieldInvalid(f"expected one of {', '.join(field.options)}")
        return text
    if text.startswith("${") and text.endswith("}"):
        return text  # the name of a variable
    if field.kind == "number":
        return _number(text, is_integer=field.is_integer)
    try:
        found: JsonValue = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FieldInvalid(f"expected JSON: {error}") from error
    return found


def _number(text: str, *, is_integer: bool) -> int | float:
    try:
        number = int(text) if is_integer else float(text)
    except ValueError as error:
        expected = "a whole number" if is_integer else "a number"
        raise FieldInvalid(f"expected {expected}") from error
    if not math.isfinite(number):
        raise FieldInvalid("expected a finite number")
    return number


def refuse_constant(name: str) -> None:
    """Refuse what Python reads as JSON and JSON does not have, such as ``NaN``."""
    raise ValueError(f"{name} is not a value")


def resolve_schema(schema: JsonObject, known: JsonObject) -> tuple[JsonObject, bool]:
    """Return a schema without references and without the alternative null, if it has one."""
    is_optional = False
    for _ in range(MAX_DEPTH):
        reference, choices = schema.get("$ref"), schema.get("anyOf")
        if isinstance(reference, str):
            found = known.get(reference.rpartition("/")[2])
            schema = found if isinstance(found, dict) else {}
        elif isinstance(choices, list):
            others = [each for each in choices if each != {"type": "null"}]
            is_optional = is_optional or len(others) < len(choices)
            if len(others) != 1 or not isinstance(others[0], dict):
                break
            schema = others[0]
        else:
            break
    return schema, is_optional


def options_of(schema: JsonObject) -> tuple[str, ...]:
    """Return the values of an enumeration of texts; none if it is something else."""
    found = schema.get("enum")
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return tuple(map(str, found))
    return ()


def has_mask(value: JsonValue) -> bool:
    """Whether there is a secret in a value."""
    if isinstance(value, dict):
        return any(map(has_mask, value.values()))
    if isinstance(value, list):
        return any(map(has_mask, value))
    return isinstance(value, str) and MASK in value


def folded(key: str) -> str:
    """Return a key as the configuration compares it: `maxTokens` is `max_tokens`."""
    return key.replace("_", "").replace("-", "").lower()
