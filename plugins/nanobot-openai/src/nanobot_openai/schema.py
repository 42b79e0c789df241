"""JSON Schemas in the form that a service accepts, without losing what they say.

A keyword that the service refuses is replaced by one that means the same. If there is none, it
moves into the description, where the model still reads it. Arguments are validated against the
tool's own schema in any case.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nanobot_core import JsonObject, JsonValue

_UNIONS = ("anyOf", "oneOf", "allOf")
_NOTED_CHARS = 200
"""Longest text of one refused keyword in a description."""
_MAX_NESTED = 20
_MAX_RESOLVED = 5_000
"""References inside each other, and schemas in all, that a resolved schema may hold."""
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")
_UNTYPED: tuple[JsonObject, ...] = (
    {"type": "string"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "object"},
    {"type": "null"},
    {"type": "array", "items": {"type": "string"}},
)
"""What stands for any value where each schema must name its type."""
_OWN_SCOPE = {"properties", "$defs", "definitions"}
"""Keywords whose value maps names to schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRules:
    """What a service accepts of JSON Schema.

    Attributes:
        keywords: all that it accepts, or ``None`` if only `refused` are known.
        refused: keywords that it refuses.
        formats: values of ``format`` that it accepts, or ``None`` for any.
        references: whether ``$ref`` is accepted; otherwise the definition takes its place.
        unions: ``types``: also as a list of types; ``any-of``: only as ``anyOf``, with nothing
            but texts beside it; ``nullable``: the same, with ``nullable`` for null.
        enums: ``alike``: literals of one type, no null; ``text``: texts only.
        typed: each schema must name its type.
        max_bound: largest length or number of items that may be required or allowed.
    """

    keywords: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    references: bool = True
    unions: Literal["types", "any-of", "nullable"] = "types"
    enums: Literal["any", "alike", "text"] = "any"
    typed: bool = False
    max_bound: int | None = None

    def accepts(self, keyword: str) -> bool:
        """Whether the service accepts `keyword`."""
        return keyword not in self.refused and (self.keywords is None or keyword in self.keywords)


_ANYTHING = SchemaRules()


def is_closed(schema: JsonValue) -> bool:
    """Whether each object in `schema` names all its properties, as strict schemas demand.

    A reference to itself that has been resolved leaves an object open.
    """
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    is_open = schema.get("type") == "object" and schema.get("additionalProperties") is not False
    return not is_open and all(map(is_closed, schema.values()))


def adapt_schema(schema: JsonObject, rules: SchemaRules) -> JsonObject:
    """Return a schema of an object as the service accepts it; `schema` itself is not changed."""
    if not rules.references:
        schema = _dict(_Resolver(schema).resolved(schema))
    root = _adapted(_flat(schema), rules)
    if not isinstance(root.get("properties"), dict):
        root["properties"] = {}
    return root


def _flat(schema: JsonObject) -> JsonObject:
    """Return a root that is an object without alternatives, which OpenAI refuses there."""
    root = {key: value for key, value in schema.items() if key not in (*_UNIONS, "enum", "not")}
    root["type"] = "object"
    notes = [_note(key, schema[key]) for key in ("enum", "not") if key in schema]
    for key in _UNIONS:
        branches = [each for each in _list(schema.get(key)) if isinstance(each, dict)]
        if not branches:
            continue
        properties = dict(_dict(root.get("properties")))
        for branch in branches:
            for name, each in _dict(branch.get("properties")).items():
                known = properties.setdefault(name, each)
                if known != each and key != "allOf":
                    properties[name] = {"anyOf": [known, each]}
        root["properties"] = properties
        required = [set(map(str, _list(branch.get("required")))) for branch in branches]
        common = set.union(*required) if key == "allOf" else set.intersection(*required)
        common -= set(map(str, _list(root.get("required"))))
        root["required"] = [*_list(root.get("required")), *sorted(common & properties.keys())]
        if key != "allOf":
            notes.append(_alternatives(branches))
    return _with_notes(root, notes)


def _alternatives(branches: Sequence[JsonObject]) -> str:
    names = (", ".join(map(str, _list(branch.get("required")))) for branch in branches)
    return f"requires one of these: {'; '.join(name or 'nothing more' for name in names)}"


def _adapted(schema: JsonValue, rules: SchemaRules) -> JsonObject:
    """Return a schema, at any depth, as `rules` demand it."""
    node = dict(schema) if isinstance(schema, dict) else {}
    notes: list[str] = []
    for step in (_with_enum, _with_one_union, _with_plain_items, _with_open_bounds):
        step(node, rules)
    _limit_enum(node, rules, notes)
    _split_types(node, rules)
    if rules.max_bound is not None:
        for key in _BOUNDS:
            value = node.get(key)
            if isinstance(value, int) and value > rules.max_bound:
                notes.append(_note(key, node.pop(key)))
    if rules.formats is not None and node.get("format") not in {None, *rules.formats}:
        notes.append(_note("format", node.pop("format")))
    for key in [key for key in node if not rules.accepts(key)]:
        value = node.pop(key)
        if key not in {"$schema", "$id", "$defs", "definitions", "$comment", "title"}:
            notes.append(_note(key, value))
    if "required" in node:
        known = _dict(node.get("properties"))
        node["required"] = [name for name in _list(node["required"]) if name in known]
        node.setdefault("properties", {})
    for key, value in node.items():
        node[key] = _inner(key, value, rules)
    return _united(_with_notes(node, notes), rules)


def _inner(key: str, value: JsonValue, rules: SchemaRules) -> JsonValue:
    """Return the value of one keyword with the schemas in it adapted."""
    if key in _OWN_SCOPE and isinstance(value, dict):
        return {name: _adapted(each, rules) for name, each in value.items()}
    if key in _UNIONS and isinstance(value, list):
        return [_adapted(each, rules) for each in value]
    if key == "items" or (key == "additionalProperties" and isinstance(value, dict)):
        return _adapted(value, rules)
    return value


def _with_enum(node: JsonObject, rules: SchemaRules) -> None:
    if "const" in node and not rules.accepts("const"):
        node["enum"] = [node.pop("const")]


def _with_one_union(node: JsonObject, rules: SchemaRules) -> None:
    # A value may fit several alternatives once they have lost a keyword.
    if "oneOf" in node and rules != _ANYTHING and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
    parts = node.get("allOf")
    if isinstance(parts, list) and not rules.accepts("allOf"):
        del node["allOf"]
        for part in (part for part in parts if isinstance(part, dict)):
            properties = {**_dict(node.get("properties")), **_dict(part.get("properties"))}
            required = [*_list(node.get("required")), *_list(part.get("required"))]
            node.update({**part, **node})
            node |= {"properties": properties} if properties else {}
            node |= {"required": required} if required else {}


def _with_plain_items(node: JsonObject, rules: SchemaRules) -> None:
    """Describe a tuple as an array of any of its members, and an array without items as untyped."""
    members = node.get("prefixItems") if not rules.accepts("prefixItems") else None
    members = node["items"] if isinstance(node.get("items"), list) else members
    if isinstance(members, list):
        node.pop("prefixItems", None)
        kinds = [each for number, each in enumerate(members) if each not in members[:number]]
        node["items"] = {"anyOf": kinds} if len(kinds) > 1 else next(iter(kinds), {})
    if node.get("type") == "array" and not isinstance(node.get("items"), dict):
        node["items"] = {}


def _with_open_bounds(node: JsonObject, rules: SchemaRules) -> None:
    """Write an exclusive bound of a whole number as an inclusive one."""
    for key, inclusive, step in _EXCLUSIVE:
        bound = node.get(key)
        is_number = isinstance(bound, int) and not isinstance(bound, bool)
        if is_number and node.get("type") == "integer" and not rules.accepts(key):
            del node[key]
            node[inclusive] = int(bound) + step if isinstance(bound, int) else bound


def _split_types(node: JsonObject, rules: SchemaRules) -> None:
    """Turn a list of types into ``anyOf``, with the keywords of each type in its branch.

    Some services refuse a type or its keywords beside ``anyOf``, so those move into its branches.
    """
    if rules.unions == "types":
        return
    kinds, branches = node.get("type"), node.get("anyOf")
    if isinstance(kinds, list):
        rest = _taken(node, node.keys() - _BESIDE_A_UNION - {"type"})
        del node["type"]
        split = [{"type": kind, **_own_keywords(str(kind), rest)} for kind in kinds]
        if len(split) == 1:
            node |= split[0]
        else:
            node["anyOf"] = list[JsonValue](split)
    elif isinstance(branches, list):
        rest = _taken(node, node.keys() - _BESIDE_A_UNION)
        node["anyOf"] = [{**rest, **_dict(each)} for each in branches]


_EXCLUSIVE = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
_BESIDE_A_UNION = {"anyOf", "description", "title", "$defs", "definitions", "nullable"}
_OF_TYPE = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}


def _own_keywords(kind: str, keywords: Mapping[str, JsonValue]) -> JsonObject:
    kind = "number" if kind == "integer" else kind
    foreign = set[str]().union(*(names for other, names in _OF_TYPE.items() if other != kind))
    return {key: value for key, value in keywords.items() if key not in foreign}


def _limit_enum(node: JsonObject, rules: SchemaRules, notes: list[str]) -> None:
    """Keep only literals that the service accepts; those of other types become alternatives."""
    if rules.enums == "any" or "enum" not in node:
        return
    by_kind: dict[str, list[JsonValue]] = {}
    for value in _list(node["enum"]):
        by_kind.setdefault(_KINDS.get(type(value), ""), []).append(value)
    kinds = {"string"} if rules.enums == "text" else {"string", "integer", "number"}
    if len(by_kind) == 1 and by_kind.keys() <= kinds:
        if rules.typed:
            node.setdefault("type", next(iter(by_kind)))
        return
    values = node.pop("enum")
    if "" in by_kind or "anyOf" in node or not by_kind:
        notes.append(_note("enum", values))
        return
    if not by_kind.keys() <= {*kinds, "null"}:
        notes.append(_note("enum", values))
    node.pop("type", None)
    node["anyOf"] = [
        {"type": kind, "enum": found} if kind in kinds else {"type": kind}
        for kind, found in by_kind.items()
    ]


_KINDS = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
}  # fmt: skip


def _united(node: JsonObject, rules: SchemaRules) -> JsonObject:
    """Return `node` with its alternatives in the form of the service, and with a type."""
    if rules.typed and not {"type", "anyOf", "$ref"} & node.keys():
        if "properties" in node:
            node["type"] = "object"
        elif "items" in node:
            node["type"] = "array"
        else:
            rest = _taken(node, node.keys() - _BESIDE_A_UNION)
            node["anyOf"] = list[JsonValue](_UNTYPED)
            node = _with_notes(node, [_note(key, value) for key, value in rest.items()])
    if rules.unions == "nullable" and "anyOf" in node:
        branches = _list(node["anyOf"])
        others = [each for each in branches if each != {"type": "null"}]
        if len(others) < len(branches):
            node["nullable"] = True
        node["anyOf"] = others or [{"type": "string"}]
        if len(others) == 1 and isinstance(others[0], dict):
            del node["anyOf"]
            node = {**others[0], **node}
    return node


class _Resolver:
    """Puts definitions in the place of references; what would grow without end stays open."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = _MAX_RESOLVED

    def resolved(self, value: JsonValue, inside: tuple[str, ...] = ()) -> JsonValue:
        if isinstance(value, list):
            return [self.resolved(each, inside) for each in value]
        if not isinstance(value, dict):
            return value
        self._left -= 1
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return {
                key: self.resolved(each, inside)
                for key, each in value.items()
                if key not in {"$defs", "definitions"}
            }
        beside = {key: each for key, each in value.items() if key != "$ref"}
        target = _target(reference, self._root)
        is_endless = reference in inside or len(inside) == _MAX_NESTED or self._left < 0
        if is_endless or not isinstance(target, dict):
            kinds = _dict(target).get("type")
            return {"type": kinds, **beside} if isinstance(kinds, str) else beside
        found = self.resolved(target, (*inside, reference))
        return {**found, **beside} if isinstance(found, dict) else beside


def _target(reference: str, root: JsonObject) -> JsonValue:
    place: JsonValue = root
    if reference != "#" and not reference.startswith("#/"):
        return None
    for part in reference.removeprefix("#").removeprefix("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if name:
            place = place.get(name) if isinstance(place, dict) else None
    return place


def _with_notes(node: JsonObject, notes: Sequence[str]) -> JsonObject:
    if notes:
        described = node.get("description")
        texts = [described] if isinstance(described, str) and described else []
        node["description"] = " ".join([*texts, f"({'; '.join(notes)})"])
    return node


def _note(key: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{key}: {text[:_NOTED_CHARS]}"


def _taken(node: JsonObject, keys: Collection[str]) -> JsonObject:
    """Return those of `keys` that `node` has, and remove them from it."""
    return {key: node.pop(key) for key in list(node) if key in keys}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _dict(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
