"""The plugin's hooks, its settings, and what it says where the sandbox does not work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from nanobot_core import (
    ContextRequested,
    Deny,
    JsonObject,
    ToolCallProposed,
    ToolDefinition,
    ToolFailed,
    ToolsOffered,
    TurnInfo,
)
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_shell.checks import check_sandbox
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.plugin import ShellPlugin
from nanobot_shell.settings import ExecSettings

MakeContext = Callable[..., FakePluginContext]
Propose = Callable[..., ToolCallProposed]
TurnIn = Callable[[str], TurnInfo]


def test_importing_the_entry_module_loads_only_the_core() -> None:
    code = (
        "import sys, nanobot_core, nanobot_core.hooks.specs; before = set(sys.modules); "
        "import nanobot_shell.plugin; print(sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert "pydantic" not in shown
    assert "tree_sitter" not in shown
    assert "nanobot_shell.settings" not in shown


def test_contributions_name_what_exists(make_context: MakeContext) -> None:
    plugin = ShellPlugin()

    assert [tool.name for tool in plugin.contribute_tools(make_context())] == [
        "exec",
        "exec_session",
    ]
    assert [section.path for section in plugin.contribute_settings()] == ["tools.exec"]
    assert [check.run for check in plugin.contribute_checks()] == [
        "nanobot_shell.checks:check_sandbox"
    ]


def test_settings_read_the_former_name_of_the_time_limit() -> None:
    assert ExecSettings.model_validate({"timeout": 90}).timeout_s == 90
    assert ExecSettings.model_validate({"timeoutS": 90}).timeout_s == 90
    assert ExecSettings.model_validate({"timeout_s": 90}).timeout_s == 90


@pytest.mark.parametrize(
    "section",
    [{"timeout": 0}, {"timeout": 601}, {"denyPatterns": ["("]}, {"unknown": 1}, {"sandbox": "x"}],
)
def test_settings_that_do_not_fit_are_refused(section: JsonObject) -> None:
    with pytest.raises(ValidationError):
        ExecSettings.model_validate(section)


def test_tools_are_offered_only_in_the_channels_that_the_owner_names(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    plugin = _started(make_context(channels=["cli"]))

    assert plugin.offer_tools(_offered(turn_in("cli"))) is None
    left = plugin.offer_tools(_offered(turn_in("telegram")))
    assert left is not None
    assert [tool.name for tool in left] == ["read_file"]


def test_tools_are_offered_everywhere_by_default(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    assert _started(make_context()).offer_tools(_offered(turn_in("telegram"))) is None


def test_hooks_before_start_say_what_is_wrong(turn_in: TurnIn) -> None:
    with pytest.raises(RuntimeError, match="before its start hook"):
        ShellPlugin().offer_tools(_offered(turn_in("cli")))


@pytest.mark.anyio
async def test_calls_from_other_channels_are_denied_though_never_offered(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(channels=["cli"], sandbox="none"))

    decision = await plugin.authorize_tool_call(proposed("ls", channel="telegram"))

    assert decision == Deny("exec is not available in channel 'telegram'")
    assert await plugin.authorize_tool_call(proposed("ls", channel="cli")) is None


@pytest.mark.anyio
async def test_calls_of_other_tools_are_none_of_its_business(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(sandbox="none"))

    event = proposed("rm -rf /", name="other", origin="other@1.0")

    assert await plugin.authorize_tool_call(event) is None


@pytest.mark.anyio
async def test_tools_under_an_alias_pass_the_gate_as_well(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(sandbox="none"))

    assert isinstance(await plugin.authorize_tool_call(proposed("rm -rf /", name="run")), Deny)


@pytest.mark.anyio
async def test_calls_without_a_command_are_left_to_the_tool(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(sandbox="none"))
    event = proposed("", name="exec_session")
    event.call.arguments.clear()

    assert await plugin.authorize_tool_call(event) is None


@pytest.mark.parametrize("home", ["/", "workspace"])
@pytest.mark.anyio
async def test_home_that_cannot_be_hidden_does_not_break_the_sandbox(
    tmp_path: Path, sandbox_works: bool, home: str
) -> None:
    if not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    environment = {"HOME": home if home == "/" else str(tmp_path / home)}
    async with FakePluginContext(tmp_path, environment=environment) as context:
        finding = await check_sandbox(context)
        result = await ExecTool(context).execute(call_in(context.workspace), {"command": "ls /"})

    assert "usr" in str(result)
    assert finding.status == ("ok" if home == "/" else "warning")


@pytest.mark.anyio
async def test_owner_patterns_are_added_to_the_rules(
    make_context: MakeContext, proposed: Propose
) -> None:
    settings = {"deny_patterns": ["^git push"], "allow_patterns": ["^git ", "^ls"]}
    plugin = _started(make_context(sandbox="none", **settings))

    assert await plugin.authorize_tool_call(proposed("git status && ls -l")) is None
    for refused in ("git status; g'i't push", "git status; make", "X=1"):
        decision = await plugin.authorize_tool_call(proposed(refused))
        assert isinstance(decision, Deny), refused


@pytest.mark.anyio
async def test_working_dir_outside_is_denied_when_restricted(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(restricted=True, sandbox="none"))

    decision = await plugin.authorize_tool_call(proposed("ls", working_dir="/etc"))

    assert isinstance(decision, Deny)
    assert "outside the workspace" in decision.reason


@pytest.mark.parametrize("deep", [8, 3000])
@pytest.mark.anyio
async def test_deep_nesting_is_refused_without_a_sandbox(
    make_context: MakeContext, proposed: Propose, deep: int
) -> None:
    plugin = _started(make_context(sandbox="none"))
    command = "eval " * deep + "ls" if deep < 10 else "(" * deep

    assert isinstance(await plugin.authorize_tool_call(proposed(command)), Deny)


@pytest.mark.anyio
async def test_commands_of_endless_length_are_refused(
    make_context: MakeContext, proposed: Propose
) -> None:
    plugin = _started(make_context(sandbox="none"))

    assert isinstance(await plugin.authorize_tool_call(proposed("x" * 200_000)), Deny)


def test_context_tells_the_model_about_its_shell(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    plugin = _started(make_context(sandbox="none", memory_mb=512, cpu_s=9, channels=["cli"]))

    blocks = plugin.gather_context(_requested(turn_in("cli")))

    assert blocks is not None
    [block] = blocks
    assert block.placement == "stable"
    assert "without a sandbox" in block.text
    assert "512 MiB" in block.text
    assert "9 s of CPU" in block.text
    assert plugin.gather_context(_requested(turn_in("telegram"))) is None


@pytest.mark.anyio
async def test_sandbox_that_works_is_told_to_model_and_owner(
    make_context: MakeContext, turn_in: TurnIn, sandbox_works: bool
) -> None:
    if not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    context = make_context(sandbox_network=False)

    blocks = _started(context).gather_context(_requested(turn_in("cli")))
    finding = await check_sandbox(context)

    assert blocks is not None
    assert "network off" in next(iter(blocks)).text
    assert (finding.status, finding.message) == ("ok", "commands run in bubblewrap, network off")


@pytest.mark.anyio
async def test_sandbox_hides_home_system_files_and_network(
    make_context: MakeContext, tmp_path: Path, sandbox_works: bool
) -> None:
    if not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_text("s")
    async with make_context(sandbox_network=False) as context:
        history = context.workspace / "memory" / "history.jsonl"
        history.parent.mkdir()
        history.write_text("kept")
        command = (
            "ls -A ~; cat /etc/shadow; touch /usr/x; ls /proc | grep -c '^[0-9]'; "
            "tail -n +3 /proc/net/dev | cut -d: -f1; "
            "python3 -c \"open('memory/history.jsonl', 'w')\""
        )
        result = await ExecTool(context).execute(call_in(context.workspace), {"command": command})

    text = str(result)
    assert "secret" not in text
    assert "shadow: No such file" in text
    assert "Read-only file system" in text
    assert "lo\\n" in text
    assert "eth0" not in text
    assert history.read_text() == "kept"


BROKEN = {
    "absent": (None, "bubblewrap is not installed"),
    "failing": ("#!/bin/sh\necho 'no namespaces' >&2; exit 1\n", "no namespaces"),
    "hanging": ("#!/bin/sh\nexec sleep 60\n", "did not start within"),
    "unstartable": ("#!/no/such/interpreter\n", "cannot be started"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.anyio
async def test_sandbox_that_does_not_work_is_explained_and_failed_closed_where_required(
    tmp_path: Path, proposed: Propose, kind: str
) -> None:
    script, reason = BROKEN[kind]
    _path_with(tmp_path, script)
    required = _context_with_path(tmp_path, "bwrap")
    optional = _context_with_path(tmp_path, "auto")

    finding = await check_sandbox(required)
    decision = await _started(required).authorize_tool_call(proposed("ls"))

    assert finding.status == "error"
    assert reason in finding.message
    assert "install bubblewrap" in finding.remedy
    assert isinstance(decision, Deny)
    with pytest.raises(ToolFailed, match="sandbox only"):
        await ExecTool(required).execute(call_in(required.workspace), {"command": "ls"})
    assert (await check_sandbox(optional)).status == "warning"
    assert await _started(optional).authorize_tool_call(proposed("ls")) is None
    assert isinstance(await _started(optional).authorize_tool_call(proposed("$X")), Deny)


@pytest.mark.anyio
async def test_owner_who_chose_no_sandbox_is_reminded(make_context: MakeContext) -> None:
    finding = await check_sandbox(make_context(sandbox="none"))

    assert finding.status == "warning"
    assert "is none" in finding.message


@pytest.mark.anyio
async def test_command_that_cannot_be_started_is_a_failed_call(make_context: MakeContext) -> None:
    async with make_context(sandbox="none") as context:
        with pytest.raises(ToolFailed, match="cannot start"):
            await ExecTool(context).execute(call_in(context.workspace), {"command": "a\0b"})


def _started(context: FakePluginContext) -> ShellPlugin:
    plugin = ShellPlugin()
    plugin.start(context)
    return plugin


def _offered(turn: TurnInfo) -> ToolsOffered:
    names = ("exec", "exec_session", "read_file")
    tools = tuple(ToolDefinition(name=name, description="", parameters={}) for name in names)
    return ToolsOffered(turn=turn, tools=tools)


def _requested(turn: TurnInfo) -> ContextRequested:
    return ContextRequested(turn=turn, model="m", history=())


def _path_with(folder: Path, script: str | None) -> None:
    (folder / "bin").mkdir()
    if script is not None:
        program = folder / "bin" / "bwrap"
        program.write_text(script)
        program.chmod(0o755)


def _context_with_path(folder: Path, mode: str) -> FakePluginContext:
    """Return a context in which only the programs of `folder` and ``sleep`` are found."""
    sleep = folder / "bin" / "sleep"
    if not sleep.exists():
        sleep.symlink_to("/bin/sleep")
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder / "home")}
    return FakePluginContext(folder, settings={"sandbox": mode}, environment=environment)
