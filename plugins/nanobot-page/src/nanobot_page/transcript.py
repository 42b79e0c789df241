"""A transcript as HTML: stored messages, notices, and the answer that is being written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from nanobot_page.files import Files, attachments
from nanobot_page.markdown import to_html
from nanobot_page.pages import Pages

if TYPE_CHECKING:
    from nanobot_core import JsonObject, Message, OpenQuestion, PluginContext
    from nanobot_page.notices import Notice

STEP: Final = 1_000
"""Between the places of two stored messages, for notices between them."""
LIVE: Final = 10**12
"""Place of the first element that is not stored yet."""
MAX_SHOWN_CHARS: Final = 20_000
"""Of arguments and results on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLine:
    """A tool call as a line that expands.

    Attributes:
        result: what the tool returned; ``None`` while it runs.
        seconds: how long it took, or ``None`` if unknown.
    """

    id: str
    place: int
    name: str
    arguments: str
    result: str | None = None
    is_error: bool = False
    origin: str = ""
    seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class _Entry:
    """An element of the transcript."""

    id: str
    place: int
    index: int
    role: str
    html: Markup = field(default_factory=Markup)
    thoughts: str = ""
    files: list[object] = field(default_factory=list)
    tools: list[ToolLine] = field(default_factory=list)
    source: str = ""
    at: str = ""


class Transcript:
    """Renders; every method blocks. Get it with ``ctx.shared(Transcript)``."""

    def __init__(self, ctx: PluginContext) -> None:
        self._pages = ctx.shared(Pages)
        self._files = ctx.shared(Files)

    def stored(self, first: int, messages: Sequence[Message]) -> list[JsonObject]:
        """Return the elements of consecutive messages, the first of which has number `first`."""
        results = {each.tool_call_id: each for each in messages if each.role == "tool"}
        shown: set[str | None] = set()
        found: list[JsonObject] = []
        for index, message in enumerate(messages, first):
            if message.role == "system" or (
                message.role == "tool" and message.tool_call_id in shown
            ):
                continue
            entry = self._entry(index, message, results)
            shown.update(call.id for call in message.tool_calls)
            found.append(self._put("message.html", entry.id, entry.place, entry=entry))
        return found

    def notice(self, notice: Notice) -> JsonObject:
        """Return the element of a notice."""
        place = max(notice.after - 1, 0) * STEP + 1 + notice.number % (STEP - 1)
        return self._put(
            "notice.html",
            f"n-{notice.number}",
            place,
            html=to_html(notice.text),
            files=attachments(self._files, notice.media),
        )

    def said(self, uuid: str, place: int, text: str, state: str) -> JsonObject:
        """Return the element of a message of the owner whose turn has not ended."""
        text, files = self._files.split(text)
        return self._put("said.html", f"u-{uuid}", place, text=text, files=files, state=state)

    def live(self, turn_id: str, place: int) -> JsonObject:
        """Return the element in which an answer is written."""
        return self._put("live.html", f"t-{turn_id}", place)

    def block(self, key: str, parent: str, place: int, html: Markup) -> JsonObject:
        """Return a block of an answer that is being written."""
        return {**self._put("block.html", key, place, html=html), "in": parent}

    def thoughts(self, key: str, parent: str, place: int, text: str) -> JsonObject:
        """Return the thinking of an answer that is being written."""
        return {**self._put("thoughts.html", key, place, text=text), "in": parent}

    def tool(self, line: ToolLine, parent: str) -> JsonObject:
        """Return a tool call of an answer that is being written."""
        return {**self._put("tool.html", line.id, line.place, line=line), "in": parent}

    def question(self, question: OpenQuestion) -> JsonObject:
        """Return the card of a call that waits for an approval, below everything else."""
        return self._put(
            "approval.html",
            f"a-{question.id}",
            LIVE * 2 + int(question.expires_at.timestamp()),
            question=question,
            arguments=shown_json(question.arguments, None),
        )

    def _put(self, template: str, key: str, place: int, **values: object) -> JsonObject:
        html = self._pages.html(template, id=key, place=place, **values)
        return {"id": key, "place": place, "html": html}

    def _entry(self, index: int, message: Message, results: Mapping[str | None, Message]) -> _Entry:
        entry = _Entry(id=f"m-{index}", place=index * STEP, index=index, role=message.role)
        entry.at = message.timestamp.isoformat() if message.timestamp else ""
        if message.role == "tool":  # its call is on an earlier page
            entry.tools = [_line(entry.id, 0, message.name or "tool", "", message)]
            return entry
        entry.source = message.text
        if message.role == "user":
            entry.source, files = self._files.split(message.text)
            entry.files = [*files]
            return entry
        entry.thoughts = (message.reasoning or "").strip()
        entry.html = to_html(message.text) if message.text.strip() else Markup()
        entry.tools = [
            _line(
                entry.id,
                number,
                call.name,
                shown_json(call.arguments, call.unparsed),
                results.get(call.id),
            )
            for number, call in enumerate(message.tool_calls)
        ]
        return entry


def _line(parent: str, number: int, name: str, arguments: str, result: Message | None) -> ToolLine:
    return ToolLine(
        id=f"{parent}-c{number}",
        place=number,
        name=name,
        arguments=arguments,
        result=shortened(result.text) if result else "no result is stored",
        is_error=result.is_error if result else True,
        origin=(result.origin or "") if result else "",
    )


def shown_json(arguments: JsonObject, unparsed: str | None) -> str:
    """Return arguments for people, complete."""
    if unparsed is not None:
        return unparsed
    return json.dumps(arguments, indent=2, ensure_ascii=False)


def shortened(text: str) -> str:
    """Return the beginning of a result."""
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    return f"{text[:MAX_SHOWN_CHARS]}\n… {len(text) - MAX_SHOWN_CHARS:,} more characters"
