"""The contract of tools."""

# ruff: noqa: RUF012 - the suite declares these attributes, not as class variables

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nanobot_core import JsonObject, OutboundMessage, Tool, ToolContext, ToolOutput
from nanobot_core.testing import FakePluginContext, ToolContract
from nanobot_message.message_tool import MessageTool


class _Delivered(MessageTool):
    """The tool where there is a way to send; the suite's own calls have none."""

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        return await super().execute(replace(context, send=_deliver), arguments)


async def _deliver(message: OutboundMessage) -> None:
    assert message.idempotency_key


class TestMessage(ToolContract):
    sample_arguments = {
        "content": "Here it is",
        "media": ["report.pdf"],
        "buttons": ["Thanks", ["Yes", "No"]],
    }

    def make_tool(self, context: FakePluginContext) -> Tool:
        return _Delivered(context)

    def prepare(self, workspace: Path) -> None:
        (workspace / "report.pdf").write_bytes(b"%PDF-")
