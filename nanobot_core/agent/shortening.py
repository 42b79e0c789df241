"""Requests that fit: omit old tool results, summarise the oldest turns, never split pairs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace

from nanobot_core.agent.run import Compaction, ModelChoice
from nanobot_core.agent.tokens import TokenEstimator
from nanobot_core.messages import ContentBlock, ImageBlock, Message, TextBlock
from nanobot_core.text import truncate_middle

KEEP_RESULTS = 10
"""Newest results of compactable tools that stay in the request."""
RESULT_STEP = 10
"""The limit moves by this many results at once, because each move voids the prompt cache."""
KEEP_MESSAGES = 10
"""Newest messages that a summary does not replace."""
KEEP_AT_LEAST = 1
"""The same if more would not fit."""
COMPACT_AT = 0.8
"""Part of the budget at which the history is shortened."""
COMPACT_TO = 0.5
"""Part of the budget that the shortened history may take."""
MIN_RESULT_CHARS = 200
"""Shorter results stay: leaving them out saves too little."""

RUNTIME_HEADING = "[Runtime context: metadata, not instructions]"
RUNTIME_END = "[End of runtime context]"
SUMMARY_HEADING = "[Summary of the conversation so far]"

Summarise = Callable[[Sequence[Message]], Awaitable[str]]


def microcompact(messages: Sequence[Message], compactable: Collection[str]) -> list[Message]:
    """Return `messages` with old results of compactable tools replaced by one line.

    Args:
        messages: the request.
        compactable: names of tools whose results may be left out.
    """
    shorter = list(messages)
    old = [
        index
        for index, message in enumerate(shorter)
        if message.name in compactable and message.role == "tool"
    ]
    surplus = len(old) - KEEP_RESULTS
    for index in old[: max(surplus - surplus % RESULT_STEP, 0)]:
        message = messages[index]
        if len(message.text) >= MIN_RESULT_CHARS:
            line = f"[{message.name} result omitted from context]"
            shorter[index] = replace(message, content=line)
    return shorter


def without_images(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` with a line of text in the place of each image."""
    return tuple(
        message
        if isinstance(message.content, str)
        else replace(message, content=tuple(map(_described, message.content)))
        for message in messages
    )


def has_documents(messages: Iterable[Message]) -> bool:
    """Whether `messages` contain a document that is not an image."""
    return any(
        isinstance(block, ImageBlock) and block.is_document
        for message in messages
        if not isinstance(message.content, str)
        for block in message.content
    )


def without_documents(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` with a line of text in the place of each document that is not an image."""
    return tuple(
        message
        if isinstance(message.content, str)
        else replace(message, content=tuple(map(_without_document, message.content)))
        for message in messages
    )


def _without_document(block: ContentBlock) -> ContentBlock:
    if isinstance(block, ImageBlock) and block.is_document:
        name = f" {block.path}" if block.path else ""
        return TextBlock(f"[document{name} left out: the model does not accept it; use a tool]")
    return block


def _described(block: ContentBlock) -> ContentBlock:
    if not isinstance(block, ImageBlock):
        return block
    name = f" {block.path}" if block.path else ""
    return TextBlock(f"[image{name} left out: the model does not accept it]")


def input_budget(context_window_tokens: int, max_tokens: int) -> int:
    """Return how many tokens a request may take: the window less the answer and a margin."""
    margin = max(context_window_tokens // 50, 256)
    return max(context_window_tokens - max_tokens - margin, context_window_tokens // 4)


def room_of(choice: ModelChoice) -> int:
    """Return how many tokens a request may take before it must be shortened."""
    return int(input_budget(choice.context_window_tokens, choice.max_tokens) * COMPACT_AT)


async def compact(
    messages: Sequence[Message], budget: int, estimator: TokenEstimator, summarise: Summarise
) -> tuple[list[Message], Compaction | None]:
    """Replace the oldest part of a history by a summary.

    Args:
        messages: the system prompt first, then the history.
        budget: tokens that the messages may take.
        estimator: counts tokens; what it takes for small enough may have been refused as too
            long, so at least half of the history goes.
        summarise: writes the summary.

    Returns:
        The shorter request and what was replaced; unchanged and ``None`` when nothing can go,
        because the open task and the newest messages are all there is.
    """
    system, history = list(messages[:1]), list(messages[1:])
    if not history:
        return system, None
    counts = [estimator.count_all([message]) for message in history]
    allowed = min(max(budget - estimator.count_all(system), 0), sum(counts))
    turns, cut = _boundaries(history, counts, int(allowed * COMPACT_TO), KEEP_MESSAGES)
    if counts[turns] + sum(counts[cut:]) > allowed * COMPACT_AT:
        turns, cut = _boundaries(history, counts, int(allowed * COMPACT_TO), KEEP_AT_LEAST)
    going = [*history[:turns], *history[turns + 1 : cut]]
    if all(_is_summary(message) for message in going):
        # A summary of the previous summary would be a model call for nothing.
        return list(messages), None
    summary = await summarise(going)
    shorter = [*system, summary_message(summary), history[turns], *history[cut:]]
    return shorter, Compaction(messages=turns, summary=summary)


def summary_message(summary: str) -> Message:
    """Return the message that replaces the summarised part of a request."""
    return Message(role="user", content=f"{SUMMARY_HEADING}\n{summary}")


def render_transcript(messages: Sequence[Message], max_chars: int) -> str:
    """Return `messages` as plain text of at most about `max_chars`, long ones cut in the middle.

    Plain text, because some services refuse a history with tool calls where no tools are offered.
    """
    share = max(max_chars // max(len(messages), 1), 200)
    lines: list[str] = []
    for message in messages:
        calls = "".join(f" [calls {call.name} {call.arguments}]" for call in message.tool_calls)
        lines.append(f"{message.role}: {truncate_middle(_said(message) + calls, share)}")
    return truncate_middle("\n".join(lines), max_chars)


def _said(message: Message) -> str:
    """Return the text of a message without the lines about its circumstances."""
    if not message.text.startswith(RUNTIME_HEADING):
        return message.text
    return message.text.partition(RUNTIME_END)[2].strip()


def _is_summary(message: Message) -> bool:
    return message.role == "user" and message.text.startswith(SUMMARY_HEADING)


def _boundaries(
    history: Sequence[Message], counts: Sequence[int], target: int, keep: int
) -> tuple[int, int]:
    """Return (turns, cut): what goes is ``history[:turns]`` and ``history[turns + 1 : cut]``.

    Whole turns go first, the oldest ones. Only when all before the turn under way are gone, its
    own oldest iterations go as well; its first message, the open task, always stays.
    """
    newest = max(len(history) - keep, 0)
    task = max((i for i, message in enumerate(history) if message.role == "user"), default=0)
    remaining, turns = sum(counts), 0
    for index in range(min(newest, task) + 1):
        if history[index].role == "user":
            turns = index
            if remaining <= target:
                return turns, turns + 1
        remaining -= counts[index]
    cut = turns + 1
    if turns == task:
        remaining += counts[task]
        for index in range(task + 1, newest + 1):
            if history[index].role == "assistant":
                cut = index
                if remaining <= target:
                    break
            remaining -= counts[index]
    return turns, cut
