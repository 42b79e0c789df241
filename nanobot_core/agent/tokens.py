"""Estimates of the tokens in messages, calibrated by the usage that providers report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from nanobot_core.events import ToolDefinition
from nanobot_core.messages import ImageBlock, Message
from nanobot_core.text import count_chars

_CHARS_PER_TOKEN = 4.0
_MESSAGE_OVERHEAD = 4
_IMAGE_TOKENS = 1_000
_LEARNING_RATE = 0.2
_RATIO_BOUNDS = (1.5, 6.0)


class TokenEstimator:
    """Counts characters and learns how many characters a token has.

    Counting takes the lengths of strings only, so its cost does not grow with their content. The
    first estimate is four characters a token; each model call's reported usage moves it.
    """

    def __init__(self) -> None:
        self.chars_per_token: float = _CHARS_PER_TOKEN
        self._counted: tuple[Sequence[ToolDefinition], int] = ((), 0)

    def count(self, message: Message) -> int:
        """Return the estimated tokens of one message."""
        chars, images = _measure(message)
        return int(chars / self.chars_per_token) + _MESSAGE_OVERHEAD + images * _IMAGE_TOKENS

    def count_all(self, messages: Iterable[Message]) -> int:
        """Return the estimated tokens of `messages`."""
        return sum(self.count(message) for message in messages)

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

    def learn(self, messages: Iterable[Message], prompt_tokens: int, tool_tokens: int) -> None:
        """Move the ratio towards the count that a provider reported for `messages`.

        Args:
            messages: those of the request.
            prompt_tokens: as reported; below 100 it is too imprecise.
            tool_tokens: estimate for the tool definitions of the request.
        """
        measured = [_measure(message) for message in messages]
        chars = sum(length for length, _ in measured)
        fixed = tool_tokens + sum(
            _MESSAGE_OVERHEAD + images * _IMAGE_TOKENS for _, images in measured
        )
        if prompt_tokens - fixed < 100:
            return
        low, high = _RATIO_BOUNDS
        seen = min(max(chars / (prompt_tokens - fixed), low), high)
        self.chars_per_token += _LEARNING_RATE * (seen - self.chars_per_token)


def _measure(message: Message) -> tuple[int, int]:
    """Return (characters, images) of a message."""
    images = 0
    if isinstance(message.content, str):
        chars = len(message.content)
    else:
        chars = len(message.text)
        images = sum(isinstance(block, ImageBlock) for block in message.content)
    chars += len(message.reasoning or "")
    for call in message.tool_calls:
        chars += len(call.name) + len(call.unparsed or "")
        chars += count_chars(call.arguments)
    return chars, images
