"""What the tests of this plugin share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import JsonValue, Tool, ToolContext, ToolOutput
from nanobot_core.testing import FakePluginContext, output_text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MakeTool = Callable[[FakePluginContext], Tool]


class Bench:
    """Calls tools in the workspace of one application."""

    def __init__(self, context: FakePluginContext) -> None:
        self.context = context
        self.workspace = context.workspace

    async def output(
        self,
        tool: MakeTool,
        /,
        session: str = "cli:a",
        **given: JsonValue,
    ) -> ToolOutput:
        call = ToolContext(
            session_key=session, turn_id="turn", call_id="call", workspace=self.workspace
        )
        return await tool(self.context).execute(call, dict(given))

    async def text(
        self,
        tool: MakeTool,
        /,
        session: str = "cli:a",
        **given: JsonValue,
    ) -> str:
        return output_text(await self.output(tool, session, **given))

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path) -> MakeBench:
    """Make an application; settings are keywords, `restricted` confines to the workspace."""
    search_path = os.environ["PATH"]

    def make(*, restricted: bool = False, ripgrep: bool = True, **settings: JsonValue) -> Bench:
        environment = {"PATH": search_path} if ripgrep else {}
        return Bench(
            FakePluginContext(
                tmp_path,
                settings=settings,
                plugin_id="files",
                environment=environment,
                restrict_to_workspace=restricted,
            )
        )

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()
