"""A tool in a workspace, and the chats that its messages go to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core import JsonValue, OutboundMessage, Tool, ToolContext, ToolResult
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_core.tools import ToolRegistry
from nanobot_message.message_tool import MessageTool


class Desk:
    """Calls the tool as a turn in chat ``telegram:1`` does, and keeps what was sent."""

    def __init__(self, context: FakePluginContext) -> None:
        self.context = context
        self.workspace = context.workspace
        self.sent: list[OutboundMessage] = []
        self.tool: Tool = MessageTool(context)

    async def send(self, message: OutboundMessage) -> None:
        self.sent.append(message)

    def circumstances(self) -> ToolContext:
        return replace(
            call_in(self.workspace, self.context.files),
            session_key="telegram:1",
            channel="telegram",
            chat_id="1",
            message_id="77",
            send=self.send,
        )

    async def call(
        self, circumstances: ToolContext | None = None, /, **arguments: JsonValue
    ) -> ToolResult:
        registry = ToolRegistry()
        registry.register(self.tool)
        prepared = registry.prepare_call("message", arguments)
        assert prepared.error is None, prepared.error
        result = await self.tool.execute(circumstances or self.circumstances(), prepared.params)
        assert isinstance(result, ToolResult)
        return result

    def put(self, name: str, content: bytes = b"content") -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(tmp_path: Path) -> MakeDesk:
    """Make the tool; settings are keywords."""

    def make(**settings: JsonValue) -> Desk:
        return Desk(FakePluginContext(tmp_path, settings=settings, plugin_id="message"))

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()
