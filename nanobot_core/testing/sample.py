"""Values that fit a JSON Schema or a type, for calls with generated arguments."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nanobot_core
from nanobot_core.messages import JsonObject, JsonValue

SAMPLE_FILE = "sample.txt"
_FORMATS = {"uri": "http://127.0.0.1:9/", "date-time": "2026-01-01T00:00:00Z"}
_MAX_CALLS = 8
_MAX_DEPTH = 8
_SCALARS: dict[Any, object] = {
    str: "sample",
    int: 1,
    float: 1.0,
    bool: False,
    bytes: b"sample",
    object: "sample",
    Path: Path(SAMPLE_FILE),
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    None: None,
    types.NoneType: None,
    Any: "sample",
    dict: {},
    list: [],
    tuple: (),
}


def sample_calls(schema: JsonObject, text: str) -> list[JsonObject]:
    """Return arguments to try: the required ones, all, and each value of an enumeration.

    Args:
        schema: parameters of a tool.
        text: used for strings without a restriction.
    """
    properties, required = schema.get("properties"), schema.get("required")
    parts = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    whole = {name: _fitting(part, schema, text, name) for name, part in parts.items()}
    calls = [{name: whole[name] for name in parts if name in needed}, whole]
    for name, part in parts.items():
        values = part.get("enum") if isinstance(part, dict) else None
        calls += [{**whole, name: value} for value in (values if isinstance(values, list) else ())]
    return [call for i, call in enumerate(calls) if call not in calls[:i]][:_MAX_CALLS]


def _fitting(part: JsonValue, root: JsonObject, text: str, name: str, depth: int = 0) -> JsonValue:
    if not isinstance(part, dict) or depth > _MAX_DEPTH:
        return None
    if isinstance(reference := part.get("$ref"), str):
        found: JsonValue = root
        for step in reference.removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        return _fitting(found, root, text, name, depth + 1)
    for key in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if isinstance(choices := part.get(key), list) and choices:
            if key in {"examples", "enum"}:
                return choices[0]
            return _fitting({**part, key: [], **_object(choices[0])}, root, text, name, depth + 1)
    for key in ("const", "default"):
        if part.get(key) is not None:
            return part[key]
    kinds = part.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind == "string":
        return _text(part, text, name)
    if kind in {"integer", "number"}:
        return part.get("minimum", 1)
    if kind == "array":
        return [_fitting(part.get("items"), root, text, name, depth + 1)]
    if kind == "object":
        parts = _object(part.get("properties"))
        return {key: _fitting(value, root, text, key, depth + 1) for key, value in parts.items()}
    return False if kind == "boolean" else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(part: JsonObject, text: str, name: str) -> str:
    if (form := part.get("format")) in _FORMATS:
        return _FORMATS[str(form)]
    if "url" in name:
        return _FORMATS["uri"]
    least, most = part.get("minLength"), part.get("maxLength")
    found = SAMPLE_FILE if name.endswith(("path", "file")) else text
    found = found.ljust(least, ".") if isinstance(least, int) else found
    return found[:most] if isinstance(most, int) else found


class _PublicNames(dict[str, Any]):
    """Finds what a module imports for type checkers only, among the public names."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - whatever has that name
        for module in (nanobot_core, collections.abc):
            if name in module.__all__:
                return getattr(module, name)
        raise KeyError(name)


def type_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's parameters, or of a class's fields."""
    return typing.get_type_hints(target, localns=_PublicNames())


def sample_of(hint: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any type, and its values
    """Return a value of the type `hint`."""
    if hint in _SCALARS or depth > _MAX_DEPTH:
        return _SCALARS.get(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "user" if "user" in arguments else arguments[0]
    if origin in {typing.Union, types.UnionType}:
        return sample_of(next(each for each in arguments if each is not types.NoneType), depth + 1)
    if origin is tuple:
        kinds = arguments[:1] if arguments[-1:] == (...,) else arguments
        return tuple(sample_of(each, depth + 1) for each in kinds)
    if origin in {list, collections.abc.Sequence, collections.abc.Iterable}:
        return [sample_of(arguments[0], depth + 1)]
    if origin in {dict, collections.abc.Mapping}:
        return {}
    if origin is collections.abc.Callable:
        return _accept
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return next(iter(hint))
    if inspect.isclass(hint) and issubclass(hint, BaseException):
        return hint("sample")
    hints = type_hints(hint)
    return hint(**{name: sample_of(hints[name], depth + 1) for name in _required(hint)})


def _required(kind: Callable[..., Any]) -> Iterator[str]:
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            yield name


async def _accept(*_arguments: object) -> None:
    """A callable that takes everything."""
