"""What reaches out of the process: pages of the web and servers of tools, in one conversation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot_core import Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.index import load_installed
from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ScriptedCall
from tests.gateways import until

for _needed in ("nanobot-files", "nanobot-mcp", "nanobot-offline", "nanobot-openai", "nanobot-web"):
    try:
        version(_needed)
    except PackageNotFoundError:
        pytest.skip(f"{_needed} is not installed", allow_module_level=True)
for _needed in ("mcp_server_git", "mcp_server_time"):
    if find_spec(_needed) is None:
        pytest.skip(f"{_needed} is not installed", allow_module_level=True)

psutil = pytest.importorskip("psutil")

pytestmark = pytest.mark.anyio

PLUGINS = ("files", "mcp", "openai", "web")
LIMIT_S = 50.0

DESK = '''\
"""A server written with the SDK; tells its process id, and hangs on request."""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("desk")


@server.tool()
def hang() -> str:
    """Leave the process id, and answer never."""
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(3600)
    return "never"


@server.tool()
def who() -> str:
    """Tell the process id."""
    return str(os.getpid())


server.run("stdio")
'''

GATED = """\
import json, sys, time
from pathlib import Path

asked, gate = map(Path, sys.argv[1:])
for line in sys.stdin:
    message = json.loads(line)
    asked.touch()
    while not gate.exists():
        time.sleep(0.01)
    answers = {
        "initialize": {
            "protocolVersion": message.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "gated", "version": "1"},
        },
        "tools/list": {
            "tools": [{"name": "late", "inputSchema": {"type": "object", "properties": {}}}]
        },
        "tools/call": {"content": [{"type": "text", "text": "better late"}]},
    }
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in answers:
        answer["result"] = answers[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""
"""A server that answers nothing until a file is there."""

PAGE = b"""<html><body><article><h1>Harbour</h1>
<p>The lighthouse was lit again on Tuesday, after eleven years of darkness.</p>
</article></body></html>"""


def module(name: str, *args: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", name, *args]}


def script(folder: Path, text: str, *args: Path) -> dict[str, Any]:
    """The settings of a server that is the program `text`."""
    file = folder / "server.py"
    file.write_text(text)
    return {"command": sys.executable, "args": [str(file), *map(str, args)]}


@asynccontextmanager
async def page() -> AsyncIterator[str]:
    """Serve `PAGE` and give its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + PAGE)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/news"


def agent(home: Path, model: OpenAIServer, servers: dict[str, Any], **more: Any) -> Nanobot:
    """An agent with the plugins of these tests; further settings are key paths with ``__``."""
    values: dict[str, Any] = {
        "agents.defaults.model": "custom/m",
        "agents.defaults.workspace": str(home / "workspace"),
        "providers.custom.api_base": model.url,
        "tools.mcp_servers": servers,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    loaded = load_config(None, environ={}, overrides=values, home=home)
    installed = [item for item in load_installed(home / "cache") if item.id in PLUGINS]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return Nanobot(loaded, environ=environ, catalogue=Catalogue(installed, loaded.settings.plugins))


def possessions() -> dict[str, Any]:
    """Children, open files and tasks, in a form whose difference can be read."""
    process = psutil.Process()
    links = list(Path("/proc/self/fd").iterdir())
    return {
        "children": sorted(child.pid for child in process.children(recursive=True)),
        "files": sorted(str(link.readlink()) for link in links if link.is_symlink()),
        "tasks": sorted(task.get_name() for task in asyncio.all_tasks()),
    }


def wants(*calls: tuple[str, dict[str, Any]]) -> Reply:
    """The model calls tools."""
    return Reply(
        calls=tuple(
            ScriptedCall(name=name, arguments=json.dumps(given), id=f"call_{number}")
            for number, (name, given) in enumerate(calls)
        )
    )


def results(model: OpenAIServer, request: int) -> list[str]:
    """What the tools said to the model between the last two requests up to this one."""
    found: list[str] = []
    for message in reversed(model.requests[request].body["messages"]):
        if message["role"] != "tool":
            break
        found.insert(0, message["content"])
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "a.txt").write_text("words\n")
    return folder


async def test_a_conversation_goes_on_when_a_server_is_killed_in_a_call_and_leaves_nothing(
    tmp_path: Path, repository: Path
) -> None:
    note = tmp_path / "pid"
    servers = {
        "time": module("mcp_server_time"),
        "git": module("mcp_server_git", "--repository", str(repository)),
        "desk": script(tmp_path, DESK, note),
    }
    await asyncio.to_thread(int)  # the executor is the loop's, and stays
    async with page() as address, OpenAIServer() as model, asyncio.timeout(LIMIT_S):
        model.extend(
            wants(("web_fetch", {"url": address}), ("mcp_desk_who", {})),
            wants(("mcp_git_git_status", {"repo_path": str(repository)})),
            wants(("write_file", {"path": "news.md", "content": "Light again."})),
            wants(("mcp_desk_hang", {})),
            wants(("mcp_time_get_current_time", {"timezone": "Asia/Tokyo"})),
            Reply(text="the desk is gone"),
            wants(("mcp_desk_who", {}), ("read_file", {"path": "news.md"})),
            Reply(text="the desk is back"),
        )
        before = possessions()
        async with agent(
            tmp_path,
            model,
            servers,
            tools__ssrf_whitelist=["127.0.0.0/8"],
            tools__mcp__startup_grace_s=20,
        ) as bot:
            async with asyncio.TaskGroup() as group:
                turn = group.create_task(bot.run("what is new?"))
                await until(note.exists)
                os.kill(int(await asyncio.to_thread(_read, note)), signal.SIGKILL)
            first = turn.result()
            second = await bot.run("and now?")
        await model.wait_for_connections(0)
        await asyncio.sleep(0)
        assert possessions() == before

    assert (first.reply, first.error) == ("the desk is gone", None)
    assert (second.reply, second.error) == ("the desk is back", None)
    news, former = results(model, 1)
    assert "lighthouse was lit again" in json.loads(news)["text"]
    assert "a.txt" in results(model, 2)[0]
    assert (tmp_path / "workspace" / "news.md").read_text() == "Light again."
    (broken,) = results(model, 4)
    assert "MCP server 'desk' was lost during the call" in broken
    assert "signal 9" in broken
    assert "unknown" in broken, "whether the call took effect"
    assert "Asia/Tokyo" in results(model, 5)[0]
    present, stored = results(model, 7)
    assert former.isdigit()
    assert present.isdigit()
    assert present != former == note.read_text()
    assert "Light again." in stored
    offered = [json.dumps(request.body["tools"]) for request in model.requests]
    assert len(set(offered)) == 1, "a lost server takes no tools along"


def _read(file: Path) -> str:
    """Wait for a text that is written whole in one piece."""
    while not (text := file.read_text()):
        pass
    return text


async def test_a_turn_is_answered_while_a_new_server_has_not_answered_yet(tmp_path: Path) -> None:
    asked, gate = tmp_path / "asked", tmp_path / "gate"
    servers = {"gated": script(tmp_path, GATED, asked, gate)}
    async with (
        asyncio.timeout(LIMIT_S),
        OpenAIServer([Reply(text="hello")] * 2) as model,
        agent(tmp_path, model, servers) as bot,
    ):
        first = await bot.run("hi")
        await until(asked.exists)
        assert first.reply == "hello"
        assert not gate.exists()

        gate.touch()
        await until(lambda: "mcp_gated_late" in bot.tools)
        await bot.run("and now?")
    assert [mcp_names(request) for request in model.requests] == [
        ["mcp_gated_connect"],
        ["mcp_gated_late"],
    ]


async def test_a_known_server_is_started_by_the_turn_that_calls_its_tool(tmp_path: Path) -> None:
    asked, gate = tmp_path / "asked", tmp_path / "gate"
    gate.touch()
    servers = {"gated": script(tmp_path, GATED, asked, gate)}
    async with OpenAIServer([Reply(text="hello")] * 2) as model, asyncio.timeout(LIMIT_S):
        async with agent(tmp_path, model, servers, tools__mcp__startup_grace_s=20) as bot:
            await bot.run("hi")
        asked.unlink()
        before = possessions()["children"]
        async with agent(tmp_path, model, servers) as bot:
            await bot.run("hi")
            assert possessions()["children"] == before

            model.extend(wants(("mcp_gated_late", {})), Reply(text="called"))
            assert not asked.exists()
            await bot.run("call it")
    assert results(model, -1) == ["better late"]
    assert asked.exists()
    assert {*map(tuple, map(mcp_names, model.requests))} == {("mcp_gated_late",)}


async def test_what_the_model_has_connected_is_usable_in_the_same_turn(tmp_path: Path) -> None:
    asked, gate = tmp_path / "asked", tmp_path / "gate"
    gate.touch()
    servers = {"gated": script(tmp_path, GATED, asked, gate)}
    async with OpenAIServer() as model, asyncio.timeout(LIMIT_S):
        model.extend(
            wants(("mcp_gated_connect", {})),
            wants(("mcp_gated_late", {})),
            Reply(text="called"),
        )
        async with agent(tmp_path, model, servers) as bot:
            outcome = await bot.run("use it")
    (told,) = results(model, 1)
    assert "mcp_gated_late" in told
    assert results(model, 2)[-1:] == ["better late"]
    assert outcome.reply == "called"
    assert [mcp_names(request) for request in model.requests] == [
        ["mcp_gated_connect"],
        *[["mcp_gated_late"]] * 2,
    ]


def mcp_names(request: RecordedRequest) -> list[str]:
    """The tools of MCP servers that the model was offered."""
    names = [tool["function"]["name"] for tool in request.body.get("tools", ())]
    return [name for name in names if name.startswith("mcp_")]


SDK = ("mcp", "mcp_types")

LOADED = """\
import atexit, json, sys
from pathlib import Path

from nanobot_core.cli import main

note = Path(sys.argv.pop(1))
atexit.register(lambda: note.write_text(json.dumps(sorted(sys.modules))))
sys.exit(main())
"""


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A home whose server was connected before."""
    file = tmp_path / "config.yaml"
    content = {
        "agents": {"defaults": {"provider": "offline"}},
        "mcpServers": {"time": module("mcp_server_time")},
    }
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    assert "nanobot_mcp.link" in imported(tmp_path, "mcp", "list")
    return tmp_path


def imported(home: Path, *words: str) -> set[str]:
    """The modules that a command has loaded at its end."""
    note = home / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(note), *words],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "NANOBOT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(note.read_text()))


def test_the_sdk_is_not_imported_where_no_server_is_configured(tmp_path: Path) -> None:
    content = {"agents": {"defaults": {"provider": "offline"}}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "config.yaml").chmod(0o600)
    loaded = imported(tmp_path, "agent", "-m", "hello")

    assert "nanobot_mcp.plugin" in loaded, "the turn could have used tools"
    assert loaded.isdisjoint(SDK)


def test_the_sdk_is_imported_by_the_turn_that_calls_a_known_server_only(known: Path) -> None:
    loaded = imported(known, "agent", "-m", "hello")
    assert "nanobot_mcp.tool" in loaded, "the tools were offered"
    assert loaded.isdisjoint(SDK)

    call = 'mcp_time_get_current_time {"timezone": "Asia/Tokyo"}'
    assert set(SDK) <= imported(known, "agent", "-m", call)
