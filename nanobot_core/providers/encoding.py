"""A request's body as bytes."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nanobot_core.messages import JsonObject, JsonValue

if TYPE_CHECKING:
    from nanobot_core.events import ToolDefinition


class BodyEncoder:
    """Encodes bodies, of which the tools are the largest part and the same from call to call.

    Args:
        render: returns a tool in the form of the service.
    """

    def __init__(self, render: Callable[[ToolDefinition], JsonObject]) -> None:
        self._render = render
        self._tools: tuple[ToolDefinition, ...] = ()
        self._rendered: list[JsonValue] = []
        self._encoded = "[]"

    def tools(self, tools: Sequence[ToolDefinition]) -> list[JsonValue]:
        """Return `tools` for the field ``tools`` of a body; the list must not be changed."""
        is_known = len(tools) == len(self._tools) and all(map(operator.is_, tools, self._tools))
        if not is_known:
            self._tools = tuple(tools)
            self._rendered = [self._render(tool) for tool in tools]
            self._encoded = _json(self._rendered)
        return self._rendered

    def encode(self, body: JsonObject) -> bytes:
        """Return `body` as JSON; the list that `tools` returned last is not encoded again."""
        if not self._rendered or body.get("tools") is not self._rendered:
            return _json(body).encode()
        rest = _json({key: value for key, value in body.items() if key != "tools"})
        return f'{{"tools": {self._encoded}, {rest[1:]}'.encode()


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
