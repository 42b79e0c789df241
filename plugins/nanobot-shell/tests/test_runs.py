"""What commands leave when the process that started them is killed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core.testing import FakeGateway, FakePluginContext, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.plugin import ShellPlugin
from nanobot_shell.runs import MARKER, Run, end_former_runs
from nanobot_shell.settings import SandboxName
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from conftest import Require

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc"),
]
LIMIT_S = 20
PIPES = ("one", "two", "three")
GATEWAY = """
import asyncio, sys
from pathlib import Path
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_shell.exec_tool import ExecTool

async def main(folder, mode):
    environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    settings = {"sandbox": mode}
    async with FakePluginContext(folder, settings=settings, environment=environment) as context:
        commands = {"one": "sleep 1000 & setsid sleep 1000 & wait", "two": "(setsid sleep 1000 &)"}
        if mode != "none":
            commands["three"] = "(env -i setsid sleep 1000 &)"
        for pipe, command in commands.items():
            line = f"exec 9<>work/{pipe}; {command}; cat"
            arguments = {"command": line, "background": True}
            await ExecTool(context).execute(call_in(context.workspace), arguments)
        print("ready", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.parametrize("mode", ["none", "landlock", "bwrap"])
async def test_commands_of_a_killed_gateway_are_ended_at_the_next_start(
    tmp_path: Path, require: Require, mode: SandboxName
) -> None:
    require(mode)
    with gateway(tmp_path, mode) as killed:
        await commands_are(tmp_path, {True})
        killed.kill()
    context = FakePluginContext(tmp_path, settings={"sandbox": mode})
    context.gateway = FakeGateway()

    async with context:
        ShellPlugin().start(context)
        await commands_are(tmp_path, {False})

    assert list((tmp_path / "data" / "example" / "runs").iterdir()) == []


async def test_commands_of_a_gateway_that_runs_are_left_alone(tmp_path: Path) -> None:
    with gateway(tmp_path, "none") as running:
        await commands_are(tmp_path, {True})
        async with FakePluginContext(tmp_path) as context:
            await context.shared(Shell).end_former()

            await commands_are(tmp_path, {True})
        running.kill()
    assert end_former_runs(tmp_path / "data" / "example" / "runs") >= 3
    await commands_are(tmp_path, {False})


def test_commands_of_another_folder_are_left_alone(tmp_path: Path) -> None:
    run, other = Run(tmp_path / "a"), Run(tmp_path / "b")
    environment = {MARKER: f"{other.id}-1", "FOLDER": str(tmp_path)}
    with subprocess.Popen(["sleep", "1000"], env=environment) as process:
        os.close(run._handle)  # as the kernel does when a process ends

        assert end_former_runs(tmp_path / "a") == 0

        assert process.poll() is None
        process.kill()
    other.close()


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("echo x", "Exit code: 0"),
        ("exec sleep 1000", "ended after 1 seconds"),
        ("kill -9 $$", "Exit code: "),
    ],
)
@pytest.mark.parametrize(
    "hidden", ["env -i setsid sleep 1000", "env -i sh -c 'trap : 15; sleep 9'"]
)
async def test_process_without_the_environment_ends_with_its_command(
    confined: FakePluginContext, command: str, ending: str, hidden: str
) -> None:
    pipe = confined.workspace / "work" / "pipe"
    os.mkfifo(pipe)
    line = f"exec 9<>work/pipe; ({hidden} >/dev/null 2>&1 &); {command}"
    call = call_in(confined.workspace, confined.files)

    result = await ExecTool(confined).execute(call, {"command": line, "timeout": 1})

    assert ending in output_text(result)
    assert not is_held(pipe)


@contextmanager
def gateway(folder: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    work = folder / "workspace" / "work"
    work.mkdir(parents=True)
    for pipe in PIPES if mode != "none" else PIPES[:2]:
        os.mkfifo(work / pipe)
    command = [sys.executable, "-c", GATEWAY, str(folder), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


async def commands_are(folder: Path, wanted: set[bool]) -> None:
    """Wait until all commands of the gateway run, or none."""
    found: set[bool] = set()
    async with asyncio.timeout(LIMIT_S):
        while found != wanted:
            await asyncio.sleep(0.01)
            pipes = (folder / "workspace" / "work").iterdir()
            found = {is_held(pipe) for pipe in pipes}


def is_held(pipe: Path) -> bool:
    """Whether a process has the pipe open for reading: fifo(7)."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True
