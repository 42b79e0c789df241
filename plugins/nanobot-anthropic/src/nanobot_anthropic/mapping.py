"""From a history to the system prompt and the messages of a request.

The service accepts messages of the user and of the model in turn. The results of all calls of a
message of the model come first in the next message of the user.
"""

from __future__ import annotations

import json
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from nanobot_anthropic.blocks import (
    CallIds,
    call_block,
    content_blocks,
    missing_result,
    result_block,
    text_block,
    tool_name,
)
from nanobot_core import JsonObject, JsonValue, Message

BLOCK_OWNER = "provider"
"""Key of a provider block that names its provider; only that provider gets the block back."""
CONTINUE = "Continue."
"""The user's message after a history that ends with the model; models refuse such an end."""
_KNOWN_RUNS = 8


@dataclass(slots=True)
class Turn:
    """One message of a request.

    Attributes:
        role: ``user`` or ``assistant``.
        blocks: its content in order.
        thought: for the model, the same content with the thinking of the original answer, or
            ``None`` if there is none.
        is_asked: for the user, it contains something besides results of tools.
    """

    role: str
    blocks: list[JsonObject] = field(default_factory=list)
    thought: list[JsonObject] | None = None
    is_asked: bool = False
    _encoded: dict[bool, bytes] = field(default_factory=dict)

    def to_json(self, *, with_thought: bool = False) -> JsonObject:
        """Return the message."""
        blocks = self.thought if with_thought and self.thought else self.blocks
        return {"role": self.role, "content": [*blocks] or [text_block("")]}

    def encoded(self, *, with_thought: bool = False) -> bytes:
        """Return the message as JSON, which is kept until the turn is extended."""
        if with_thought not in self._encoded:
            self._encoded[with_thought] = encoded(self.to_json(with_thought=with_thought))
        return self._encoded[with_thought]

    def extend(self, blocks: Iterable[JsonObject]) -> None:
        """Add `blocks`."""
        self.blocks += blocks
        self._encoded.clear()


def encoded(value: JsonValue) -> bytes:
    """Return `value` as JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def system_blocks(history: Sequence[Message]) -> list[JsonObject]:
    """Return the system prompt: the texts of that role with which the history begins."""
    return [block for message in _leading(history) for block in content_blocks(message.text)]


class HistoryMapper:
    """Maps the histories of requests.

    The requests of a run repeat each other, so what was mapped of the latest runs is kept.

    Args:
        provider: name of the provider.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._runs: OrderedDict[int, tuple[Sequence[Message], _TurnBuilder]] = OrderedDict()

    def turns(self, history: Sequence[Message]) -> list[Turn]:
        """Return the messages of a request, which begins and ends with the user.

        Later system messages become messages of the user, because not every model accepts them.
        The turns must not be changed.
        """
        run = id(history[0]) if history else 0
        known, builder = self._runs.pop(run, ((), _TurnBuilder(self._provider)))
        if len(known) > len(history) or not all(map(operator.is_, known, history)):
            known, builder = (), _TurnBuilder(self._provider)
        for message in history[len(known) :]:
            builder.add(message)
        # Images are large.
        if all(isinstance(message.content, str) for message in history[len(known) :]):
            self._runs[run] = history, builder
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.popitem(last=False)
        return builder.turns()


def called_names(history: Sequence[Message]) -> list[str]:
    """Return the names of all tools that the model called, each once, sorted."""
    return sorted({tool_name(call.name) for message in history for call in message.tool_calls})


def _leading(history: Sequence[Message]) -> list[Message]:
    return list(takewhile(lambda message: message.role == "system", history))


class _TurnBuilder:
    """Builds the turns of one history."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._turns: list[Turn] = []
        self._has_begun = False
        self._ids = CallIds()
        self._open: list[tuple[str, str]] = []
        """(id in the history, id in the request) of calls of the latest turn without a result."""
        self._followers: list[JsonObject] = []

    def add(self, message: Message) -> None:
        """Add the next message of the history."""
        self._has_begun = self._has_begun or message.role != "system"
        if not self._has_begun:
            return
        if message.role == "assistant":
            self._add_answer(message)
        elif message.role == "tool":
            self._add_result(message)
        else:
            self._close()
            blocks = list(content_blocks(message.content))
            turn = self._extend("user", blocks)
            # An empty message says nothing beside results.
            turn.is_asked = turn.is_asked or bool(blocks) or not turn.blocks

    def turns(self) -> list[Turn]:
        """Return the turns so far, with what makes them a complete request."""
        turns = list(self._turns)
        if pending := self._pending():
            last = turns.pop() if turns and turns[-1].role == "user" else Turn("user")
            turns.append(Turn("user", [*last.blocks, *pending], is_asked=last.is_asked))
        elif not turns:
            turns.append(Turn("user", is_asked=True))
        elif turns[-1].role == "assistant":
            turns.append(Turn("user", [text_block(CONTINUE)], is_asked=True))
        if turns[0].role == "assistant":
            turns.insert(0, Turn("user"))
        return turns

    def _add_answer(self, message: Message) -> None:
        self._close()
        is_first = not self._turns or self._turns[-1].role != "assistant"
        ids = self._ids.add(message.tool_calls)
        calls = [call_block(call, key) for call, key in zip(message.tool_calls, ids, strict=True)]
        # The service accepts no images or documents from the model.
        turn = self._extend("assistant", [*content_blocks(message.text), *calls])
        # In a merged message the blocks would not come where the service put them.
        layout = _layout(message, self._provider) if is_first else []
        turn.thought = list(_restored(layout, message.text, calls)) if layout else None
        self._open = [(call.id, key) for call, key in zip(message.tool_calls, ids, strict=True)]

    def _add_result(self, message: Message) -> None:
        found = next((pair for pair in self._open if pair[0] == message.tool_call_id), None)
        if found is None:
            # No call asked for it, or it has been answered: the service would refuse a result.
            self._followers.append(text_block(f"[result of {message.name or 'a tool'}]"))
            self._followers += content_blocks(message.content)
        else:
            self._open.remove(found)
            result, followers = result_block(message, found[1])
            self._extend("user", [result])
            self._followers += followers

    def _pending(self) -> list[JsonObject]:
        """Return what must follow the results: those that are missing, images and orphans."""
        return [*[missing_result(key) for _, key in self._open], *self._followers]

    def _close(self) -> None:
        """Add what is pending."""
        if pending := self._pending():
            self._extend("user", pending)
        self._open, self._followers = [], []

    def _extend(self, role: str, blocks: Iterable[JsonObject]) -> Turn:
        """Add `blocks` to the latest turn, or to a new one if the role changes."""
        added = list(blocks)
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(Turn(role))
        self._turns[-1].extend(added)
        return self._turns[-1]


def _layout(message: Message, provider: str) -> list[JsonValue]:
    """Return how the service laid out the answer, as `answer.py` kept it, or nothing."""
    for block in message.provider_blocks:
        content = block.get("content")
        if block.get(BLOCK_OWNER) == provider and isinstance(content, list):
            return content
    return []


def _restored(
    layout: Sequence[JsonValue], text: str, calls: Sequence[JsonObject]
) -> Iterator[JsonObject]:
    """Yield the content of an answer with its thinking where the service put it.

    A plugin may have changed the text, and calls may have been left out; then the text and the
    calls follow the thinking.
    """
    parts = [part for part in layout if isinstance(part, dict)]
    lengths = [_chars(part) for part in parts if part.get("type") == "text"]
    kinds = [part.get("type") for part in parts]
    fits = sum(lengths) == len(text) and kinds.count("tool_use") == len(calls)
    start, rest = 0, list(calls)
    for part in parts:
        if part.get("type") in ("thinking", "redacted_thinking"):
            yield part
        elif fits and part.get("type") == "text":
            piece = text[start : start + _chars(part)]
            start += len(piece)
            yield from content_blocks(piece)
        elif fits and part.get("type") == "tool_use":
            yield rest.pop(0)
    if not fits:
        yield from content_blocks(text)
        yield from rest


def _chars(part: JsonObject) -> int:
    chars = part.get("chars")
    return chars if isinstance(chars, int) else 0
