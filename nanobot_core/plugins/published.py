"""The index of published plugins: ours, and copies of those that the owner has configured.

An index is data only. Everything that starts reads it from disk, so that a blocked version is out
without a network too; `nanobot_core.install.indexes` fetches the copies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeAlias

from nanobot_core.plugins.metadata import fits, normalise

INDEX_SCHEMA: Final = 1
OUR_INDEX: Final = "published-plugins.json"
Entry: TypeAlias = Mapping[str, Any]
"""An entry of an index, as docs/plugins/index-format.md describes it."""


class Published:
    """Published plugins, and versions that must not run.

    Args:
        indexes: contents of index files; of entries with one name the first applies, and blocks
            of all of them.
    """

    def __init__(self, indexes: Sequence[Mapping[str, Any]]) -> None:
        self._indexes = indexes

    @classmethod
    def load(cls, cache_dir: Path | None = None) -> Published:
        """Return our index and the copies of others; a damaged copy is left out.

        Args:
            cache_dir: folder with the copies; ``None`` means our index alone.
        """
        found = [_our_index()]
        for file in sorted(index_folder(cache_dir).glob("*.json")) if cache_dir else ():
            try:
                copy = json.loads(file.read_bytes())
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(copy, dict) and copy.get("schema_version") == INDEX_SCHEMA:
                found.append(copy)
        return cls(found)

    @cached_property
    def plugins(self) -> dict[str, Entry]:
        """The entries by the normalised name of their distribution."""
        found: dict[str, Entry] = {}
        for entry in self._items("plugins"):
            found.setdefault(normalise(entry["name"]), entry)
        return found

    @cached_property
    def sections(self) -> dict[str, str]:
        """Section of the configuration to the distribution that reads it."""
        return {
            section: name
            for name, entry in reversed(self.plugins.items())
            for section in entry.get("sections", ())
        }

    def of_kind(self, kind: str) -> list[str]:
        """Return the distributions that contribute something of a kind."""
        return [name for name, entry in self.plugins.items() if kind in entry.get("kinds", ())]

    def distribution_of(self, plugin_id: str) -> str:
        """Return the distribution that contains a plugin, or an empty string."""
        return next((name for name, entry in self.plugins.items() if plugin_id in entry["ids"]), "")

    def with_command(self, name: str) -> str:
        """Return the distribution that adds a command to ``nanobot``, or an empty string."""
        found = (each for each, entry in self.plugins.items() if name in entry.get("commands", ()))
        return next(found, "")

    def block_of(self, distribution: str, version: str) -> str:
        """Return why a version is blocked, or an empty string."""
        for block in self._items("blocked"):
            if normalise(block["name"]) == normalise(distribution) and fits(
                version, block.get("versions", ""), unreadable=True
            ):
                return str(block["reason"])
        return ""

    def _items(self, name: str) -> Iterator[Entry]:
        for index in self._indexes:
            yield from index.get(name, ())


@cache
def _our_index() -> Mapping[str, Any]:
    text = resources.files("nanobot_core.plugins").joinpath(OUR_INDEX).read_text("utf-8")
    index: Mapping[str, Any] = json.loads(text)
    return index


def index_folder(cache_dir: Path) -> Path:
    """Return the folder with the copies of indexes."""
    return cache_dir / "indexes"
