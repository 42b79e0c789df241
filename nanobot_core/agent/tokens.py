"""Estimates of the tokens in messages, calibrated by the usage that providers report."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Sequence

from nanobot_core.events import ToolDefinition
from nanobot_core.messages import ImageBlock, Message
from nanobot_core.text import count_chars

_CHARS_PER_TOKEN = 4.0
_MESSAGE_OVERHEAD = 4
_IMAGE_TOKENS = 1_000
_LEARNING_RATE = 0.2
_RATIO_BOUNDS = (1.5, 6.0)
Size = tuple[int, int]
"""Of messages: the characters of their texts and calls, and the tokens of everything else."""


def measure(messages: Iterable[Message]) -> Size:
    """Return the size of `messages`; takes the lengths of strings only."""
    chars = fixed = 0
    for message in messages:
        fixed += _MESSAGE_OVERHEAD
        chars += len(message.text) + len(message.reasoning or "")
        if not isinstance(message.content, str):
            images = sum(isinstance(block, ImageBlock) for block in message.content)
            fixed += images * _IMAGE_TOKENS
        for call in message.tool_calls:
            chars += len(call.name) + len(call.unparsed or "") + count_chars(call.arguments)
    return chars, fixed


class RequestMeter:
    """Measures the requests of one run. Each repeats the one before, so only the rest is new."""

    def __init__(self) -> None:
        self._measured: tuple[tuple[Message, ...], Size] = ((), (0, 0))

    def measure(self, messages: Sequence[Message]) -> Size:
        """Return the size of `messages`."""
        former, (chars, fixed) = self._measured
        if len(former) > len(messages) or not all(map(operator.is_, former, messages)):
            former, chars, fixed = (), 0, 0
        more_chars, more_fixed = measure(messages[len(former) :])
        size = chars + more_chars, fixed + more_fixed
        self._measured = tuple(messages), size
        return size


class TokenEstimator:
    """Estimates tokens from characters, and learns how many characters a token has.

    The first estimate is four characters a token; each model call's reported usage moves it.
    """

    def __init__(self) -> None:
        self.chars_per_token: float = _CHARS_PER_TOKEN
        self._counted: tuple[Sequence[ToolDefinition], int] = ((), 0)

    def estimate(self, size: Size) -> int:
        """Return the estimated tokens of messages of this size."""
        chars, fixed = size
        return int(chars / self.chars_per_token) + fixed

    def count_all(self, messages: Iterable[Message]) -> int:
        """Return the estimated tokens of `messages`."""
        return self.estimate(measure(messages))

    def count_tools(self, tools: Sequence[ToolDefinition]) -> int:
        """Return the estimated tokens of tool definitions."""
        counted, chars = self._counted
        if counted is not tools:  # a registry gives the same tuple until it changes
            chars = sum(
                len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters))
                for tool in tools
            )
            self._counted = (tools, chars)
        return int(chars / self.chars_per_token)

    def learn(self, size: Size, tokens: int) -> None:
        """Move the ratio towards the tokens that a provider reported for messages of this size.

        Fewer than 100 tokens of text are too imprecise and change nothing.
        """
        chars, fixed = size
        if tokens - fixed < 100:
            return
        low, high = _RATIO_BOUNDS
        seen = min(max(chars / (tokens - fixed), low), high)
        self.chars_per_token += _LEARNING_RATE * (seen - self.chars_per_token)
