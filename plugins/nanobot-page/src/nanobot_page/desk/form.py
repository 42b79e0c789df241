"""A form of settings, built from their JSON Schema, and what a person has changed in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nanobot_core import MASK
from nanobot_page.desk.field import (
    MAX_DEPTH,
    Field,
    FieldInvalid,
    folded,
    has_mask,
    options_of,
    parse_value,
    resolve_schema,
)
from nanobot_page.desk.rows import build_map, read_map

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue, SettingsForm

_HUMP: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")


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
        if field.kind == "map":
            found, now = read_map(field, sent)
            changes |= found
            shown.append(now)
            continue
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
                changes[field.path] = parse_value(field)
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
        inner, is_optional = resolve_schema(given, known)
        label = _HUMP.sub(lambda found: f"_{found[0].lower()}", key)  # as the docs write it
        at = f"{path}.{label}"
        default = given.get("default", inner.get("default"))
        value = present.get(folded(key), default)
        nested = inner.get("properties")
        if isinstance(nested, dict) and nested and depth < MAX_DEPTH and "." not in key:
            section = value if isinstance(value, dict) else {}
            yield from _fields(form, known, inner, section, at, depth + 1)
        else:
            field = _plain(Field(path=at, group=path, label=label, kind="json"), inner, value)
            if (shown := build_map(field, inner, known, value, default)) is not None:
                field = shown
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


def _plain(field: Field, schema: JsonObject, value: JsonValue) -> Field:
    """Return the field of a value that is not a map."""
    kind, options = schema.get("type"), options_of(schema)
    is_secret = schema.get("format") == "password" or schema.get("writeOnly") is True
    if is_secret or (isinstance(value, str) and MASK in value):
        is_set = value not in (None, "")
        return replace(field, kind="secret", note="set" if is_set else "not set")
    if has_mask(value):
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
    if kind == "string" and (value is None or isinstance(value, str)) and "\r" not in (value or ""):
        # A field of one line drops the ends of lines.
        return replace(field, kind="long" if "\n" in (value or "") else "text", text=value or "")
    if _is_list_of_lines(schema, value):
        lines = value if isinstance(value, list) else []
        return replace(field, kind="lines", text="\n".join(map(str, lines)))
    text = "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
    return replace(field, text=text)


def _is_list_of_lines(schema: JsonObject, value: JsonValue) -> bool:
    items = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, dict):
        return False
    if items.get("type") != "string" or "enum" in items:
        return False
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(each, str) and each.strip() and each.splitlines() == [each.strip()]
        for each in value
    )
