"""The plugin's hooks, its settings, and what it says where the sandbox does not work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loguru import logger
from pydantic import ValidationError

from nanobot_core import (
    Allow,
    Ask,
    ContextBlock,
    ContextRequested,
    Deny,
    JsonObject,
    ToolCall,
    ToolCallProposed,
    ToolDefinition,
    ToolDenied,
    ToolFailed,
    ToolsOffered,
    TurnInfo,
)
from nanobot_core.testing import FakeGateway, FakePluginContext, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.plugin import ShellPlugin
from nanobot_shell.session_tool import ExecSessionTool
from nanobot_shell.settings import ExecSettings, SandboxName
from nanobot_shell.shell import Shell
from nanobot_shell.status import check_sandbox

if TYPE_CHECKING:
    from conftest import Decide, MakeContext, Require

LIMIT_S = 20
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


def test_the_description_says_what_to_use_instead() -> None:
    description = ExecTool.description
    assert "read_file, edit_file, grep and glob, prefer them to cat, sed" in description
    assert "use -y" in description
    assert "background=true" in description


def test_contributions_name_what_exists(make_context: MakeContext) -> None:
    plugin = ShellPlugin()

    assert [tool.name for tool in plugin.contribute_tools(make_context())] == [
        "exec",
        "exec_session",
    ]
    assert [section.path for section in plugin.contribute_settings()] == ["tools.exec"]
    assert [check.run for check in plugin.contribute_checks()] == [
        "nanobot_shell.status:check_sandbox"
    ]


def test_settings_read_the_former_name_of_the_time_limit() -> None:
    assert ExecSettings.model_validate({"timeout": 90}).timeout_s == 90
    assert ExecSettings.model_validate({"timeoutS": 90}).timeout_s == 90
    assert ExecSettings.model_validate({"timeout_s": 90}).timeout_s == 90


@pytest.mark.parametrize(
    "section",
    [{"timeout": 0}, {"timeout": 601}, {"denyPatterns": ["^a"]}, {"unknown": 1}, {"sandbox": "x"}],
)
def test_settings_that_do_not_fit_are_refused(section: JsonObject) -> None:
    with pytest.raises(ValidationError):
        ExecSettings.model_validate(section)


def test_tools_are_offered_only_in_the_channels_that_the_owner_names(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    plugin = _started(make_context(channels=["cli"]))

    assert plugin.rewrite_tools(_offered(turn_in("cli"))) is None
    left = plugin.rewrite_tools(_offered(turn_in("telegram")))
    assert left is not None
    assert [tool.name for tool in left] == ["read_file"]


def test_tools_are_offered_everywhere_by_default(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    assert _started(make_context()).rewrite_tools(_offered(turn_in("telegram"))) is None


def test_hooks_before_start_say_what_is_wrong(turn_in: TurnIn) -> None:
    with pytest.raises(RuntimeError, match="before its start hook"):
        ShellPlugin().rewrite_tools(_offered(turn_in("cli")))


@pytest.mark.parametrize("name", ["exec", "exec_session", "run"])
def test_calls_from_other_channels_are_denied_though_never_offered(
    make_context: MakeContext, turn_in: TurnIn, name: str
) -> None:
    plugin = _started(make_context(channels=["cli"], sandbox="none"))

    def proposed(channel: str, origin: str = "shell@0.1.0") -> ToolCallProposed:
        call = ToolCall("c", name, {})
        return ToolCallProposed(turn=turn_in(channel), call=call, origin=origin, read_only=False)

    denied = Deny(f"{name} is not available in channel 'telegram'")
    assert plugin.authorize_tool_call(proposed("telegram")) == denied
    assert plugin.authorize_tool_call(proposed("cli")) is None
    assert plugin.authorize_tool_call(proposed("telegram", "other@1.0")) is None


@pytest.mark.parametrize("mode", ["bwrap", "landlock"])
@pytest.mark.parametrize("home", ["/", "workspace"])
@pytest.mark.anyio
async def test_home_that_cannot_be_hidden_does_not_break_the_sandbox(
    tmp_path: Path, require: Require, home: str, mode: SandboxName
) -> None:
    require(mode)
    environment = {"HOME": home if home == "/" else str(tmp_path / home)}
    settings = {"sandbox": mode}
    async with FakePluginContext(tmp_path, settings=settings, environment=environment) as context:
        finding = await check_sandbox(context)
        result = await ExecTool(context).execute(call_in(context.workspace), {"command": "ls /usr"})

    assert "bin" in str(result)
    assert finding.status == ("ok" if home == "/" else "warning")


@pytest.mark.parametrize("command", ["git status && ls -l", "git log 2>/dev/null", "LS"])
@pytest.mark.anyio
async def test_commands_that_match_the_owners_patterns_run(
    make_context: MakeContext, decide: Decide, command: str
) -> None:
    settings = {"deny_patterns": ["git push*"], "allow_patterns": ["git *", "ls*"]}

    assert await decide(make_context(sandbox="none", **settings), command) == Allow()


@pytest.mark.parametrize(
    "command",
    [
        "git status; g'i't push",
        "git status; make",
        "git status; X=1",
        "X=1 git status",
        "git log > x",
        "git log '> x' > x",
        "git log >> ~/.bashrc",
        "git apply < x",
        "{ ls; } > x",
        "git log; [[ 'a[$(make)]' -eq 0 ]]",
        "git log; echo $((a[$(make)]))",
        "$(echo git) log",
        "ls 'unclosed",
    ],
)
@pytest.mark.anyio
async def test_commands_and_files_that_match_no_pattern_of_the_owner_are_denied(
    make_context: MakeContext, decide: Decide, command: str
) -> None:
    settings = {"deny_patterns": ["git push*"], "allow_patterns": ["git *", "ls*"]}

    assert isinstance(await decide(make_context(sandbox="none", **settings), command), Deny)


@pytest.mark.parametrize("command", ["git push", "sudo git push x", "sh -c 'git push'", "$X push"])
@pytest.mark.anyio
async def test_denied_patterns_reach_commands_in_arguments(
    make_context: MakeContext, decide: Decide, command: str
) -> None:
    context = make_context(sandbox="none", deny_patterns=["git push*"])

    assert isinstance(await decide(context, command), Deny)


@pytest.mark.parametrize("pattern", ["^git", "git$", r"\bgit\b", "git .*", "git (?:a)", r"a\.b"])
def test_patterns_that_are_regular_expressions_are_refused_with_the_remedy(pattern: str) -> None:
    with pytest.raises(ValidationError, match="expected a pattern such as 'git push"):
        ExecSettings.model_validate({"deny_patterns": [pattern]})


@pytest.mark.anyio
async def test_review_gives_the_owners_rules_each_command_and_each_file(
    make_context: MakeContext,
) -> None:
    context = make_context(sandbox="none")
    values = {}
    for command in ("cd x && git log '> a' > b 2>&1 | tee c", "echo 'unclosed"):
        review = await ExecTool(context).review(call_in(context.workspace), {"command": command})
        values[command] = review.values["command"]

    assert list(values.values()) == [("cd x", "git log '> a' > b 2>&1", "tee c", "> b"), None]


@pytest.mark.usefixtures("no_sandbox")
@pytest.mark.anyio
async def test_command_without_a_sandbox_is_asked_about_with_its_folder(
    make_context: MakeContext, decide: Decide
) -> None:
    context = make_context()
    (context.workspace / "sub").mkdir()

    decision = await decide(context, "python3 -c 'print(1)'", "sub")

    assert isinstance(decision, Ask)
    assert decision.subject == f"python3 -c 'print(1)'\nin {context.workspace / 'sub'}"
    assert "without a sandbox" in decision.question


@pytest.mark.parametrize("command", ["python3 -c 'print(1)'", "$X", "eval ls", "echo x | sh"])
@pytest.mark.anyio
async def test_owner_who_wrote_none_is_not_asked(
    make_context: MakeContext, decide: Decide, command: str
) -> None:
    assert await decide(make_context(sandbox="none"), command) == Allow()


@pytest.mark.anyio
async def test_command_in_a_sandbox_needs_no_approval(
    confined: FakePluginContext, decide: Decide
) -> None:
    assert await decide(confined, "python3 -c 'print(1)'") == Allow()


@pytest.mark.parametrize("mode", ["auto", "none"])
@pytest.mark.usefixtures("no_sandbox")
@pytest.mark.anyio
async def test_a_guest_runs_nothing_without_a_sandbox(make_context: MakeContext, mode: str) -> None:
    context = make_context(sandbox=mode)
    guest = replace(call_in(context.workspace), is_owner=False)

    review = await ExecTool(context).review(guest, {"command": "ls"})

    assert isinstance(review.decision, Deny)
    assert not ExecTool.for_guests
    assert not ExecSessionTool.for_guests


@pytest.mark.anyio
async def test_a_guest_sees_their_own_folder_only(confined: FakePluginContext) -> None:
    folder = confined.workspace / "guests" / "mallory"
    folder.mkdir(parents=True)
    (confined.workspace / "memory").mkdir()
    (confined.workspace / "memory" / "MEMORY.md").write_text("what the owner said")
    guest = replace(call_in(folder), is_owner=False)
    command = "cat ../../memory/MEMORY.md; ls ../..; echo mine > x; cat x"

    result = await ExecTool(confined).execute(guest, {"command": command})

    assert "what the owner said" not in output_text(result)
    assert (folder / "x").read_text() == "mine\n"
    assert {path.name for path in folder.iterdir()} == {"x"}


@pytest.mark.anyio
async def test_working_dir_outside_is_denied_when_restricted(
    make_context: MakeContext, decide: Decide
) -> None:
    decision = await decide(make_context(restricted=True, sandbox="none"), "ls", "/etc")

    assert isinstance(decision, Deny)
    assert "outside the allowed folders" in decision.reason


@pytest.mark.parametrize("command", ["eval " * 5000 + "ls", "(" * 3000, "xargs " + "a " * 24_000])
@pytest.mark.anyio
async def test_deep_and_long_lines_are_judged(
    make_context: MakeContext, decide: Decide, command: str
) -> None:
    settings = {"deny_patterns": ["*a*a*a*a*a*b"]}

    async with asyncio.timeout(LIMIT_S):
        decision = await decide(make_context(sandbox="none", **settings), command)

    assert isinstance(decision, Allow | Deny)


@pytest.mark.anyio
async def test_commands_of_endless_length_are_refused(
    make_context: MakeContext, decide: Decide
) -> None:
    assert isinstance(await decide(make_context(sandbox="none"), "x" * 200_000), Deny)


@pytest.mark.anyio
async def test_context_describes_the_shell_to_the_model(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    plugin = _started(make_context(sandbox="none", memory_mb=512, cpu_s=9, channels=["cli"]))

    blocks = await _gathered(plugin, turn_in("cli"))

    assert blocks is not None
    [block] = blocks
    assert block.placement == "stable"
    assert block.text.startswith("exec runs commands without a sandbox.\n")
    assert "512 MiB" in block.text
    assert "9 s of CPU" in block.text
    assert await _gathered(plugin, turn_in("telegram")) is None


@pytest.mark.anyio
async def test_model_and_owner_read_which_sandbox_is_in_use(
    make_context: MakeContext, turn_in: TurnIn, require: Require
) -> None:
    names: dict[SandboxName, str] = {"bwrap": "bubblewrap", "landlock": "Landlock"}
    for mode, name in names.items():
        require(mode)
        context = make_context(sandbox=mode, sandbox_network=False)

        blocks = await _gathered(_started(context), turn_in("cli"))
        finding = await check_sandbox(context)

        assert blocks is not None
        line, _ = next(iter(blocks)).text.splitlines()
        assert line.startswith(f"exec runs commands in a sandbox ({name}): ")
        assert "network off" in line
        assert (finding.status, finding.message) == ("ok", f"commands run in {name}, network off")


@pytest.mark.usefixtures("no_sandbox")
@pytest.mark.anyio
async def test_missing_sandbox_is_reported_to_model_and_owner(
    make_context: MakeContext, turn_in: TurnIn
) -> None:
    context = make_context()

    blocks = await _gathered(_started(context), turn_in("cli"))
    finding = await check_sandbox(context)

    assert blocks is not None
    assert "the owner is asked about each one" in next(iter(blocks)).text
    assert finding.status == "warning"
    assert "Landlock cannot be started" in finding.message
    assert "nanobot-shell[sandbox]" in finding.remedy


@pytest.mark.parametrize("mode", ["auto", "none"])
@pytest.mark.anyio
async def test_gateway_logs_at_its_start_how_commands_run(
    make_context: MakeContext, mode: str
) -> None:
    said: list[str] = []
    has_said = asyncio.Event()

    def take(line: str) -> None:
        said.append(line)
        has_said.set()

    context = make_context(sandbox=mode)
    context.gateway = FakeGateway()
    handler = logger.add(take, format="{level} {message}")
    try:
        async with context, asyncio.timeout(10):
            _started(context)
            await has_said.wait()
    finally:
        logger.remove(handler)

    finding = await check_sandbox(context)
    level = "INFO" if finding.status == "ok" else "WARNING"
    assert said == [f"{level} {finding.message}\n"]


BROKEN = {
    "absent": (None, "bubblewrap is not installed"),
    "failing": ("#!/bin/sh\necho 'no namespaces' >&2; exit 1\n", "no namespaces"),
    "hanging": ("#!/bin/sh\nexec sleep 60\n", "did not start within"),
    "unstartable": ("#!/no/such/interpreter\n", "does not work here"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.usefixtures("no_bundled_bwrap")
@pytest.mark.anyio
async def test_named_sandbox_that_does_not_work_is_explained_and_nothing_runs(
    tmp_path: Path, decide: Decide, kind: str
) -> None:
    script, reason = BROKEN[kind]
    _path_with(tmp_path, script)
    required = _context_with_path(tmp_path, "bwrap")

    finding = await check_sandbox(required)
    decision = await decide(required, "ls")

    assert finding.status == "error"
    assert reason in finding.message
    assert "install bubblewrap" in finding.remedy
    assert isinstance(decision, Deny)
    with pytest.raises(ToolDenied, match="sandbox only"):
        await ExecTool(required).execute(call_in(required.workspace), {"command": "ls"})


@pytest.mark.usefixtures("no_bundled_bwrap")
@pytest.mark.anyio
async def test_sandbox_that_was_too_slow_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, commands would otherwise run without a sandbox for as long as nanobot."""
    _path_with(tmp_path, f"#!/bin/sh\n[ -e {tmp_path}/idle ] || exec sleep 60\n")
    shell = _context_with_path(tmp_path, "bwrap").shared(Shell)
    monkeypatch.setattr("nanobot_shell.shell.PROBE_AGAIN_S", -1)
    with monkeypatch.context() as patched:
        patched.setattr("nanobot_shell.sandbox.PROBE_LIMIT_S", 0.1)
        assert "did not start within" in (await shell.probe()).reason
    (tmp_path / "idle").touch()

    assert (await shell.probe()).sandbox is not None


@pytest.mark.anyio
async def test_landlock_takes_over_where_bubblewrap_does_not_work(
    tmp_path: Path, require: Require, no_bundled_bwrap: None
) -> None:
    require("landlock")
    _path_with(tmp_path, "#!/bin/sh\nexit 1\n")
    context = _context_with_path(tmp_path, "auto")

    finding = await check_sandbox(context)

    assert finding.message == "commands run in Landlock, network on"


@pytest.mark.anyio
async def test_owner_is_warned_where_commands_can_change_nanobot_itself(
    confined: FakePluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(confined.workspace / ".venv"))

    finding = await check_sandbox(confined)

    assert finding.status == "warning"
    assert "nanobot itself" in finding.message


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


async def _gathered(plugin: ShellPlugin, turn: TurnInfo) -> Iterable[ContextBlock] | None:
    found = plugin.gather_context(ContextRequested(turn=turn, model="m", history=()))
    return await found if isinstance(found, Awaitable) else found


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
