"""Trees of plain values: key paths, spellings of keys, and merging of layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

KeyPath: TypeAlias = tuple[str | int, ...]
Origins: TypeAlias = dict[str, "Origin"]

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from.

    Attributes:
        source: path of a file, ``environment variable NAME`` or ``command line``.
        line: line in the file, from 1; ``None`` for other sources.
    """

    source: str
    line: int | None = None


def render_path(path: KeyPath) -> str:
    """Return `path` as people write it: ``tools.approval[0].tool``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def parse_path(text: str) -> KeyPath:
    """Return the steps of a key path such as ``owner[0]`` or ``agents.defaults.model``."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(text))


def fold(key: str) -> str:
    """Return the common form of all spellings of a key (``api_key``, ``apiKey``, ``API-KEY``)."""
    return key.replace("_", "").replace("-", "").lower()


def find_key(mapping: Mapping[str, object], name: str) -> str | None:
    """Return the key of `mapping` that is `name` or another spelling of it."""
    if name in mapping:
        return name
    wanted = fold(name)
    return next((key for key in mapping if fold(key) == wanted), None)


def resolve(tree: JsonValue, path: KeyPath) -> tuple[KeyPath, JsonValue]:
    """Return the longest start of `path` that exists, in the spelling of `tree`, and its value."""
    found: KeyPath = ()
    for step in path:
        if isinstance(tree, dict) and isinstance(step, str):
            key = find_key(tree, step)
            if key is None:
                break
            found, tree = (*found, key), tree[key]
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            found, tree = (*found, step), tree[step]
        else:
            break
    return found, tree


def walk(value: JsonValue, at: KeyPath = ()) -> Iterator[tuple[KeyPath, JsonValue]]:
    """Yield `value` and everything inside it with its path, outer values first."""
    yield at, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, (*at, index))


def nest(path: KeyPath, value: JsonValue) -> JsonObject:
    """Return nested mappings with `value` at `path`, which has no indices."""
    for step in reversed(path):
        value = {str(step): value}
    return value if isinstance(value, dict) else {}


def overlay(
    base: JsonObject,
    layer: JsonObject,
    origins: Origins,
    layer_origins: Mapping[str, Origin],
    at: tuple[KeyPath, KeyPath] = ((), ()),
) -> None:
    """Merge `layer` into `base`, in place: mappings are merged, other values replaced.

    Args:
        base: the tree that is changed.
        layer: overrides `base`; it may spell keys differently.
        origins: origins of `base`, changed accordingly.
        layer_origins: origins of `layer`.
        at: paths of `base` and `layer` in their origins.
    """
    for name, value in layer.items():
        key = find_key(base, name) or name
        here, there = (*at[0], key), (*at[1], name)
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            overlay(old, value, origins, layer_origins, (here, there))
            continue
        for path, _ in walk(old, here):
            origins.pop(render_path(path), None)
        base[key] = value
        for path, _ in walk(value):
            origin = layer_origins.get(render_path((*there, *path)))
            if origin is not None:
                origins[render_path((*here, *path))] = origin
