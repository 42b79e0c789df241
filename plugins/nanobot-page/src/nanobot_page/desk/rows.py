"""Maps in a form of settings: rows of keys and values, without script.

An empty row adds a key, and a row whose key is cleared removes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nanobot_page.desk.field import (
    Field,
    FieldInvalid,
    Kind,
    Row,
    folded,
    has_mask,
    options_of,
    parse_value,
    refuse_constant,
    resolve_schema,
)

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue

MAX_KEY_CHARS: Final = 200
NEW_ROWS: Final = 2
"""Empty rows of a map, for new keys."""
_IN_PATHS: Final = frozenset(".[]")
"""Characters that separate the steps of a key path, so that no key can have them."""


def build_map(
    field: Field, schema: JsonObject, known: JsonObject, value: JsonValue, default: JsonValue
) -> Field | None:
    """Return the field of a map of plain values; ``None`` if it is something else.

    Args:
        field: without its kind.
        schema: of the map.
        known: definitions that the schema refers to.
        value: the map.
        default: what it contains if the file does not have it.
    """
    given = schema.get("additionalProperties")
    if schema.get("type") != "object" or schema.get("properties") or not isinstance(given, dict):
        return None
    values, default = value or {}, default or {}
    item, _ = resolve_schema(given, known)
    kind, options = _item_kind(item), options_of(item)
    if kind is None or not isinstance(values, dict) or not isinstance(default, dict):
        return None
    if kind == "choice" and not options:
        options = ("true", "false")
    rows = [replace(_row_of(kind, one), key=key) for key, one in values.items()]
    if any("\n" in row.text or "\r" in row.text or row.kind == "json" for row in rows):
        return None
    for place, row in enumerate(rows):
        if _fault_of_key(row.key):
            rows[place] = replace(row, kind="locked")
    rows += [Row(kind=kind)] * NEW_ROWS
    is_integer = item.get("type") == "integer"
    return replace(
        field,
        kind="map",
        item=kind,
        options=options,
        rows=tuple(rows),
        default=default if values == default else {},
        is_integer=is_integer,
    )


def _item_kind(schema: JsonObject) -> Kind | None:
    """Return how the values of a map are edited; ``None`` if they are not plain."""
    kind, choices = schema.get("type"), schema.get("anyOf")
    if schema.get("format") == "password" or schema.get("writeOnly") is True:
        return "secret"
    if options_of(schema) or kind == "boolean":
        return "choice"
    if kind == "string":
        return "text"
    if kind in ("integer", "number"):
        return "number"
    plain = ("string", "integer", "number", "boolean")
    is_plain = isinstance(choices, list) and all(
        isinstance(each, dict) and each.get("type") in plain and "format" not in each
        for each in choices
    )
    return "scalar" if is_plain else None


def _row_of(kind: Kind, value: JsonValue) -> Row:
    """Return the row of a value, still without its key."""
    if isinstance(value, dict | list):
        return Row(kind="json")
    if kind == "secret" or has_mask(value):
        return Row(kind="secret")
    if isinstance(value, bool):
        return Row(kind=kind, text="true" if value else "false")
    if kind == "scalar" and isinstance(value, str) and _scalar(value) != value:
        return Row(kind=kind, text=json.dumps(value))  # the text "5", not the number
    return Row(kind=kind, text="" if value is None else str(value))


def _scalar(text: str) -> JsonValue:
    """Return the number, truth value or quoted text that `text` writes, else `text`."""
    try:
        found: JsonValue = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if found is None or isinstance(found, dict | list) else found


def _fault_of_key(key: str) -> str:
    """Return why the form cannot set a key; empty if it can."""
    if _IN_PATHS & set(key):
        return "a key with a dot or a bracket can only be set in the file"
    if not key.isprintable() or key != key.strip() or len(key) > MAX_KEY_CHARS:
        return f"expected a key of at most {MAX_KEY_CHARS} printable characters"
    return ""


def read_map(field: Field, sent: Mapping[str, list[str]]) -> tuple[dict[str, JsonValue], Field]:
    """Return the changes of a map by key path, and the field with what was sent and its errors."""
    before = {row.key: row for row in field.rows if row.key}
    kept = {row.key for row in field.rows if row.kind == "locked"}
    wanted: dict[str, JsonValue] = {}
    taken = {folded(key) for key in kept}
    rows: list[Row] = []
    for place, old in enumerate(_with_sent(field, sent)):
        key = _sent(sent, f"{field.path}:key:{place}", old.key).strip()
        text = _sent(sent, f"{field.path}:value:{place}", old.text)
        row = replace(old, key=key, text=text)
        if old.kind != "locked" and (key or (text and not old.key)):
            try:
                if not key:
                    raise FieldInvalid("expected a key")
                if fault := _fault_of_key(key):
                    raise FieldInvalid(fault)
                if folded(key) in taken:
                    raise FieldInvalid("this key is there twice")
                taken.add(folded(key))
                if _is_same(before.get(key), row):
                    kept.add(key)
                else:
                    wanted[key] = _value_of_row(field, row)
            except FieldInvalid as error:
                row = replace(row, error=f"{key}: {error}" if key else str(error))
        # A secret is never sent back.
        rows.append(replace(row, text="") if row.kind == "secret" else row)
    now = replace(field, rows=tuple(rows))
    if faults := [row.error for row in rows if row.error]:
        return {}, replace(now, error="; ".join(faults))
    removed = before.keys() - kept - wanted.keys()
    if field.default and (wanted or removed):
        # In the file, one key replaces the whole default.
        rest = {key: value for key, value in field.default.items() if key in kept}
        return {field.path: {**rest, **wanted}}, now
    gone: dict[str, JsonValue] = {f"{field.path}.{key}": None for key in sorted(removed)}
    return gone | {f"{field.path}.{key}": value for key, value in wanted.items()}, now


def _with_sent(field: Field, sent: Mapping[str, list[str]]) -> Iterator[Row]:
    """Yield the rows of a field, and those that a form with more empty rows has."""
    yield from field.rows
    place = len(field.rows)
    while f"{field.path}:key:{place}" in sent:
        yield Row(kind=field.item)
        place += 1


def _sent(sent: Mapping[str, list[str]], name: str, otherwise: str) -> str:
    given = sent.get(name)
    return given[-1] if given else otherwise


def _is_same(before: Row | None, row: Row) -> bool:
    """Whether a row has the value that its key had; an empty secret is the present one."""
    if before is None:
        return False
    return not row.text if before.kind == "secret" else row.text == before.text


def _value_of_row(field: Field, row: Row) -> JsonValue:
    """Return the value of a row; `FieldInvalid` if there is none."""
    if row.kind == "scalar":
        return _scalar(row.text)
    if row.kind == "choice" and field.options == ("true", "false"):
        if row.text not in field.options:
            raise FieldInvalid("expected true or false")
        return row.text == "true"
    if row.kind == "secret" and not row.text:
        raise FieldInvalid("expected its secret, also if only the key has changed")
    if row.kind in ("text", "secret"):
        return row.text
    value = parse_value(replace(field, kind=row.kind, text=row.text))
    if value is None:
        raise FieldInvalid("expected a value")
    return value
