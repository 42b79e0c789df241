"""Summaries of conversations by the model, and what is accepted as one."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nanobot_core import AgentTask, Message, NanobotError, prompt, shorten, truncate_middle
from nanobot_memory.history import NewEntry, digest_of
from nanobot_memory.passages import looks_poisoned

if TYPE_CHECKING:
    from nanobot_core import HistorySpan, PluginContext, TaskOutcome

NOTHING: Final = "(nothing)"
PROMPT: Final = "nanobot_memory:consolidate"
MAX_SUMMARY_CHARS: Final = 4_000
MAX_ROLLING_CHARS: Final = 6_000
"""Characters of what a session keeps as its summary; the oldest lines go first."""
MAX_TASK_CHARS: Final = 60_000
"""Characters of a conversation in one request."""
_MAX_TOKENS = 1_500
_TOOL_CHARS = 300
_HEAD_CHARS = 300
_ECHO_CHARS = 200
_OPENING_CHARS = 60


class SummaryFailed(Exception):
    """The model gave no text that can stand for a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a session that becomes one entry of the history.

    Attributes:
        session_key: the session.
        first: number of its first message.
        last: number of the first message after it.
        digest: of its messages.
        text: the conversation as the model reads it; empty if it is not worth a model call.
        head: its beginning in a line.
    """

    session_key: str
    first: int
    last: int
    digest: str
    text: str
    head: str

    def entry(self, content: str) -> NewEntry:
        """Return the entry that stands for the part."""
        return NewEntry(
            content=content,
            session_key=self.session_key,
            first=self.first,
            last=self.last,
            digest=self.digest,
        )

    @property
    def raw(self) -> str:
        """The text of the entry if there is no summary: where the messages are."""
        where = f"{self.session_key}, messages {self.first} to {self.last}"
        return f"[RAW] {where}: {self.head}"


def part_of(span: HistorySpan, start: int, stop: int) -> Part:
    """Return the messages ``start:stop`` of a span as a part."""
    messages = span.messages[start:stop]
    said = next((each.text for each in messages if each.role == "user"), "")
    return Part(
        session_key=span.scope.session_key,
        first=span.first_index + start,
        last=span.first_index + stop,
        digest=digest_of(messages),
        text=transcript_of(messages),
        head=shorten(said, _HEAD_CHARS),
    )


def transcript_of(messages: Sequence[Message], max_chars: int = MAX_TASK_CHARS) -> str:
    """Return a conversation as text; long messages and results of tools are cut."""
    share = max(max_chars // max(len(messages), 1), 200)
    return truncate_middle("\n".join(_line(each, share) for each in messages), max_chars)


def _line(message: Message, max_chars: int) -> str:
    if message.role == "tool":
        return f"Result of {message.name or 'a tool'}: {shorten(message.text, _TOOL_CHARS)}"
    time = f"[{message.timestamp:%Y-%m-%d %H:%M}] " if message.timestamp else ""
    called = f" (called {', '.join(call.name for call in message.tool_calls)})"
    text = truncate_middle(message.text, max_chars)
    return f"{time}{message.role.capitalize()}: {text}{called if message.tool_calls else ''}"


async def summarise(ctx: PluginContext, text: str, before: str, model: str | None) -> str:
    """Return a summary of a conversation; `NOTHING` if nothing in it is worth keeping.

    Args:
        ctx: makes the model call.
        text: the conversation.
        before: summary of what was said before it, or empty.
        model: the model, or ``None`` for the configured one.

    Raises:
        SummaryFailed: the call failed, or its answer cannot be used.
    """
    instructions = await asyncio.to_thread(prompt, ctx, PROMPT)
    mark = secrets.token_hex(8)
    request = f"<conversation {mark}>\n{text}\n</conversation {mark}>"
    if before:
        request = f"<said-before {mark}>\n{before}\n</said-before {mark}>\n\n{request}"
    task = AgentTask(
        purpose="consolidate",
        messages=(
            Message(role="system", content=instructions),
            Message(role="user", content=request),
        ),
        model=model,
        max_iterations=1,
        max_tokens=_MAX_TOKENS,
    )
    try:
        outcome = await ctx.agent.run(task)
    except (NanobotError, RuntimeError) as error:
        raise SummaryFailed(str(error)) from error
    return checked(outcome, f"{instructions}\n{request}")


def checked(outcome: TaskOutcome, asked: str) -> str:
    """Return the text of an answer if it can stand for a conversation.

    Args:
        outcome: the answer.
        asked: everything that the model read.

    Raises:
        SummaryFailed: it cannot.
    """
    text = outcome.content.strip()
    reason = ""
    if outcome.stop_reason != "completed":
        reason = f"the answer is incomplete ({outcome.stop_reason})"
    elif not text:
        reason = "the answer is empty"
    elif len(text) > 10 * MAX_SUMMARY_CHARS:
        reason = f"the answer has {len(text):,} characters"
    elif _repeats(text, asked):
        reason = "the answer repeats the request"
    elif _is_call(text):
        reason = "the answer is a tool call"
    elif any(map(looks_poisoned, text.splitlines())):
        reason = "the answer contains orders"
    if reason:
        raise SummaryFailed(reason)
    return cut_lines(text, MAX_SUMMARY_CHARS)


def joined(before: str, text: str) -> str:
    """Return the summary of a session with `text` added, without its oldest lines if too long."""
    lines = [*before.splitlines(), *text.splitlines()]
    size, start = 0, len(lines)
    while start and size + len(lines[start - 1]) + 1 <= MAX_ROLLING_CHARS:
        start -= 1
        size += len(lines[start]) + 1
    return "\n".join(lines[start:])


def cut_lines(text: str, max_chars: int) -> str:
    """Return the first lines of `text` that fit into `max_chars`, at least a part of one."""
    if len(text) <= max_chars:
        return text
    return text[:max_chars].rpartition("\n")[0] or text[:max_chars]


def _repeats(text: str, asked: str) -> bool:
    lines = [line for line in text.splitlines() if len(line) > _ECHO_CHARS]
    return any(line[:_ECHO_CHARS] in asked for line in lines) or any(
        word in text for word in ("<conversation ", "</conversation ", asked[:_OPENING_CHARS])
    )


def _is_call(text: str) -> bool:
    if text.startswith(("<tool_call", "<function")):
        return True
    if not text.startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
