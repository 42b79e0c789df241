"""The beginning of requests: who changes it, and what that costs.

Providers keep the beginning of a request, the tools and then the system prompt, and charge less for
it. A change voids that from there on, and nothing in an answer shows which plugin it was.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from nanobot_core.agent.blocks import CHARS_PER_TOKEN, Passages
from nanobot_core.hooks.account import PluginCosts
from nanobot_core.record import dataclass
from nanobot_core.tools.registry import RegisteredTool

_TRACKED_SESSIONS = 256


@dataclass(frozen=True, slots=True)
class PrefixPart:
    """A tool definition or a stable passage.

    Attributes:
        plugin: id of the plugin that it comes from.
        content: the definition or the text; ``None`` for a tool that a plugin takes from the model.
        chars: its length.
    """

    plugin: str
    content: object
    chars: int


class PrefixWatch:
    """Compares the beginnings of a session's requests, and charges plugins for what they change."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, bool], Mapping[str, PrefixPart]] = OrderedDict()

    def update(
        self,
        session: tuple[str, bool],
        parts: Mapping[str, PrefixPart],
        following_chars: int,
        costs_of: Callable[[str], PluginCosts],
    ) -> None:
        """Log what differs from the request before, and charge for it.

        The first difference voids the cache, so its plugin pays for all that comes after it.

        Args:
            session: its key, and whether the owner wrote: others have other tools.
            parts: by name, in the order of the request.
            following_chars: length of the history and the message after them.
            costs_of: returns what a plugin has cost, by its id.
        """
        former = self._sessions.get(session)
        self._sessions[session] = parts
        self._sessions.move_to_end(session)
        if len(self._sessions) > _TRACKED_SESSIONS:
            self._sessions.popitem(last=False)
        if former is None or former == parts:
            return
        from loguru import logger

        both = {**former, **parts}
        # A tool that is offered again was taken by another plugin than its own.
        both |= {name: part for name, part in former.items() if part.content is None}
        places = {**_places(former), **_places(parts)}
        changed = [name for name in both if former.get(name) != parts.get(name)]
        for name in changed:
            costs_of(both[name].plugin).cache_misses += 1
            logger.bind(plugin=both[name].plugin).info(
                "the {} changed, which voids the provider's prompt cache", name
            )
        first = min(changed, key=lambda name: places[name])
        lost = sum(part.chars for part in list(parts.values())[places[first] :]) + following_chars
        costs_of(both[first].plugin).lost_tokens += lost // CHARS_PER_TOKEN

    def parts_of(
        self,
        session: tuple[str, bool],
        tools: Iterable[RegisteredTool],
        passages: Passages,
    ) -> dict[str, PrefixPart]:
        """Return the parts of a request by name: the tools, then the stable passages."""
        former = self._sessions.get(session, {})
        parts: dict[str, PrefixPart] = {}
        for entry in tools:
            name = f"tool {entry.definition.name}"
            known = former.get(name)
            if known is None or known.content is not entry.definition:
                schema = json.dumps(entry.definition.to_schema(), default=str)
                known = PrefixPart(entry.plugin, entry.definition, len(schema))
            parts[name] = known
        for name, text in passages.items():
            parts[f"stable block {name}"] = PrefixPart(name.partition("/")[0], text, len(text))
        return parts


def charge_for_passages(
    passages: Sequence[Passages], costs_of: Callable[[str], PluginCosts]
) -> None:
    """Note the tokens of each plugin's passages in a request."""
    chars: dict[str, int] = {}
    for texts in passages:
        for name, text in texts.items():
            plugin = name.partition("/")[0]
            chars[plugin] = chars.get(plugin, 0) + len(text)
    for plugin, length in chars.items():
        costs_of(plugin).passage_tokens = length // CHARS_PER_TOKEN


def _places(parts: Mapping[str, PrefixPart]) -> dict[str, int]:
    return {name: place for place, name in enumerate(parts)}
