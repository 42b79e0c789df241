"""The contract of tools, with a tool of a real server."""

# ruff: noqa: RUF012 - the suite declares these attributes, not as class variables

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import JsonObject, Tool
from nanobot_core.testing import FakePluginContext, ToolContract
from nanobot_mcp.hub import Hub
from nanobot_mcp.tool import ConnectTool

if TYPE_CHECKING:
    from conftest import Connect

HERE = Path(__file__).resolve().parent


class RawServerContract(ToolContract):
    """The contract with a context that has a server; ``mcp`` are settings of the plugin."""

    limit_s = 15.0
    mcp: JsonObject = {}

    @pytest.fixture
    async def context(
        self, anyio_backend: str, connect: Connect
    ) -> AsyncIterator[FakePluginContext]:
        server = {"command": sys.executable, "args": [str(HERE / "raw_server.py")]}
        async with connect({"raw": server}, **self.mcp) as bench:
            yield bench.context


class TestMcpTool(RawServerContract):
    sample_arguments = {"text": "hello"}

    def make_tool(self, context: FakePluginContext) -> Tool:
        return next(tool for tool in context.shared(Hub).tools() if tool.name == "mcp_raw_echo")


class TestConnectTool(RawServerContract):
    sample_arguments: JsonObject = {}
    mcp: JsonObject = {"startup_grace_s": 0}

    def make_tool(self, context: FakePluginContext) -> Tool:
        (tool,) = context.tools.published[-1]
        assert isinstance(tool, ConnectTool)
        return tool


@pytest.mark.anyio
async def test_every_tool_of_a_server_suits_the_known_model_services(connect: Connect) -> None:
    from nanobot_core.testing import definition_findings

    server = {"command": sys.executable, "args": [str(HERE / "sdk_server.py"), "stdio"]}
    async with connect({"sdk": server}) as bench:
        for tool in bench.hub.tools():
            assert definition_findings(tool.definition) == []
