"""Short names of tools: unique ones stay short, contested ones belong to the bundled plugin.

What the owner's rules say of ``exec`` must mean the same whatever else is installed. So a plugin
that nanobot-core itself names in its extras keeps its short names; a stranger's distribution cannot
make itself one of those. Among others all claimants are spelt out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

MAX_NAME_CHARS = 64
_LETTERS = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER_LETTERS = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class NameClash:
    """A tool name that several plugins claim.

    Attributes:
        name: the short name.
        plugins: those that claim it.
        keeper: the one of them that has it, or an empty string where none has.
    """

    name: str
    plugins: tuple[str, ...]
    keeper: str = ""

    @property
    def outcome(self) -> str:
        """Whose the name is, in one clause."""
        return f"'{self.keeper}' has it" if self.keeper else "each of them is spelt out"

    @property
    def remedy(self) -> str:
        """The line that settles it."""
        return f"set tools.aliases.{self.name}: {self.keeper or self.plugins[0]}/{self.name}"


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The outcome: (plugin, own name) to the name that the model sees, and what was contested."""

    public: Mapping[tuple[str, str], str]
    clashes: tuple[NameClash, ...]


def assign_tool_names(
    claims: Mapping[str, Sequence[str]],
    aliases: Mapping[str, str],
    keepers: Collection[str] = (),
) -> ToolNames:
    """Give every tool a name that does not depend on the order of loading.

    Args:
        claims: by plugin id, the names of its tools.
        aliases: short name to ``plugin-id/name``, as the owner settled it.
        keepers: ids of plugins that keep their short names against others.
    """
    owners: dict[str, list[str]] = {}
    for plugin in sorted(claims):
        for name in dict.fromkeys(claims[plugin]):
            owners.setdefault(name, []).append(plugin)
    there = {f"{plugin}/{name}" for name, plugins in owners.items() for plugin in plugins}
    aliased = {full: short for short, full in sorted(aliases.items()) if full in there}
    taken = frozenset(aliased.values())
    kept: set[str] = set()
    public: dict[tuple[str, str], str] = {}
    clashes: list[NameClash] = []
    for name, plugins in sorted(owners.items()):
        unsettled = [plugin for plugin in plugins if f"{plugin}/{name}" not in aliased]
        contested = len(unsettled) > 1 or name in taken
        first = [plugin for plugin in unsettled if plugin in keepers]
        keeper = first[0] if len(first) == 1 and name not in taken else ""
        if contested and name not in taken:
            clashes.append(NameClash(name, tuple(unsettled), keeper))
        for plugin in plugins:
            is_short = not contested or plugin == keeper
            own = name if is_short else long_name(plugin, name)
            public[plugin, name] = aliased.get(f"{plugin}/{name}", own)
            kept |= {f"{plugin}/{name}"} if is_short and plugin in keepers else set()
    return ToolNames(_without_doubles(public, kept | {*aliased}), tuple(clashes))


def _without_doubles(
    public: Mapping[tuple[str, str], str], settled: Collection[str]
) -> dict[tuple[str, str], str]:
    """Tell apart what is spelt alike, such as ``b__c`` of plugin ``a`` and ``c`` of ``a__b``."""
    uses = Counter(public.values())
    return {
        owner: name if uses[name] == 1 or full in settled else _with_digest(full)
        for owner, name in public.items()
        for full in ("/".join(owner),)
    }


def long_name(plugin: str, name: str) -> str:
    """Return ``plugin__name`` in the letters that providers take, at most 64 characters."""
    full = f"{plugin}__{name}"
    if len(full) <= MAX_NAME_CHARS and _LETTERS.fullmatch(full):
        return full
    return _with_digest(f"{plugin}/{name}")


def _with_digest(full: str) -> str:
    """Return a name of at most 64 characters that no other text gives."""
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    readable = _OTHER_LETTERS.sub("_", full)
    return f"{readable[: MAX_NAME_CHARS - 9]}_{digest}"
