"""A section of the configuration against the JSON Schema of a plugin's manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from nanobot_core.config.tree import KeyPath, find_key
from nanobot_core.config.validation import Places, nearest_key
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.tools.casting import cast_params

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_MAX_REFERENCES = 32
"""References that are followed to one schema; more of them are a circle."""
_ALTERNATIVES = ("anyOf", "oneOf")
_WHOLE = frozenset({"type", "required", "enum", "const"})
"""Rules that an alternative breaks which was not meant, when the value itself breaks them."""
_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "minLength": "a length of at least",
    "maxLength": "a length of at most",
    "const": "",
}


def schema_problems(
    places: Places, plugin: str, at: KeyPath, schema: JsonObject, section: JsonValue
) -> Iterator[ConfigProblem]:
    """Yield what does not fit; keys may be spelt in any way, numbers may stand as text.

    Args:
        places: for file, line and secrecy.
        plugin: id of the plugin that the section belongs to.
        at: where the section stands, as the file spells it.
        schema: the plugin's schema of it.
        section: as written.
    """
    yield from _SchemaCheck(places, f"plugin '{plugin}' says so", at, schema).problems(section)


@dataclass(slots=True)
class _Spelling:
    """Values with the keys that the schema has, at every level.

    Attributes:
        schema: the whole schema, which local references are looked up in.
        names: path in the schema's spelling to the last key of it as written.
        twice: paths as written of keys that stand there in another spelling too, with that one.
    """

    schema: JsonObject
    names: dict[KeyPath, str] = field(default_factory=dict)
    twice: dict[KeyPath, str] = field(default_factory=dict)

    def written(self, path: KeyPath) -> KeyPath:
        """Return a path of the schema as the file spells it."""
        return tuple(self.names.get(path[: index + 1], step) for index, step in enumerate(path))

    def translate(self, value: JsonValue, schema: JsonValue, at: KeyPath = ()) -> JsonValue:
        """Return `value`, which stands `at` a path in the schema's spelling, with its keys."""
        forms = self.forms(schema)
        if isinstance(value, dict):
            form = max(forms, key=lambda each: _fit(each, value))
            return self._translate_keys(value, form, at)
        if isinstance(value, list):
            form = next((each for each in forms if "items" in each or "prefixItems" in each), {})
            return [
                self.translate(inner, _item_schema(form, index), (*at, index))
                for index, inner in enumerate(value)
            ]
        # The properties and alternatives of a scalar are those of one argument of a tool.
        return cast_params(
            {"type": "object", "properties": {"value": self._resolved(schema)}}, {"value": value}
        )["value"]

    def forms(self, schema: JsonValue) -> list[JsonObject]:
        """Return the schema that is meant, references followed, and all alternatives in it."""
        found: list[JsonObject] = []
        waiting: list[JsonValue] = [schema]
        while waiting and len(found) < _MAX_REFERENCES:
            form = self._resolved(waiting.pop(0))
            found.append(form)
            for word in ("allOf", "anyOf", "oneOf"):
                options = form.get(word)
                waiting += options if isinstance(options, list) else []
        return found

    def _translate_keys(self, value: JsonObject, form: JsonObject, at: KeyPath) -> JsonObject:
        properties = _properties(form)
        others = form.get("additionalProperties")
        translated: JsonObject = {}
        for key, inner in value.items():
            known = _find_property(properties, key)
            here = (*at, known or key)
            if here in self.names:
                self.twice[(*self.written(at), key)] = self.names[here]
            self.names[here] = key
            # A key that is left empty counts as absent.
            if known is None or inner is not None:
                translated[known or key] = self.translate(
                    inner, properties[known] if known else others, here
                )
        return translated

    def _resolved(self, schema: JsonValue) -> JsonObject:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, dict):
                break
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = self._target(reference)
        return {}

    def _target(self, reference: str) -> JsonValue:
        """Return what a reference within the schema points to (RFC 6901), else nothing."""
        target: JsonValue = self.schema if reference.startswith("#") else None
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        return target


class _SchemaCheck:
    """One section against the schema of its plugin's manifest."""

    def __init__(self, places: Places, owner: str, at: KeyPath, schema: JsonObject) -> None:
        self._places = places
        self._owner = owner
        self._at = at
        self._schema = schema
        self._spelling = _Spelling(schema)

    def problems(self, section: JsonValue) -> Iterator[ConfigProblem]:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        if not isinstance(section, dict):
            yield self._problem((), "expected a mapping")
            return
        translated = self._spelling.translate(section, self._schema)
        for path, other in self._spelling.twice.items():
            yield self._problem(path, f"expected once, stands here also as '{other}'")
        validator = Draft202012Validator(self._schema, registry=Registry())
        for error in validator.iter_errors(translated):
            for meant in _meant(error):
                yield from self._tell(meant)

    def _tell(self, error: ValidationError) -> Iterator[ConfigProblem]:
        path = self._spelling.written(tuple(error.absolute_path))
        if error.validator == "additionalProperties" and error.validator_value is False:
            yield from self._unknown_keys(path, _properties(error.schema), error.instance)
        else:
            # The library's type has a value for "not set" too, which an error of a check never is.
            value = cast("JsonValue", error.instance)
            yield self._problem(path, f"expected {_wanted(error)}", value)

    def _unknown_keys(
        self, at: KeyPath, properties: JsonObject, section: object
    ) -> Iterator[ConfigProblem]:
        for key in section if isinstance(section, dict) else ():
            if key not in properties:
                near = nearest_key(key, properties)
                hint = f"did you mean '{_snake(near)}'?" if near else "remove it"
                yield self._problem((*at, key), "expected a known key", remedy=hint)

    def _problem(
        self, path: KeyPath, expected: str, value: JsonValue = None, remedy: str = ""
    ) -> ConfigProblem:
        full = (*self._at, *path)
        found = None if value is None else self._places.show(full, value)
        remedy = "; ".join(filter(None, (remedy, self._owner)))
        return self._places.problem(full, expected, found=found, remedy=remedy)


def _properties(form: object) -> JsonObject:
    properties = form.get("properties") if isinstance(form, dict) else None
    return properties if isinstance(properties, dict) else {}


def _find_property(properties: JsonObject, key: str) -> str | None:
    # The original leaves out the unit of seconds: `timeout` is our `timeout_s`.
    return find_key(properties, key) or find_key(properties, f"{key}_s")


def _fit(form: JsonObject, value: JsonObject) -> tuple[int, bool]:
    """How well a mapping fits a form: keys that it knows, and whether it describes others."""
    properties = _properties(form)
    known = sum(_find_property(properties, key) is not None for key in value)
    return known, isinstance(form.get("additionalProperties"), dict)


def _item_schema(form: JsonObject, index: int) -> JsonValue:
    first = form.get("prefixItems")
    if isinstance(first, list) and index < len(first):
        return first[index]
    return form.get("items")


def _meant(error: ValidationError) -> list[ValidationError]:
    """Return the errors of the alternative that was meant, where one is of the value's type."""
    if error.validator not in _ALTERNATIVES:
        return [error]
    branches: dict[object, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    fitting = [
        found
        for found in branches.values()
        if not any(each.validator in _WHOLE and not each.relative_path for each in found)
    ]
    if not fitting:
        return [error]
    return [meant for inner in min(fitting, key=len) for meant in _meant(inner)]


def _wanted(error: ValidationError) -> str:
    """What the schema asks for at one place, without the value that stands there."""
    rule = error.validator_value
    if error.validator == "type":
        return " or ".join(rule) if isinstance(rule, list) else str(rule)
    if error.validator == "enum" and isinstance(rule, list):
        return f"one of {', '.join(map(str, rule))}"
    if error.validator in _ALTERNATIVES and isinstance(rule, list):
        return " or ".join(filter(None, map(_kind, rule))) or "a valid value"
    if error.validator == "additionalProperties":
        return "only known keys"
    if error.validator in _LIMITS:
        return f"{_LIMITS[error.validator]} {rule}".strip()
    return "a valid value"


def _kind(alternative: JsonObject) -> str:
    keys = alternative.get("required")
    if "type" not in alternative and isinstance(keys, list):
        return f"a mapping with {' and '.join(map(str, keys))}"
    return str(alternative.get("type", ""))


def _snake(name: str) -> str:
    from pydantic.alias_generators import to_snake

    return to_snake(name)
