"""Commands as the model runs them: what it reads, what they see, and that nothing is left."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import JsonObject, ToolDenied, ToolResult
from nanobot_core.testing import FakePluginContext, ToolContract, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.runs import MARKER
from nanobot_shell.session_tool import ExecSessionTool

MakeContext = Callable[..., FakePluginContext]
LIMIT_S = 20
pytestmark = pytest.mark.anyio


class TestExecContract(ToolContract):
    sample_arguments = {"command": "printf hello"}  # noqa: RUF012  # the suite's attribute

    def make_tool(self, context: FakePluginContext) -> ExecTool:
        return ExecTool(context)

    def make_context(self, tmp_path: Path) -> FakePluginContext:
        return FakePluginContext(tmp_path, environment={"PATH": "/usr/bin:/bin"})


async def test_result_holds_stdout_then_stderr_then_the_exit_code(
    context: FakePluginContext,
) -> None:
    result = await _run(context, "echo out; echo err >&2; exit 3")

    assert result.content == "out\nSTDERR:\nerr\n\nExit code: 3"
    assert not result.is_error
    assert result.data == {"exit_code": 3}


async def test_silent_command_reports_its_exit_code(context: FakePluginContext) -> None:
    assert (await _run(context, "true")).content == "Exit code: 0"


async def test_command_runs_in_the_workspace_and_may_change_it(
    context: FakePluginContext,
) -> None:
    result = await _run(context, "pwd; echo x > work/made")

    assert str(context.workspace) in output_text(result)
    assert (context.workspace / "work" / "made").read_text() == "x\n"


async def test_working_dir_is_relative_to_the_workspace(context: FakePluginContext) -> None:
    (context.workspace / "sub").mkdir()

    result = await _run(context, "pwd", working_dir="sub")

    assert str(context.workspace / "sub") in output_text(result)


@pytest.mark.parametrize("folder", ["missing", "file", "a\0b"])
async def test_working_dir_that_is_not_a_folder_is_reported(
    context: FakePluginContext, folder: str
) -> None:
    (context.workspace / "file").touch()

    with pytest.raises(ToolDenied, match="working_dir"):
        await _run(context, "pwd", working_dir=folder)


@pytest.mark.parametrize("folder", ["..", "/", "link", "//tmp", ".nanobot", "sub/../..", "a\0b"])
async def test_restricted_working_dir_outside_or_behind_a_link_is_refused(
    make_context: MakeContext, tmp_path: Path, folder: str
) -> None:
    async with make_context(restricted=True, sandbox="none") as context:
        (context.workspace / "sub").mkdir()
        (context.workspace / "link").symlink_to(tmp_path)

        with pytest.raises(ToolDenied):
            await _run(context, "pwd", working_dir=folder)


async def test_restricted_working_dir_inside_is_accepted(make_context: MakeContext) -> None:
    async with make_context(restricted=True, sandbox="none") as context:
        (context.workspace / "sub").mkdir()

        result = await _run(context, "pwd", working_dir=str(context.workspace / "sub"))

    assert output_text(result).startswith(str(context.workspace / "sub"))


@pytest.mark.parametrize("probe", ["env", "cat /proc/self/environ", "set"])
async def test_secrets_of_the_host_are_in_no_environment(
    context: FakePluginContext, monkeypatch: pytest.MonkeyPatch, probe: str
) -> None:
    monkeypatch.setenv("API_KEY_OF_HOST", "host-canary-91c2")
    shown = output_text(await _run(context, probe))

    assert "canary-value-7f3a" not in shown
    assert "host-canary-91c2" not in shown
    assert "HOME=" in shown


async def test_environment_has_the_basics_and_what_the_owner_names(
    make_context: MakeContext,
) -> None:
    settings = {"allowed_env_keys": ["SECRET_CANARY"], "path_append": "/opt/mine"}
    async with make_context(sandbox="none", **settings) as context:
        shown = output_text(await _run(context, "env"))

    names = {line.partition("=")[0] for line in shown.splitlines() if "=" in line}
    assert names - {MARKER, "PWD", "SHLVL", "_", "OLDPWD"} == {
        *("HOME", "LANG", "PATH", "SECRET_CANARY")
    }
    assert not MARKER.startswith("NANOBOT_"), "a nanobot in a command would read it as a setting"
    assert ":/opt/mine" in shown


async def test_output_without_end_keeps_head_and_tail_and_names_the_gap(
    context: FakePluginContext,
) -> None:
    shown = output_text(await _run(context, "seq 1 1000000"))

    assert shown.startswith("1\n2\n")
    assert "\n999999\n1000000\n" in shown
    assert "bytes left out] …" in shown
    assert len(shown) < 700_000


async def test_the_model_reads_what_the_owner_allows_of_it(make_context: MakeContext) -> None:
    async with make_context(max_output_chars=300) as context:
        assert ExecTool(context).max_result_chars == 300
        assert ExecTool(context).compactable
        assert ExecSessionTool(context).max_result_chars == 300


async def test_a_gigabyte_of_output_costs_no_memory(context: FakePluginContext) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await _run(context, "yes | head -c 1000000000; yes | head -c 20000000 >&2", timeout=60)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib

    assert "Exit code: 0" in output_text(result)
    assert grown_kib < 20_000


async def test_invalid_text_is_shown_replaced(context: FakePluginContext) -> None:
    assert "a\ufffdb" in output_text(await _run(context, "printf 'a\\377b'"))


async def test_input_is_empty_so_that_nothing_waits_for_it(context: FakePluginContext) -> None:
    assert (await _run(context, "cat; echo end")).content == "end\n\nExit code: 0"


TREES = {
    "child": "sleep 1000",
    "grandchild": "bash -c 'sleep 1000 & sleep 1000 & wait'",
    "deaf": "trap '' TERM; bash -c \"trap '' TERM; sleep 1000 & wait\" & sleep 1000",
    "own session": "setsid sleep 1000 & setsid setsid sleep 1000 & wait",
    "orphan": "(setsid nohup sleep 1000 >/dev/null 2>&1 &) ; sleep 1000",
    "busy": "while :; do sleep 0.01; done",
}


@pytest.mark.parametrize("tree", TREES)
async def test_timeout_ends_the_whole_tree_and_returns_what_was_printed(
    context: FakePluginContext, tree: str
) -> None:
    result = await _run(context, f"echo before; {TREES[tree]}", timeout=1)

    assert result.is_error
    assert output_text(result).startswith("before\n\nThe command was ended after 1 seconds")
    assert await _left_over(context) == []


@pytest.mark.parametrize(
    "command", ["sleep 1000 & echo x", "(setsid sleep 1000 &); echo x", "nohup sleep 1000 & echo x"]
)
async def test_nothing_outlives_a_command_that_ended(
    context: FakePluginContext, command: str
) -> None:
    result = await _run(context, command)

    assert "x" in output_text(result)
    assert await _left_over(context) == []


async def test_cancelling_at_any_point_leaves_no_process(context: FakePluginContext) -> None:
    random_points = random.Random(7)
    trees = list(TREES.values())
    await _run(context, "true")
    for round_number in range(60):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_run(context, trees[round_number % len(trees)]))
            for _ in range(random_points.choice([0, 1, 2, 3, 4, 5, 7, 20])):
                await asyncio.sleep(random_points.choice([0, 0, 0.001, 0.005]))
            running.cancel()
    assert await _left_over(context) == []


async def test_cancelling_twice_leaves_no_process(context: FakePluginContext) -> None:
    started = context.workspace / "work" / "started"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_run(context, f"touch {started}; {TREES['deaf']}"))
        await _run(context, f"until [ -e {started} ]; do sleep 0.01; done")
        running.cancel()
        await asyncio.sleep(0.05)
        running.cancel()
    assert await _left_over(context) == []


async def test_output_after_cancellation_never_shows_up(context: FakePluginContext) -> None:
    waiting = "cd work; touch started; until [ -e go ]; do sleep 0.01; done; echo late | tee late"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_run(context, waiting))
        await _run(context, "until [ -e work/started ]; do sleep 0.01; done")
        running.cancel()

    result = await _run(context, "touch work/go; echo now")

    assert result.content == "now\n\nExit code: 0"
    assert await _left_over(context) == []
    assert not (context.workspace / "work" / "late").exists()


async def test_limits_hold_and_cannot_be_raised(make_context: MakeContext) -> None:
    limits = {"memory_mb": 200, "cpu_s": 7, "max_processes": 321}
    async with make_context(**limits) as context:
        shown = output_text(await _run(context, "ulimit -v; ulimit -t; ulimit -u; ulimit -Hv"))

    assert shown.splitlines()[:4] == ["204800", "7", "321", "204800"]


async def test_cpu_limit_ends_a_busy_command(make_context: MakeContext) -> None:
    async with make_context(cpu_s=1) as context:
        result = await _run(context, "while :; do :; done")

    assert isinstance(result.data, dict)
    assert result.data["exit_code"] not in {0, None}


async def _run(
    context: FakePluginContext,
    command: str,
    *,
    timeout: int = LIMIT_S,  # noqa: ASYNC109  # the tool's own argument
    working_dir: str | None = None,
) -> ToolResult:
    arguments: JsonObject = {"command": command, "timeout": timeout, "working_dir": working_dir}
    result = await ExecTool(context).execute(call_in(context.workspace, context.files), arguments)
    assert isinstance(result, ToolResult)
    return result


async def _left_over(context: FakePluginContext) -> list[str]:
    """Return the processes of commands that still run; those of other tests do not count."""
    wanted = str(context.workspace.parent).encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if MARKER.encode() in environment and wanted in environment:
            found.append(command.decode(errors="replace"))
    return found
