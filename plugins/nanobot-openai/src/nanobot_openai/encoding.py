"""A request's body as bytes."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot_core import JsonObject, JsonValue

if TYPE_CHECKING:
    from nanobot_core import ToolDefinition


class BodyEncoder:
    """Encodes bodies, of which the tools are the largest part and the same from call to call."""

    def __init__(self) -> None:
        self._tools: tuple[ToolDefinition, ...] = ()
        self._schemas: list[JsonValue] = []
        self._encoded = "[]"

    def schemas(self, tools: Sequence[ToolDefinition]) -> list[JsonValue]:
        """Return what a body says of `tools`. The list is kept and must not be changed."""
        is_known = len(tools) == len(self._tools) and all(map(operator.is_, tools, self._tools))
        if not is_known:
            self._tools = tuple(tools)
            self._schemas = [tool.to_schema() for tool in tools]
            self._encoded = _json(self._schemas)
        return self._schemas

    def encode(self, body: JsonObject) -> bytes:
        """Return `body` as JSON; a list that `schemas` gave last is not encoded again."""
        if not self._schemas or body.get("tools") is not self._schemas:
            return _json(body).encode()
        rest = _json({key: value for key, value in body.items() if key != "tools"})
        return f'{{"tools": {self._encoded}, {rest[1:]}'.encode()


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
