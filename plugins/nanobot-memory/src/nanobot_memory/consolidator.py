"""Consolidator: turns what leaves a session into entries of the history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from nanobot_core import Consolidated, finish_in_thread
from nanobot_memory.history import digest_of
from nanobot_memory.passages import estimate_tokens
from nanobot_memory.summaries import (
    NOTHING,
    Part,
    SummaryFailed,
    joined,
    part_of,
    summarise,
)

if TYPE_CHECKING:
    from nanobot_core import HistorySpan, Message, PluginContext
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.settings import MemorySettings

MAX_ROUNDS: Final = 5
"""Parts that one consolidation summarises."""
BACKGROUND_SHARE: Final = 0.65
"""Part of the budget that a history may fill before it is shortened without need. It is shortened
to half, so that not every turn costs a summary."""
PART_MESSAGES: Final = 60
"""Messages of a part, more if its last turn has not ended by then."""
FIRST_PAUSE_S: Final = 60.0
MAX_PAUSE_S: Final = 3_600.0
_MAX_DOUBLINGS = 10


@dataclass(slots=True)
class _Pause:
    """Failures of a memory in a row, and until when no model is called for it."""

    failures: int = 0
    until_s: float = 0.0


class Consolidator:
    """Summarises parts of sessions and appends them to the history of their memory.

    What is already in the history is not summarised again: after a kill between the entry and the
    session's mark, the entry counts.
    """

    def __init__(self, ctx: PluginContext, settings: MemorySettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._model = settings.model
        self._pauses: dict[str, _Pause] = {}

    async def consolidate(
        self, files: MemoryFiles, span: HistorySpan, token_budget: int, *, must: bool
    ) -> Consolidated:
        """Take up the oldest turns of a span, towards half the budget.

        Without need, nothing is taken up below `BACKGROUND_SHARE` of the budget.

        Args:
            files: the memory.
            span: the session's messages.
            token_budget: tokens that they may have.
            must: a part without a summary is taken up too, as ``[RAW]``.
        """
        tokens = span.tokens or tuple(estimate_tokens(each.text) for each in span.messages)
        taken, summary = 0, span.summary
        if not must and sum(tokens) <= token_budget * BACKGROUND_SHARE:
            return Consolidated()
        for _ in range(MAX_ROUNDS):
            excess = sum(tokens[taken:]) - token_budget // 2
            if excess <= 0:
                break
            stop, known = await asyncio.to_thread(_known, files, span, taken)
            if stop == 0:
                stop = boundary(span.messages, tokens, taken, excess)
                if stop == 0:
                    break
                part = part_of(span, taken, stop)
                text = await self.take_up(files, part, summary, must=must)
                if text is None:
                    break
                known = "" if text == NOTHING else text
            taken, summary = stop, joined(summary, known)
        return Consolidated(messages=taken, summary=summary if taken else "")

    async def take_up(
        self, files: MemoryFiles, part: Part, before: str, *, must: bool
    ) -> str | None:
        """Append a part to the history and return its text.

        Args:
            files: the memory.
            part: the part.
            before: summary of what was said before it.
            must: without a summary the entry is ``[RAW]``; otherwise nothing is appended and the
                result is ``None``.
        """
        if known := await asyncio.to_thread(files.find_span, part.entry("")):
            return known.content
        try:
            text = await self._summarise(files, part, before)
        except SummaryFailed as error:
            self._log.warning(
                "no summary of {} messages from {}: {}", part.last - part.first, part.first, error
            )
            if not must:
                return None
            text = part.raw
        if text != NOTHING:
            await finish_in_thread(partial(files.append, [part.entry(text)]))
        return text

    def pause_s(self, files: MemoryFiles) -> float:
        """Return for how many seconds no model is called for a memory, because calls failed."""
        pause = self._pauses.get(files.scope, _Pause())
        return max(pause.until_s - self._ctx.clock.monotonic_s(), 0.0)

    async def _summarise(self, files: MemoryFiles, part: Part, before: str) -> str:
        if not part.text:
            return part.raw
        if pause_s := self.pause_s(files):
            msg = f"the last one failed; the next is tried in {pause_s:.0f} s"
            raise SummaryFailed(msg)
        try:
            text = await summarise(self._ctx, part.text, before, self._model)
        except SummaryFailed:
            pause = self._pauses.setdefault(files.scope, _Pause())
            doublings = min(pause.failures, _MAX_DOUBLINGS)
            pause.failures += 1
            pause.until_s = self._ctx.clock.monotonic_s() + min(
                FIRST_PAUSE_S * 2**doublings, MAX_PAUSE_S
            )
            raise
        self._pauses.pop(files.scope, None)
        return text


def boundary(messages: Sequence[Message], tokens: Sequence[int], start: int, excess: int) -> int:
    """Return where the part that begins at `start` ends, always before a user message; 0 if none.

    Args:
        messages: of the span.
        tokens: of each.
        start: number of the first message of the part.
        excess: tokens to take up at least, if the part does not become longer than
            `PART_MESSAGES`.
    """
    found, size = 0, 0
    for at in range(start, len(messages)):
        if at > start and messages[at].role == "user":
            if found and at - start > PART_MESSAGES:
                break
            found = at
            if size >= excess:
                break
        size += tokens[at]
    return found


def parts_of(span: HistorySpan) -> list[Part]:
    """Return all of a span in parts that begin with a user message."""
    parts, start = [], 0
    while start < len(span.messages):
        stop = boundary(span.messages, [1] * len(span.messages), start, PART_MESSAGES)
        rest = len(span.messages) - start
        if stop == 0 or rest <= PART_MESSAGES:
            stop = len(span.messages)
        parts.append(part_of(span, start, stop))
        start = stop
    return parts


def known_start(files: MemoryFiles, span: HistorySpan) -> int:
    """Return how many messages from the start of a span are in the history already. Blocks."""
    start = 0
    while start < len(span.messages):
        stop, _ = _known(files, span, start)
        if stop == 0:
            break
        start = stop
    return start


def _known(files: MemoryFiles, span: HistorySpan, start: int) -> tuple[int, str]:
    """Return the end and text of the entry that begins at `start` of a span; 0 if none does."""
    first = span.first_index + start
    for entry in reversed(files.all_entries()):
        if entry.session_key != span.scope.session_key or entry.first != first:
            continue
        stop = (entry.last or 0) - span.first_index
        messages = span.messages[start:stop]
        if start < stop <= len(span.messages) and digest_of(messages) == entry.digest:
            return stop, entry.content
    return 0, ""
