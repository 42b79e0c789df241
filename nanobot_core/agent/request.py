"""The request to the model: stable instructions, the history, and the message with its context.

A request begins with the same bytes as the one before it, so that the service finds its beginning
in its prompt cache. The system prompt changes only if its sources change. What a user's message
begins with is stored with it, so that later requests repeat it. Three things appear in one turn
only: passages of plugins with the placement ``turn``, images, and results of tools that are too
long to store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from nanobot_core.agent.blocks import (
    STABLE_SHARE,
    TURN_SHARE,
    BlockReport,
    Passages,
    PlacedBlock,
    fit_blocks,
)
from nanobot_core.agent.images import load_document, load_image
from nanobot_core.agent.instructions import Instructions
from nanobot_core.agent.prefix import PrefixPart, PrefixWatch, charge_for_passages
from nanobot_core.agent.shortening import RUNTIME_END, RUNTIME_HEADING, summary_message
from nanobot_core.clock import Clock
from nanobot_core.contracts.plugin import ContextBlock
from nanobot_core.events import ContextRequested, TurnInfo
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import RUNTIME, ImageBlock, Message, TextBlock
from nanobot_core.record import dataclass
from nanobot_core.tools.registry import RegisteredTool

SEPARATOR = "\n\n---\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """The parts of a request.

    Attributes:
        turn: the turn.
        message: the user's message as stored, see `RequestBuilder.runtime_lines`.
        history: earlier messages, legal and within the budget.
        progress: messages of an interrupted turn after its first one, legal.
        media: local paths of attached files; images are shown to the model.
        documents: so are PDF documents.
        model: name of the model, for hooks.
        tools: the offered tools.
        withheld: names of tools that a hook took from the model.
        summary: of the messages that are no longer in `history`, or an empty string.
        memory: passages of the memory backend.
        format_hint: how the channel shows text, or an empty string.
        workspace: folder of the turn's tools.
        budget_tokens: tokens that a request may take; passages of plugins get a part of them.
    """

    turn: TurnInfo
    message: Message
    history: Sequence[Message]
    model: str
    workspace: Path
    budget_tokens: int
    tools: Sequence[RegisteredTool] = ()
    withheld: Collection[str] = ()
    progress: Sequence[Message] = ()
    media: Sequence[str] = ()
    documents: bool = False
    summary: str = ""
    memory: Sequence[ContextBlock] = ()
    format_hint: str = ""


def with_attachments(text: str, media: Sequence[str]) -> str:
    """Return a message's text with the paths of its attached files, as it is stored.

    The history then names files whose content later requests leave out, and contains messages
    that consist of files only.
    """
    return "\n\n".join([*([text] if text else []), *(f"Attached file: {path}" for path in media)])


def quoted(text: str) -> str:
    """Return `text` with ``> `` before each line, which nothing in it can undo."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


class RequestBuilder:
    """Builds requests.

    Attributes:
        instructions: the beginning of the system prompt, and other prompt texts.
        report: what plugins' passages lack.

    Args:
        instructions: see above.
        timezone: IANA name of the time zone for the times that the model sees.
        clock: source of time.
        max_image_side: pixels of the longer side of an image.
    """

    def __init__(
        self,
        instructions: Instructions,
        timezone: str,
        clock: Clock,
        *,
        max_image_side: int,
    ) -> None:
        self.instructions: Instructions = instructions
        self._timezone = ZoneInfo(timezone)
        self._clock = clock
        self._max_image_side = max_image_side
        self.report: BlockReport = BlockReport()
        self._prefix = PrefixWatch()
        # One picture at a time, so that those of many messages do not fill the memory together.
        self._decoding = asyncio.Lock()

    def runtime_lines(self, turn: TurnInfo, workspace: Path, *, is_quoted: bool) -> str:
        """Return what the model reads before a user's message; it is stored with the message.

        Args:
            turn: who wrote it, and where.
            workspace: folder of the turn's tools.
            is_quoted: it has lines that someone other than the owner wrote, see `quoted`.
        """
        now: datetime = self._clock.now().astimezone(self._timezone)
        is_guests = workspace != self.instructions.workspace
        notes = (["guest"] if not turn.is_owner else []) + (["quoted"] if is_quoted else [])
        return "\n".join(
            [
                f"Time: {now:%Y-%m-%d %H:%M} ({now:%A}, {self._timezone.key})",
                f"Channel: {turn.channel}, chat {turn.chat_id}, sender {turn.sender_id}",
                *([f"Workspace: {workspace}"] if is_guests else []),
                *([f"Started by: {turn.source}; no user is present"] if turn.assignment else []),
                *map(self.instructions.text, notes),
            ]
        )

    async def build(self, parts: RequestParts, hooks: Hooks) -> list[Message]:
        """Return the messages of a request: system prompt, history, user's message, progress."""
        blocks = [("memory", block) for block in parts.memory]
        given = parts.turn.assignment
        own_instructions = given.instructions if given else None
        if hooks.gather_context and own_instructions is None:
            event = ContextRequested(
                turn=parts.turn,
                model=parts.model,
                history=parts.history,
                tools=tuple(entry.definition.name for entry in parts.tools),
            )
            blocks += await hooks.gather_context(event)
        stable, losses = _fitted(blocks, "stable", int(parts.budget_tokens * STABLE_SHARE))
        fresh, more_losses = _fitted(blocks, "turn", int(parts.budget_tokens * TURN_SHARE))
        all_losses = {**losses, **more_losses}
        self.report.update(parts.turn.session_key, all_losses, [*stable, *fresh])
        if own_instructions is not None:
            beginning = [own_instructions]
        else:
            beginning = await self.instructions.parts(
                parts.turn.channel,
                parts.format_hint,
                parts.workspace,
                is_owner=parts.turn.is_owner,
            )
        system = SEPARATOR.join((*beginning, *stable.values()))
        summary = [summary_message(parts.summary)] if parts.summary else []
        following = [
            *summary,
            *map(_with_runtime, parts.history),
            await self._with_context(parts, fresh.values()),
            *map(_with_runtime, parts.progress),
        ]
        charge_for_passages((stable, fresh), hooks.runtime.costs_of)
        session = parts.turn.session_key, parts.turn.is_owner
        prefix = self._prefix.parts_of(session, parts.tools, stable)
        if parts.withheld:
            # That several plugins take tools is rare; the last one is named then.
            taker = hooks.rewrite_tools.implementations[-1].plugin
            taken = {f"tool {name}": PrefixPart(taker, None, 0) for name in parts.withheld}
            prefix = taken | prefix
        self._prefix.update(session, prefix, _chars(following), hooks.runtime.costs_of)
        return [Message(role="system", content=system), *following]

    async def _with_context(self, parts: RequestParts, passages: Iterable[str]) -> Message:
        """Return the turn's message as it is sent: files, runtime lines, passages, text."""
        shown: list[ImageBlock] = []
        notes: list[str] = []
        for path in parts.media:
            async with self._decoding:
                found = await asyncio.to_thread(load_image, Path(path), self._max_image_side)
                if found is None and parts.documents:
                    found = await asyncio.to_thread(load_document, Path(path))
            if isinstance(found, ImageBlock):
                shown.append(found)
            elif found is not None:
                notes.append(f"[the content of {path} is not shown: {found}]")
        message = _with_runtime(parts.message, *passages, *notes)
        if not shown:
            return message
        return replace(message, content=(*shown, TextBlock(message.text)))


def _chars(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)


def _fitted(
    blocks: Sequence[PlacedBlock], placement: str, budget_tokens: int
) -> tuple[Passages, Passages]:
    chosen = [each for each in blocks if each[1].placement == placement]
    return fit_blocks(chosen, budget_tokens)


def _with_runtime(message: Message, *passages: str) -> Message:
    """Return a message as the model reads it, the lines about its circumstances first."""
    lines = message.extra.get(RUNTIME)
    lead = [f"{RUNTIME_HEADING}\n{lines}\n{RUNTIME_END}"] if isinstance(lines, str) else []
    if not lead and not passages:
        return message
    return Message(  # `replace` takes three times as long, and a history has many messages
        role=message.role,
        content="\n\n".join((*lead, *passages, message.text)),
        timestamp=message.timestamp,
        inbound_id=message.inbound_id,
    )
