"""Passages of plugins and of the memory in a request: their order and their room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot_core.contracts.plugin import ContextBlock
from nanobot_core.text import truncate_middle

if TYPE_CHECKING:
    from loguru import Logger

STABLE_SHARE = 0.25
"""Part of the input budget that all stable passages together may take."""
TURN_SHARE = 0.1
"""The same for the passages of one turn."""
MIN_TOKENS = 50
"""A passage is left out if less than this would remain of it."""
CHARS_PER_TOKEN = 4
"""A fixed ratio: with one that is learned, the beginning of requests would change."""
_TRACKED_SESSIONS = 256
_LOGGED_PASSAGES = 1_000


PlacedBlock = tuple[str, ContextBlock]
"""The id of a plugin and a passage of it."""
Passages = Mapping[str, str]
"""A text for each passage, by ``plugin/heading``."""


def fit_blocks(blocks: Iterable[PlacedBlock], budget_tokens: int) -> tuple[Passages, Passages]:
    """Return the passages that fit, by position, plugin and heading, and why others are cut.

    Each is cut to its own limit. If all together exceed the budget, those with the lowest priority
    are shortened or left out first; of equal ones, those further back.

    Args:
        blocks: passages in any order.
        budget_tokens: estimated tokens of all texts together.
    """
    placed = sorted(blocks, key=lambda each: (each[1].position, each[0], each[1].name))
    room = budget_tokens * CHARS_PER_TOKEN
    texts = {f"{plugin}/{block.name}": "" for plugin, block in placed}
    losses: dict[str, str] = {}
    for plugin, block in sorted(placed, key=lambda each: -each[1].priority):
        name = f"{plugin}/{block.name}"
        wanted = min(len(block.text), block.max_tokens * CHARS_PER_TOKEN)
        chars = min(wanted, room)
        if chars < wanted and chars < MIN_TOKENS * CHARS_PER_TOKEN:
            chars = 0
        room -= chars
        if chars < len(block.text):
            limit = f"its limit of {block.max_tokens:,} tokens" if chars == wanted else "the budget"
            verb = f"cut to {chars:,} of {len(block.text):,} characters" if chars else "left out"
            losses[name] = f"{verb} because of {limit}"
        if chars or not block.text:
            texts[name] = f"# {block.name}\n\n{truncate_middle(block.text, chars)}"
    return {name: text for name, text in texts.items() if text}, losses


class BlockReport:
    """Reports passages that are not complete."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, tuple[Sequence[str], Sequence[str]]] = OrderedDict()
        self._logged: set[str] = set()

    def losses(self, session_key: str) -> Sequence[str]:
        """Return a line for each passage that is not complete in a session's last request."""
        return self._sessions.get(session_key, ((), ()))[0]

    def passages(self, session_key: str) -> Sequence[str]:
        """Return ``plugin/heading`` of each passage in a session's last request."""
        return self._sessions.get(session_key, ((), ()))[1]

    def update(self, session_key: str, losses: Passages, passages: Sequence[str]) -> None:
        """Log which passages of a request are not complete, each once."""
        lines = [f"{name} is {loss}" for name, loss in losses.items()]
        self._sessions[session_key] = (lines, passages)
        self._sessions.move_to_end(session_key)
        if len(self._sessions) > _TRACKED_SESSIONS:
            self._sessions.popitem(last=False)
        for name, loss in losses.items():
            if name not in self._logged and len(self._logged) < _LOGGED_PASSAGES:
                self._logged.add(name)
                _logger_of(name).warning("the passage {} is {}", name, loss)


def _logger_of(name: str) -> Logger:
    from loguru import logger

    return logger.bind(plugin=name.partition("/")[0])
