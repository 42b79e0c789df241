"""Edits of the configuration file that keep comments, order, placeholders and unknown keys.

The result is parsed before it replaces the file, which happens in one step.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot_core.config.legacy import migrate
from nanobot_core.config.source import parse_source, read_text
from nanobot_core.config.tree import Origin, find_key, resolve
from nanobot_core.disk import replace_file
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue

if TYPE_CHECKING:
    from ruamel.yaml import YAML

_LOSSY = "its YAML cannot be edited without loss; change it by hand"
_UNLIMITED_WIDTH = 1_000_000
_JSON_INDENT = re.compile(r"^\{\s*\n([ \t]+)")
_MAPPING = re.compile(r"^( +)[^\s#-]", re.MULTILINE)
_LIST = re.compile(r"^( *)[^\s#-].*:[ ]*(?:#.*)?\n(?:\s*#.*\n)*( *)-( +)\S", re.MULTILINE)


def set_value(path: Path, key_path: str, value: JsonValue) -> None:
    """Set the value at a key path; a missing file and missing mappings around it are created.

    Args:
        path: the file, YAML or JSON by its suffix.
        key_path: such as ``agents.defaults.model``; an existing key keeps its spelling.
        value: placeholders are written unchanged.

    Raises:
        ConfigUnreadable: the file cannot be read or parsed.
        ConfigInvalid: the key path leads through something other than a mapping.
    """
    document = _Document(path)
    holder, key = document.locate(key_path)
    holder[key] = value
    document.save()


def change_values(path: Path, changes: Mapping[str, JsonValue]) -> None:
    """Set the values at several key paths in one step; see `set_value`.

    Args:
        path: the file.
        changes: key path to value; ``None`` removes what the file has there.
    """
    document = _Document(path)
    for key_path, value in changes.items():
        if value is None:
            document.remove(key_path)
        else:
            holder, key = document.locate(key_path)
            holder[key] = value
    document.save()


def add_to_list(path: Path, key_path: str, item: str, *, out_of: str = "") -> bool:
    """Append `item` to a list unless it contains it; return whether the file has changed.

    Args:
        path: the file.
        key_path: place of the list, which is created if absent.
        item: the item.
        out_of: key path of a list that must not contain the item any more; changed in the same
            step.

    Raises:
        ConfigUnreadable: the file cannot be read or parsed.
        ConfigInvalid: the value there is not a list; nothing is changed.
    """
    document = _Document(path)
    items = document.list_at(key_path)
    others = document.list_at(out_of) if out_of and document.has(out_of) else []
    if item in items and item not in others:
        return False
    if item in others:
        others.remove(item)
    if item not in items:
        items.append(item)
    document.save()
    return True


def remove_from_list(path: Path, key_path: str, unwanted: Callable[[str], bool]) -> bool:
    """Remove items from a list; return whether the file has changed.

    Args:
        path: the file.
        key_path: place of the list; an absent one stays absent.
        unwanted: whether an item is removed.

    Raises:
        ConfigUnreadable: the file cannot be read or parsed.
        ConfigInvalid: the value there is not a list; nothing is changed.
    """
    document = _Document(path)
    items = document.list_at(key_path) if document.has(key_path) else []
    found = [item for item in items if unwanted(str(item))]
    for item in found:
        items.remove(item)
    if found:
        document.save()
    return bool(found)


def migrate_json_to_yaml(path: Path) -> tuple[Path, list[ConfigProblem]]:
    """Write the JSON file at `path` as YAML beside it, under the keys of this core.

    The old file stays; nanobot looks for the new one first.

    Returns:
        The new file, and a warning for each value that is left out because it has no counterpart.

    Raises:
        ConfigUnreadable: `path` cannot be parsed, or the new file exists.
        ConfigInvalid: `path` has a key twice.
    """
    target = path.with_suffix(".yaml")
    if target.exists():
        raise ConfigUnreadable(str(target), "it exists and will not be overwritten")
    source = parse_source(read_text(path), str(path), is_json=True)
    origins = {key: Origin(str(path), line) for key, line in source.lines.items()}
    warnings = migrate(source.tree, origins)
    document = _Document(target)
    document.root.update(source.tree)
    document.save()
    return target, warnings


class _Document:
    """A configuration file with its comments, order and layout."""

    def __init__(self, path: Path) -> None:
        # A link stays a link: dotfile managers keep the file elsewhere.
        self._path = path.resolve()
        self._is_json = path.suffix.lower() == ".json"
        self._text = read_text(self._path) if self._path.exists() else ""
        self._yaml: YAML | None = None
        self._tree = parse_source(self._text, str(path), is_json=self._is_json).tree
        self._edited: list[tuple[str, ...]] = []
        loaded = self._load()
        self.root: MutableMapping[str, Any] = {} if loaded is None else loaded

    def _load(self) -> JsonObject | None:
        loaded: JsonObject | None
        if not self._is_json:
            from ruamel.yaml import YAML

            self._yaml = YAML()
            self._yaml.preserve_quotes = True
            self._yaml.width = _UNLIMITED_WIDTH
            self._yaml.indent(*_indentation(self._text))
            with self._keeping():
                loaded = self._yaml.load(self._text)
            if loaded is not None and not isinstance(loaded, MutableMapping):
                # The two parsers read some texts differently, such as an anchor `&name:`.
                raise ConfigUnreadable(str(self._path), _LOSSY)
            return loaded
        try:
            loaded = json.loads(self._text or "{}")
        except ValueError:
            raise ConfigUnreadable(str(self._path), "it contains YAML that is not JSON") from None
        return loaded

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Refuse a text that ruamel cannot keep; it fails on such texts in many ways.

        Raises:
            ConfigUnreadable: it failed.
        """
        try:
            with warnings.catch_warnings(action="ignore"):  # a duplicate anchor
                yield
        except Exception:  # noqa: BLE001 - isolation point: a parser that is not ours
            raise ConfigUnreadable(str(self._path), _LOSSY) from None

    def locate(self, key_path: str) -> tuple[MutableMapping[str, Any], str]:
        """Return the mapping around the value at `key_path`, created if absent, and its key."""
        holder = self.root
        *outer, last = key_path.split(".")
        self._edited.append((*outer, last))
        for count, step in enumerate(outer, 1):
            key = _spelling(holder, step)
            if holder.get(key) is None:
                holder[key] = {}
            holder = holder[key]
            if not isinstance(holder, MutableMapping):
                raise self._invalid(".".join(outer[:count]), "a mapping")
        return holder, _spelling(holder, last)

    def remove(self, key_path: str) -> None:
        """Remove the value at `key_path`, if there is one."""
        if self.has(key_path):
            holder, key = self.locate(key_path)
            del holder[key]

    def has(self, key_path: str) -> bool:
        """Whether there is a value at `key_path`."""
        steps = tuple(key_path.split("."))
        found, value = resolve(self._tree, steps)
        return len(found) == len(steps) and value is not None

    def list_at(self, key_path: str) -> list[Any]:
        """Return the list at `key_path`, created if absent."""
        holder, key = self.locate(key_path)
        if holder.get(key) is None:
            holder[key] = []
        items = holder[key]
        if not isinstance(items, list):
            raise self._invalid(key_path, "a list")
        return items

    def _invalid(self, key_path: str, expected: str) -> ConfigInvalid:
        problem = ConfigProblem(key_path, f"expected {expected}", file=str(self._path))
        return ConfigInvalid([problem])

    def save(self) -> None:
        """Replace the file; it keeps its mode, and a new one is readable by the owner only."""
        if self._yaml is None:
            match = _JSON_INDENT.match(self._text)
            indent = match[1] if match else 2
            text = json.dumps(self.root, indent=indent, ensure_ascii=False) + "\n"
        else:
            stream = io.StringIO()
            with self._keeping():
                self._yaml.dump(self.root, stream)
            text = stream.getvalue()
            if type(self.root) is dict and self._text.strip():  # a file of comments alone
                text = f"{self._text.rstrip()}\n{text}"
        before, after = self._tree, parse_source(text, str(self._path), is_json=self._is_json).tree
        for steps in self._edited:
            before, after = _without(before, steps), _without(after, steps)
        if self._edited and before != after:
            raise ConfigUnreadable(str(self._path), _LOSSY)
        replace_file(self._path, text)


def _without(tree: JsonObject, steps: tuple[str, ...]) -> JsonObject:
    """Return `tree` without the value at a key path and without mappings that this empties."""
    key = find_key(tree, steps[0])
    if key is None:
        return tree
    rest = {name: value for name, value in tree.items() if name != key}
    inner = tree[key]
    if steps[1:] and isinstance(inner, dict) and (kept := _without(inner, steps[1:])):
        rest[key] = kept
    return rest


def _spelling(holder: MutableMapping[str, Any], step: str) -> str:
    """Return the key of `holder` for `step`; ruamel reads keys such as chat ids as numbers."""
    keys = {str(key): key for key in holder}
    return keys.get(find_key(keys, step) or step, step)


def _indentation(text: str) -> tuple[int, int, int]:
    """Return the spaces before inner mappings, before list items, and before their dashes."""
    mapping, items = _MAPPING.search(text), _LIST.search(text)
    offset = max(len(items[2]) - len(items[1]), 0) if items else 2
    width = offset + 1 + len(items[3]) if items else 4
    return len(mapping[1]) if mapping else 2, width, offset
