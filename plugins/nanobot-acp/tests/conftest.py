"""Editors that start ``nanobot acp``, with and without a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from nanobot_core.testing import GatewayProcess

PLAYING = Path(__file__).with_name("playing.py")
LIMIT_S = 30.0
Update: TypeAlias = Any


@dataclass
class Editor:
    """The protocol's own client, which keeps what it gets.

    Attributes:
        folder: the project.
        home: nanobot's folder.
        updates: all updates, in order.
        asked: the questions, with the options.
        answer: id of the option that it chooses; empty for a cancelled question.
        changed: set with each update and question.
        conn: the connection.
        process: ``nanobot acp``.
    """

    folder: Path
    home: Path
    updates: list[Update] = field(default_factory=list)
    asked: list[tuple[ToolCallUpdate, list[str]]] = field(default_factory=list)
    answer: str | None = "allow_once"
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def connected(self, conn: ClientSideConnection, process: asyncio.subprocess.Process) -> None:
        self.conn = conn
        self.process = process

    async def session_update(self, session_id: str, update: Update, **_: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, [option.kind for option in options]))
        self.changed.set()
        if self.answer is None:
            await asyncio.Event().wait()
        if not self.answer:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=self.answer)
        return RequestPermissionResponse(outcome=chosen)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def open(self) -> str:
        session = await self.conn.new_session(cwd=str(self.folder), mcp_servers=[])
        return session.session_id

    async def prompt(self, session_id: str, text: str) -> str:
        async with asyncio.timeout(LIMIT_S):
            done = await self.conn.prompt(session_id=session_id, prompt=[text_block(text)])
        return done.stop_reason

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request that the client of the library has no method for."""
        async with asyncio.timeout(LIMIT_S):
            done: dict[str, Any] = await self.conn._conn.send_request(method, params)
        return done

    def said(self, kind: str = "agent_message_chunk") -> str:
        """Return all text of the agent, or all thinking."""
        return "".join(each.content.text for each in self.of(kind))

    def thought(self) -> str:
        return self.said("agent_thought_chunk")

    def of(self, kind: str) -> list[Any]:
        """Return the updates of a kind."""
        return [each for each in self.updates if each.session_update == kind]


def write_config(home: Path, **sections: Any) -> None:
    """Write a configuration whose model is that of `playing`."""
    home.mkdir(parents=True, exist_ok=True)
    plugins = {"policy": "listed", "enabled": ["playing", "acp", *sections.pop("plugins", [])]}
    content: dict[str, Any] = {
        "agents": {"defaults": {"model": "playing/model"}},
        "plugins": {**plugins, "local": [str(PLAYING)]},
        "gateway": {"port": 0, "grace_s": 2},
        **sections,
    }
    file = home / "config.yaml"
    file.write_text(json.dumps(content))
    file.chmod(0o600)


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "NANOBOT_HOME": str(home), "HOME": str(home.parent)}


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Editor]:
    """Start ``nanobot acp`` and connect to it."""
    editor = Editor(home.parent / "project", home)
    editor.folder.mkdir(exist_ok=True)
    async with spawn_agent_process(
        editor,  # type: ignore[arg-type]
        *(sys.executable, "-m", "nanobot_core", "acp"),
        env=environment(home),
        transport_kwargs={"stderr": None, "shutdown_timeout": 10.0},
        use_unstable_protocol=True,
    ) as (conn, process):
        editor.connected(conn, process)
        async with asyncio.timeout(LIMIT_S):
            await conn.initialize(protocol_version=PROTOCOL_VERSION)
        yield editor


Start = Callable[[Path], AbstractAsyncContextManager[Editor]]


@pytest.fixture
def configure() -> Callable[..., None]:
    return write_config


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return environment(home)


@pytest.fixture
def alone() -> Start:
    """Starts an editor with an agent of its own."""
    return opened


@pytest.fixture(params=[pytest.param("alone", marks=pytest.mark.long), "gateway"])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts an editor, with an agent of its own or that of a gateway."""

    @asynccontextmanager
    async def with_gateway(home: Path) -> AsyncIterator[Editor]:
        async with GatewayProcess(home), opened(home) as editor:
            yield editor

    return with_gateway if request.param == "gateway" else opened
