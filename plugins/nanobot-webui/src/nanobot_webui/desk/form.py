"""A form of settings, built from their JSON Schema, and what a person has changed in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nanobot_core import MASK

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue, SettingsForm

MAX_DEPTH: Final = 8
_HUMP: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")
Kind: TypeAlias = Literal["text", "number", "switch", "choice", "lines", "json", "secret", "locked"]


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
        is_integer: of a number.
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
    error: str = ""


class FieldInvalid(ValueError):
    """What was sent for a field cannot be its value."""


def build_fields(form: SettingsForm) -> list[Field]:
    """Return the fields of a form, with the present values."""
    definitions = form.schema.get("$defs")
    known = definitions if isinstance(definitions, dict) else {}
    return list(_fields(form, known, form.schema, form.values, form.path, 0))


def read_changes(
    fields: list[Field], sent: Mapping[str, list[str]]
) -> tuple[dict[str, JsonValue], list[Field]]:
    """Return what a person has changed, and the fields with what they have sent and its errors.

    A field that is as it was shown is not a change, so that placeholders, comments and secrets in
    the file stay. ``None`` removes a value, which then has its default.
    """
    changes: dict[str, JsonValue] = {}
    shown = []
    for field in fields:
        given = sent.get(field.path, [])
        text = "true" if field.kind == "switch" and given else given[-1] if given else None
        if field.kind == "switch" and text is None and f"{field.path}:shown" in sent:
            text = "false"
        text = text.replace("\r\n", "\n") if text is not None else None
        if field.kind == "secret" and f"{field.path}:remove" in sent:
            changes[field.path] = None
        elif field.kind == "locked" or text is None or text == field.text:
            shown.append(field)
            continue
        elif field.kind == "secret":
            changes[field.path] = text
        else:
            field = replace(field, text=text)  # noqa: PLW2901 - it shows what was sent
            try:
                changes[field.path] = _value(field)
            except FieldInvalid as error:
                field = replace(field, error=str(error))  # noqa: PLW2901
        shown.append(field)
    return changes, shown


def _fields(
    form: SettingsForm,
    known: JsonObject,
    schema: JsonObject,
    values: JsonObject,
    path: str,
    depth: int,
) -> Iterator[Field]:
    properties = schema.get("properties")
    present = {folded(key): value for key, value in values.items()}
    for key, given in (properties if isinstance(properties, dict) else {}).items():
        if not isinstance(given, dict):
            continue
        inner, is_optional = _resolved(given, known)
        label = _HUMP.sub(lambda found: f"_{found[0].lower()}", key)  # as the docs write it
        at = f"{path}.{label}"
        value = present.get(folded(key), given.get("default", inner.get("default")))
        nested = inner.get("properties")
        if isinstance(nested, dict) and nested and depth < MAX_DEPTH and "." not in key:
            section = value if isinstance(value, dict) else {}
            yield from _fields(form, known, inner, section, at, depth + 1)
        else:
            field = _field(at, path, label, inner, value)
            words = given.get("description", inner.get("description"))
            field = replace(
                field, is_optional=is_optional, help=words if isinstance(words, str) else ""
            )
            yield _locked(field, form)


def _locked(field: Field, form: SettingsForm) -> Field:
    if "." in field.label:
        return replace(field, kind="locked", note="change it in the file: its key has a dot")
    for at, source in form.fixed.items():
        if f"{folded(at)}.".startswith(f"{folded(field.path)}."):
            return replace(field, kind="locked", note=f"set by {source}, which takes precedence")
    return field


def _field(path: str, group: str, label: str, schema: JsonObject, value: JsonValue) -> Field:
    kind, options = schema.get("type"), _options(schema)
    field = Field(path=path, group=group, label=label, kind="json")
    is_secret = schema.get("format") == "password" or schema.get("writeOnly") is True
    if is_secret or (isinstance(value, str) and MASK in value):
        is_set = value not in (None, "")
        return replace(field, kind="secret", note="set" if is_set else "not set")
    if _has_mask(value):
        note = "contains secrets; change it in the file or with nanobot config set"
        return replace(field, kind="locked", note=note)
    if options:
        text = "" if value is None else str(value)
        return replace(field, kind="choice", options=options, text=text)
    if kind == "boolean" and isinstance(value, bool):
        return replace(field, kind="switch", text="true" if value else "false")
    if kind in ("integer", "number"):
        text = "" if value is None else str(value)
        return replace(field, kind="number", text=text, is_integer=kind == "integer")
    if kind == "string" and (value is None or isinstance(value, str)):
        return replace(field, kind="text", text=value or "")
    if _is_list_of_lines(schema, value):
        lines = value if isinstance(value, list) else []
        return replace(field, kind="lines", text="\n".join(map(str, lines)))
    text = "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
    return replace(field, text=text)


def _value(field: Field) -> JsonValue:
    text = field.text.strip()
    if field.kind == "switch":
        return text == "true"
    if field.kind == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if field.kind == "text":
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
        try:
            return int(text) if field.is_integer else float(text)
        except ValueError as error:
            expected = "a whole number" if field.is_integer else "a number"
            raise FieldInvalid(f"expected {expected}") from error
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldInvalid(f"expected JSON: {error}") from error
    return found


def _resolved(schema: JsonObject, known: JsonObject) -> tuple[JsonObject, bool]:
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


def _options(schema: JsonObject) -> tuple[str, ...]:
    found = schema.get("enum")
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return tuple(map(str, found))
    return ()


def _is_list_of_lines(schema: JsonObject, value: JsonValue) -> bool:
    items = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, dict):
        return False
    if items.get("type") != "string" or "enum" in items:
        return False
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(each, str) and each == each.strip() and each and "\n" not in each
        for each in value
    )


def _has_mask(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return isinstance(value, str) and MASK in value


def folded(key: str) -> str:
    """Return a key as the configuration compares it: `maxTokens` is `max_tokens`."""
    return key.replace("_", "").replace("-", "").lower()
