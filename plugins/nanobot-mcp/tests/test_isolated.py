"""Plugins under ``plugins.isolate``: real environments, real processes, a real host."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import yaml

from nanobot_core import (
    LLMProvider,
    Nanobot,
    PathGuard,
    PluginContext,
    ProviderSpec,
    ToolCall,
    ToolContext,
    ToolError,
    ToolFailed,
    ToolInputError,
    ToolOutput,
    ToolResult,
    on,
)
from nanobot_core.testing import FakeProvider, FakeReply, output_text

LIMIT_S = 40.0
pytestmark = pytest.mark.timeout(120)  # the first of them makes two environments
SECRET = "sk-a-secret-that-nobody-may-see"


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Interpreters of two environments, each with another version of one library."""
    folder = str(tmp_path_factory.mktemp("environments"))
    program = [sys.executable, str(Path(__file__).with_name("environments.py")), folder]
    children = {
        name: subprocess.Popen([*program, name, version], stdout=subprocess.PIPE, text=True)
        for name, version in {"old": "1.0", "new": "2.0"}.items()
    }
    found = {name: child.communicate(timeout=50)[0] for name, child in children.items()}
    assert all(child.returncode == 0 for child in children.values())
    return found


class Script:
    """Contributes the provider ``script``."""

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="script",
            factory="isolated_script:create",
            needs_key=False,
            default_base="http://x",
        )


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory: pytest.TempPathFactory, pythons: dict[str, str]) -> Path:
    """The cache of a host that has examined both environments, which takes a while."""
    home = tmp_path_factory.mktemp("described")
    settings = {"plugins": {"policy": "listed", "enabled": ["mcp"], "isolate": pythons}}
    (home / "config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    Nanobot.from_config(home / "config.yaml", home=home)
    return home / "cache" / "isolated"


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, pythons: dict[str, str], descriptions: Path) -> Write:
    """Writes a configuration: ``write("old", tools={…})`` isolates one plugin."""
    shutil.copytree(descriptions, tmp_path / "cache" / "isolated")

    def write(*names: str, **sections: Any) -> Path:
        file = tmp_path / "config.yaml"
        settings = {
            "agents": {"defaults": {"model": "script/large"}},
            "plugins": {
                "policy": "listed",
                "enabled": ["mcp"],
                "isolate": {name: pythons[name] for name in names},
            },
            "tools": {"old": {"token": SECRET}},
        }
        file.write_text(yaml.safe_dump(settings | sections), "utf-8")
        return file

    return write


@asynccontextmanager
async def running(file: Path, provider: FakeProvider | None = None) -> AsyncIterator[Nanobot]:
    """Give an agent; when it has ended no child process may be left."""
    module = ModuleType("isolated_script")

    def create(ctx: PluginContext, spec: ProviderSpec, settings: object) -> LLMProvider:
        return provider or FakeProvider(name="script")

    module.create = create  # type: ignore[attr-defined]  # a module made for this test
    sys.modules[module.__name__] = module
    before = children()
    bot = Nanobot.from_config(file, home=file.parent)
    await bot.plugins.register(Script(), "script")
    async with bot:
        yield bot
    assert children() == before


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def servers() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [child for child in found if "nanobot_mcp.serve" in child.cmdline()]


async def call(
    bot: Nanobot, name: str, progress: list[str] | None = None, **given: str
) -> ToolOutput:
    """Do what a turn does with a tool, without a model."""
    entry = (await bot.plugins.load_tools()).get(name)
    assert entry is not None

    async def tell(text: str) -> None:
        if progress is not None:
            progress.append(text)

    context = ToolContext(
        session_key="cli:a",
        turn_id="turn",
        call_id="call-7",
        sender_id="ann",
        workspace=Path.cwd(),
        files=PathGuard(Path.cwd()),
        progress=tell,
    )
    async with asyncio.timeout(LIMIT_S):
        return await (await entry.tool()).execute(context, dict(given))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - files and processes tell nobody
            await asyncio.sleep(0.02)


def noted(file: Path) -> str:
    return file.read_text("utf-8") if file.exists() else ""


@pytest.mark.promise(26)
@pytest.mark.anyio
async def test_two_versions_of_one_library_work_side_by_side_in_one_turn(write: Write) -> None:
    calls = FakeReply(
        tool_calls=(ToolCall("a", "which_old", {}), ToolCall("b", "which_new", {})),
    )
    provider = FakeProvider(calls, "Both answered.", name="script")
    async with running(write("old", "new"), provider) as bot:
        outcome = await bot.run("Which versions are there?")

        assert "shared_lib" not in sys.modules
        assert [entry.origin for entry in bot.tools if entry.plugin == "old"] == ["old@0.3.1"] * 4
    results = {item.tool_call_id: item for item in provider.requests[-1].messages}
    assert outcome.tools_used == ("which_old", "which_new")
    assert "shared-lib 1.0" in str(results["a"].content)
    assert "shared-lib 2.0" in str(results["b"].content)
    assert str(outcome.reply) == "Both answered.", "its other hooks do not run"


@pytest.mark.anyio
async def test_no_process_is_started_before_the_first_call(write: Write) -> None:
    async with running(write("old")) as bot:
        await bot.plugins.load_tools()
        assert "which_old" in bot.tools
        assert servers() == []

        await call(bot, "which_old")
        assert len(servers()) == 1


@pytest.mark.anyio
async def test_a_call_carries_all_that_a_tool_gets_and_gives(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("old_KEY", SECRET)
    monkeypatch.setenv("OTHER_KEY", SECRET)
    told: list[str] = []
    async with running(write("old")) as bot:
        result = await call(bot, "told_old", told)
        [server] = servers()
        seen = f"{server.cmdline()} {server.environ()}"

    assert isinstance(result, ToolResult)
    assert output_text(result).startswith("words")
    assert [getattr(block, "data", "") for block in result.content] == ["", "aGVsbG8="]
    assert result.media == ("/a/file.txt",)
    assert told == ["looking around"]
    data = dict(result.data or {})
    environ = data.pop("environ")
    assert isinstance(environ, list)
    assert data == {
        "token": SECRET,
        "key": {"old_KEY": SECRET},
        "data_dir": str(tmp_path / "plugins" / "old"),
        "workspace": str(tmp_path / "workspace"),
        "session": "cli:a",
        "sender": "ann",
        "call": "call-7",
    }
    assert SECRET not in seen
    allowed = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TERM", "TMPDIR", "TZ"}
    assert set(map(str, environ)) <= allowed


@pytest.mark.anyio
async def test_a_failure_is_that_of_the_tool(write: Write) -> None:
    cases: list[tuple[str, type[ToolError], str]] = [
        ("input", ToolInputError, "give another text"),
        ("failed", ToolFailed, "the tank is empty"),
        ("other", ToolFailed, "LookupError: nobody expected this"),
    ]
    async with running(write("old")) as bot:
        for text, kind, words in cases:
            with pytest.raises(ToolError) as caught:
                await call(bot, "fail_old", text=text)
            assert type(caught.value) is kind
            assert str(caught.value) == words
        with pytest.raises(ToolFailed, match="exit code 3"):
            await call(bot, "fail_old", text="exit")


@pytest.mark.promise(26)
@pytest.mark.anyio
async def test_a_process_killed_in_a_call_is_reported_and_back_at_the_next(
    write: Write, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with running(write("old", "new")) as bot:
        waiting = asyncio.ensure_future(call(bot, "wait_old", text=str(note)))
        await until(lambda: noted(note).isdigit())
        other = output_text(await call(bot, "which_new"))

        os.kill(int(noted(note)), signal.SIGKILL)

        with pytest.raises(ToolFailed, match=r"'old' was lost.*signal 9.*unknown"):
            await waiting
        assert output_text(await call(bot, "which_new")) == other, "the same process as before"
        assert "shared-lib 1.0" in output_text(await call(bot, "which_old"))


@pytest.mark.anyio
async def test_a_cancelled_call_is_cleared_up_and_the_process_goes_on(
    write: Write, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with running(write("old")) as bot:
        before = output_text(await call(bot, "which_old"))
        waiting = asyncio.ensure_future(call(bot, "wait_old", text=str(note)))
        await until(lambda: noted(note).isdigit())

        waiting.cancel()

        await until(lambda: noted(note) == "cleared up")
        assert output_text(await call(bot, "which_old")) == before
        [server] = servers()
        assert server.children() == []


@pytest.mark.anyio
async def test_a_call_under_way_does_not_hold_up_the_end(write: Write, tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with running(write("old")) as bot:
        waiting = asyncio.ensure_future(call(bot, "wait_old", text=str(note)))
        await until(lambda: noted(note).isdigit())
    with pytest.raises(ToolError):
        await waiting


@pytest.mark.anyio
async def test_a_plugin_that_does_not_start_says_why_and_leaves_the_others(write: Write) -> None:
    file = write("old", "new", tools={"old": {"explodes": True}})
    async with running(file) as bot:
        with pytest.raises(ToolFailed, match="the fuse was lit"):
            await call(bot, "which_old")
        health = await (await bot.plugins.activate("old")).check_health()
        assert not health.ok
        assert "the fuse was lit" in health.message
        assert "shared-lib 2.0" in output_text(await call(bot, "which_new"))


@pytest.mark.anyio
async def test_a_reload_means_another_process(write: Write) -> None:
    async with running(write("old")) as bot:
        await call(bot, "which_old")
        [first] = servers()
        change = await bot.plugins.changes.reload("old")

        assert change.reloaded == ("old",)
        await call(bot, "which_old")
        [second] = servers()
        assert second.pid != first.pid


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., str]:
    """Runs a command on the configuration of the test and gives what it prints."""

    def told(*words: str) -> str:
        program = [sys.executable, "-m", "nanobot_core", "--config", str(tmp_path / "config.yaml")]
        environ = {"NANOBOT_HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "200"}
        child = subprocess.run(
            [*program, *words], env=environ, capture_output=True, text=True, timeout=50, check=False
        )
        return child.stdout + child.stderr

    return told


def test_commands_report_that_a_plugin_is_isolated(
    write: Write, told: Callable[..., str], pythons: dict[str, str]
) -> None:
    write("old")
    explained = told("explain", "tool", "which_old", "--json")
    [given_by] = json.loads(explained)["provided_by"]
    assert given_by.startswith("old@0.3.1: enabled, named under plugins.isolate, runs with")
    assert pythons["old"] in given_by

    listed = {item["id"]: item for item in json.loads(told("plugins", "list", "--json"))["plugins"]}
    assert listed["old"]["state"] == "isolated"
    assert listed["old"]["gives"] == {"tools": ["fail_old", "told_old", "wait_old", "which_old"]}

    assert "without effect there: hook 'finalize_content'" in told("plugins", "inspect", "old")
    assert "old may run: named under plugins.isolate" in told("plugins", "why", "old")
    assert "mcp" in told("explain", "tool", "mcp_time_get_current_time")


def test_what_stands_in_the_way_is_reported_with_its_remedy(
    write: Write, told: Callable[..., str], pythons: dict[str, str], tmp_path: Path
) -> None:
    write(plugins={"policy": "listed", "enabled": ["mcp"], "isolate": ["old"]})
    why = told("plugins", "why", "old")
    assert f"interpreter {tmp_path}/environments/old/bin/python does not exist" in why
    assert f"python3 -m venv {tmp_path}/environments/old" in why

    write(plugins={"policy": "listed", "enabled": ["mcp"], "isolate": {"gone": pythons["old"]}})
    assert "it is not installed" in told("explain", "tool", "which_old") + told("plugins", "status")

    write(plugins={"disabled": ["mcp"], "isolate": pythons})
    told("plugins", "status")
    assert "it requires plugin 'mcp', which is out" in told("plugins", "why", "old")
