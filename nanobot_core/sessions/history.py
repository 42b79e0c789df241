"""Histories that every provider accepts, and how an interrupted turn continues. Pure functions."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.messages import ImageBlock, Message, TextBlock, ToolCall
from nanobot_core.record import dataclass
from nanobot_core.text import truncate_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nanobot_core.contracts.store import StoredSession
    from nanobot_core.messages import Content, ContentBlock

OUTCOME_UNKNOWN = (
    "The run was interrupted before this call returned. It may or may not have taken effect; "
    "check before you repeat it."
)
"""Result of a call whose outcome is unknown."""

STEERED = "steered"
"""Mark in `Message.extra` of what the user said during a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """How to begin or continue with a message.

    Attributes:
        message: the message as it is stored.
        before: legal history before it.
        progress: legal messages since then, without a result for the calls in `repeat`; empty if
            the turn has not begun.
        interrupted: results to store for calls that must not run again.
        repeat: calls to run again, in call order.
        is_done: the turn is complete; only `answer`, if there is one, remains to be sent.
        answer: the turn's last reply, else ``None``.
    """

    message: Message
    before: Sequence[Message] = ()
    progress: Sequence[Message] = ()
    interrupted: Sequence[Message] = ()
    repeat: tuple[ToolCall, ...] = ()
    is_done: bool = False
    answer: Message | None = None


def align(messages: Sequence[Message]) -> list[Message]:
    """Return a legal history with every user text of `messages`, in their order.

    It begins with a user message; each tool call has one result, directly after its message and
    in call order; call ids are unique and not empty; no message is empty. Results without a call
    are left out, missing ones become `OUTCOME_UNKNOWN`, images without data become text, system
    messages are left out because a request has its own. Neighbouring user messages stay apart.
    Aligning twice changes nothing more.
    """
    history: list[Message | ToolCall] = []  # a call is in the place of its result
    waiting: dict[str, deque[tuple[int, ToolCall]]] = {}
    used: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if places := waiting.get(message.tool_call_id or ""):
                place, call = places.popleft()
                history[place] = _legal(message, tool_call_id=call.id)
        elif _has_a_place(message, is_first=not history):
            asked = message.tool_calls if message.role == "assistant" else ()
            calls = tuple(_legal_call(call, used) for call in asked)
            history.append(_legal(message, tool_calls=calls))
            # Some services count calls from zero in each response: the newest call of an id waits.
            for former in asked:
                waiting[former.id] = deque()
            for former, call in zip(asked, calls, strict=True):
                waiting[former.id].append((len(history), call))
                history.append(call)
    return [unknown_outcome(entry) if isinstance(entry, ToolCall) else entry for entry in history]


def window(
    messages: Sequence[Message],
    *,
    max_messages: int,
    max_tokens: int,
    count: Callable[[Message], int],
) -> list[Message]:
    """Return the newest part of an aligned history that fits and begins with a user message.

    The newest user message and what follows it are returned even if they do not fit.

    Args:
        messages: an aligned history.
        max_messages: entries to return at most.
        max_tokens: tokens to return at most.
        count: returns the tokens of one message.
    """
    start, tokens = None, 0
    for index in range(len(messages) - 1, -1, -1):
        tokens += count(messages[index])
        fits = tokens <= max_tokens and len(messages) - index <= max_messages
        if not fits and start is not None:
            break
        if messages[index].role == "user":
            start = index
    return [] if start is None else list(messages[start:])


def storable(message: Message, max_tool_result_chars: int) -> Message:
    """Return the form of `message` that is stored: no image data, tool results cut in the middle.

    Args:
        message: as sent to the model.
        max_tool_result_chars: characters kept of each text in a tool message, at least 2.
    """
    limit = max_tool_result_chars if message.role == "tool" else None
    content = message.content
    if isinstance(content, str):
        return (
            message if limit is None else replace(message, content=truncate_middle(content, limit))
        )
    return replace(message, content=tuple(_storable_block(block, limit) for block in content))


def unknown_outcome(call: ToolCall) -> Message:
    """Return the result for a call that may or may not have taken effect."""
    return Message(
        role="tool", content=OUTCOME_UNKNOWN, tool_call_id=call.id, name=call.name, is_error=True
    )


def open_calls(session: StoredSession) -> tuple[ToolCall, ...]:
    """Return the calls without a result of the turn that a crash interrupted, in call order."""
    if session.state.checkpoint is None:
        return ()
    answered: set[str | None] = set()
    for message in reversed(session.messages):
        if message.role != "tool":
            calls = message.tool_calls if message.role == "assistant" else ()
            return tuple(call for call in calls if call.id not in answered)
        answered.add(message.tool_call_id)
    return ()


def resume(
    session: StoredSession, inbound_id: str, may_repeat: Callable[[ToolCall], bool]
) -> Resumption | None:
    """Return how to continue with an inbound message, or ``None`` if its turn had not begun.

    A call without a result runs again only if that is harmless. All others count as interrupted,
    even those that had not begun: the model requested them on the assumption that the calls before
    them would succeed.

    Args:
        session: as loaded, not aligned.
        inbound_id: id of the message.
        may_repeat: whether a call can run again, such as a read-only one; false for unknown tools.
    """
    messages = session.messages
    place = next(
        (
            index
            for index in range(len(messages) - 1, -1, -1)
            if messages[index].role == "user" and messages[index].inbound_id == inbound_id
        ),
        None,
    )
    if place is None:
        return None
    message, since = messages[place], _of_one_turn(messages[place + 1 :])
    checkpoint = session.state.checkpoint
    is_own = checkpoint is not None and checkpoint.inbound_id == inbound_id
    if not is_own:
        last = since[-1] if since else None
        is_answer = last is not None and last.role == "assistant" and not last.tool_calls
        is_steered = message.extra.get(STEERED) is True
        if is_answer or is_steered:
            answer = last if is_answer and not is_steered else None
            return Resumption(message=message, progress=since, is_done=True, answer=answer)
    # Calls of another turn get a result, so that the history is whole, and never run in this one.
    calls = open_calls(session)
    repeat = tuple(call for call in calls if is_own and may_repeat(call))
    interrupted = tuple(unknown_outcome(call) for call in calls if call not in repeat)
    # The content is a stand-in: `align` leaves empty messages out.
    opening = replace(message, content="-")
    progress = align([opening, *since, *(interrupted if is_own else ())])[1:]
    repeated = {call.id for call in repeat}
    return Resumption(
        message=message,
        before=align(messages[:place]),
        progress=[entry for entry in progress if entry.tool_call_id not in repeated],
        interrupted=interrupted,
        repeat=repeat,
    )


def _of_one_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return `messages` up to the user message that begins another turn."""
    for index, message in enumerate(messages):
        if message.role == "user" and message.extra.get(STEERED) is not True:
            return messages[:index]
    return messages


def _legal(
    message: Message, *, tool_calls: tuple[ToolCall, ...] = (), tool_call_id: str | None = None
) -> Message:
    """Return `message` with these parts; itself if it has them, as copies take time."""
    content = _visible(message.content)
    parts = (content, tool_calls, tool_call_id)
    if parts == (message.content, message.tool_calls, message.tool_call_id):
        return message
    return replace(message, content=content, tool_calls=tool_calls, tool_call_id=tool_call_id)


def _has_a_place(message: Message, *, is_first: bool) -> bool:
    if message.role == "system" or (is_first and message.role == "assistant"):
        return False
    if message.role == "assistant" and message.tool_calls:
        return True
    return bool(message.text.strip()) or any(
        isinstance(block, ImageBlock) for block in message.content if not isinstance(block, str)
    )


def _legal_call(call: ToolCall, used: set[str]) -> ToolCall:
    """Return `call` with a name and an id that is not in `used`, and add the id to it."""
    # Counting from the number of ids finds a free one at once, even if all calls share one.
    call_id, number = call.id, len(used)
    while not call_id or call_id in used:
        call_id = f"{call.id or 'call'}-{number}"
        number += 1
    used.add(call_id)
    if call_id == call.id and call.name:
        return call
    return replace(call, id=call_id, name=call.name or "unknown")


def _visible(content: Content) -> Content:
    """Return `content` with text in place of stored images, which have lost their data."""
    if isinstance(content, str):
        return content
    return tuple(
        TextBlock(f"[{'file' if block.is_document else 'image'}: {block.path or block.media_type}]")
        if isinstance(block, ImageBlock) and not block.data
        else block
        for block in content
    )


def _storable_block(block: ContentBlock, max_chars: int | None) -> ContentBlock:
    if isinstance(block, ImageBlock):
        return replace(block, data="")
    return block if max_chars is None else TextBlock(truncate_middle(block.text, max_chars))
