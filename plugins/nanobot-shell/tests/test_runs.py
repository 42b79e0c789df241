"""What commands leave when the process that started them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core.testing import FakeGateway, FakePluginContext
from nanobot_shell.marker import MARKER
from nanobot_shell.plugin import ShellPlugin
from nanobot_shell.runs import Run, end_former_runs
from nanobot_shell.settings import SandboxName
from nanobot_shell.shell import Shell

if TYPE_CHECKING:
    from conftest import Require

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc"),
]
LIMIT_S = 20
ALL = 5
"""Processes that the commands start: a shell, three times ``sleep``, one ``cat``."""
GATEWAY = """
import asyncio, sys
from pathlib import Path
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_shell.exec_tool import ExecTool

async def main(folder, mode):
    environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    settings = {"sandbox": mode}
    async with FakePluginContext(folder, settings=settings, environment=environment) as context:
        for command in ("sleep 1000 & setsid sleep 1000 & wait", "(setsid sleep 1000 &)"):
            arguments = {"command": f"{command}; echo; cat", "background": True}
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
        await started(tmp_path)
        killed.kill()
    context = FakePluginContext(tmp_path, settings={"sandbox": mode})
    context.gateway = FakeGateway()

    async with context, asyncio.timeout(LIMIT_S):
        ShellPlugin().start(context)
        while marked(tmp_path):
            await context.shared(Shell).end_former()
            await asyncio.sleep(0.01)

    assert list((tmp_path / "data" / "example" / "runs").iterdir()) == []


async def test_commands_of_a_gateway_that_runs_are_left_alone(tmp_path: Path) -> None:
    with gateway(tmp_path, "none") as running:
        before = await started(tmp_path)
        async with FakePluginContext(tmp_path) as context:
            await context.shared(Shell).end_former()

            assert marked(tmp_path) == before
        running.kill()
    assert end_former_runs(tmp_path / "data" / "example" / "runs") >= 3


def test_commands_of_another_folder_are_left_alone(tmp_path: Path) -> None:
    run, other = Run(tmp_path / "a"), Run(tmp_path / "b")
    environment = {MARKER: f"{other.id}-1", "FOLDER": str(tmp_path)}
    with subprocess.Popen(["sleep", "1000"], env=environment) as process:
        os.close(run._handle)  # as the kernel does when a process ends

        assert end_former_runs(tmp_path / "a") == 0

        assert process.poll() is None
        process.kill()
    other.close()


@contextmanager
def gateway(folder: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", GATEWAY, str(folder), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


async def started(folder: Path) -> set[int]:
    """Return the processes of the gateway's commands as soon as they all run."""
    async with asyncio.timeout(LIMIT_S):
        found: set[int] = set()
        while len(found) < ALL:
            await asyncio.sleep(0.01)
            found = marked(folder)
    return found


def marked(folder: Path) -> set[int]:
    """Return the processes of commands that were started for `folder`."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if MARKER.encode() in environment and str(folder).encode() in environment:
            found.add(int(entry.name))
    return found
