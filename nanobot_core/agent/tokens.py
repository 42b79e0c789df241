"""Estimates of the tokens in messages, calibrated by the usage that providers report."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Iterable, Sequence

from nanobot_core.events import ToolDefinition
from nanobot_core.messages import RUNTIME, ImageBlock, Message
from nanobot_core.text import count_chars

_BYTES_PER_TOKEN = 4.0
_MESSAGE_OVERHEAD = 4
_IMAGE_TOKENS = 1_000
_PAGE_CHARS = 50_000
"""Of a document in base64: a page of text takes less, a scanned one more."""
_RUNTIME_FRAME_BYTES = 80
"""What a request puts around the lines that are stored with a message."""
_LEARNING_RATE = 0.2
_RATIO_BOUNDS = (1.5, 6.0)
Size = tuple[int, int]
"""Of messages: the bytes of their texts and calls, and the tokens of everything else."""


def measure(messages: Iterable[Message]) -> Size:
    """Return the size of `messages`."""
    length = fixed = 0
    for message in messages:
        fixed += _MESSAGE_OVERHEAD
        length += _bytes_of(message.text) + _bytes_of(message.reasoning or "")
        if not isinstance(message.content, str):
            files = (block for block in message.content if isinstance(block, ImageBlock))
            fixed += sum(map(_tokens_of, files))
        if isinstance(lines := message.extra.get(RUNTIME), str):
            length += _bytes_of(lines) + _RUNTIME_FRAME_BYTES
        for call in message.tool_calls:
            length += len(call.name) + len(call.unparsed or "") + count_chars(call.arguments)
    return length, fixed


def _tokens_of(block: ImageBlock) -> int:
    """Return a guess for an image, or for a document, of which a page is counted as an image."""
    pages = 1 + len(block.data) // _PAGE_CHARS if block.is_document else 1
    return pages * _IMAGE_TOKENS


def _bytes_of(text: str) -> int:
    """Return the length of `text` in UTF-8, which scripts with many tokens make longer."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class RequestMeter:
    """Measures the requests of one run. Each repeats the one before, so only the rest is new."""

    def __init__(self) -> None:
        self._measured: tuple[tuple[Message, ...], Size] = ((), (0, 0))

    def measure(self, messages: Sequence[Message]) -> Size:
        """Return the size of `messages`."""
        former, (length, fixed) = self._measured
        if len(former) > len(messages) or not all(map(operator.is_, former, messages)):
            former, length, fixed = (), 0, 0
        more_length, more_fixed = measure(messages[len(former) :])
        size = length + more_length, fixed + more_fixed
        self._measured = tuple(messages), size
        return size


class TokenEstimator:
    """Estimates tokens from bytes, and learns how many bytes a token has.

    Bytes are closer to tokens than characters are in scripts other than the Latin one. The first
    estimate is four bytes a token; each model call's reported usage moves it.
    """

    def __init__(self) -> None:
        self.bytes_per_token: float = _BYTES_PER_TOKEN
        self._has_learned = False
        self._counted: tuple[Sequence[ToolDefinition], int] = ((), 0)

    def estimate(self, size: Size) -> int:
        """Return the estimated tokens of messages of this size."""
        length, fixed = size
        return int(length / self.bytes_per_token) + fixed

    def count_all(self, messages: Iterable[Message]) -> int:
        """Return the estimated tokens of `messages`."""
        return self.estimate(measure(messages))

    def count_tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the estimated tokens of tool definitions."""
        counted, length = self._counted
        if counted is not tools:  # a registry gives the same tuple until it changes
            length = sum(
                len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters))
                for tool in tools
            )
            self._counted = (tools, length)
        return int(length / self.bytes_per_token)

    def chars_for(self, tokens: int, messages: Iterable[Message]) -> int:
        """Return how many characters of the texts of `messages` have about this many tokens."""
        texts = [message.text for message in messages]
        length = sum(map(_bytes_of, texts))
        share = sum(map(len, texts)) / length if length else 1.0
        return int(tokens * self.bytes_per_token * share)

    def learn(self, size: Size, tokens: int) -> None:
        """Move the ratio towards the tokens that a provider reported for messages of this size.

        Fewer than 100 tokens of text are too imprecise and change nothing.
        """
        length, fixed = size
        if tokens - fixed < 100:
            return
        self._has_learned = True
        seen = _bounded(length / (tokens - fixed))
        self.bytes_per_token += _LEARNING_RATE * (seen - self.bytes_per_token)

    async def calibrate(self, messages: Iterable[Message]) -> None:
        """Take the ratio from an exact count of `messages`, if that is possible here.

        What providers have reported is better, because it is about the model that answers.
        """
        if self._has_learned:
            return
        from nanobot_core.agent.encoding import count_exactly

        texts = [text for each in messages for text in (each.text, each.reasoning) if text]
        tokens = await asyncio.to_thread(count_exactly, texts)
        if tokens:
            self.bytes_per_token = _bounded(sum(map(_bytes_of, texts)) / tokens)


def _bounded(ratio: float) -> float:
    low, high = _RATIO_BOUNDS
    return min(max(ratio, low), high)
