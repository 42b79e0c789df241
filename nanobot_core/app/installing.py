"""Installs plugins for a running gateway, in a child process.

An installation imports new code to examine it. This process keeps what it has imported, so that a
child does it, with the command that people use.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from nanobot_core.config.environment import process_environment
from nanobot_core.contracts.operation import InstallPlan, PlannedPlugin, VersionChange
from nanobot_core.errors import InstallError

LIMIT_S: Final = 1_200.0
"""Seconds that a plan or an installation may take, downloads and a trial included."""
_STOP_S: Final = 3.0
"""Seconds in which an interrupted installation undoes what it has done. If it does not, the next
change of the environment does."""


class PluginInstaller:
    """Plans and carries out installations, one at a time.

    Args:
        home: nanobot's folder.
        options: options of the command line before its command.
    """

    def __init__(self, home: Path, options: Sequence[str]) -> None:
        self._home = home
        self._command = (sys.executable, "-P", "-m", "nanobot_core", *options)
        self._working = asyncio.Lock()

    async def plan(self, requirement: str) -> InstallPlan:
        """Return what installing a plugin would change."""
        name = _checked(requirement)
        found = await self._run("--dry-run", name)
        return InstallPlan(
            requirement=name,
            environment=found["environment"],
            changes=tuple(VersionChange(**each) for each in found["changes"]),
            plugins=tuple(_planned(each) for each in found["plugins"]),
            digest=found["digest"],
        )

    async def install(self, plan: InstallPlan) -> Sequence[str]:
        """Install what was planned; the command reloads the gateway."""
        name = _checked(plan.requirement)
        found = await self._run("--agree", plan.digest, name)
        return [str(sentence) for sentence in found["todo"]]

    async def _run(self, *arguments: str) -> dict[str, Any]:
        if self._working.locked():
            reason = "another installation is in progress"
            raise InstallError("cannot begin", reason, "wait for it to end, then try again")
        async with self._working:
            process = await asyncio.create_subprocess_exec(
                *(*self._command, "plugins", "add", "--json", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**process_environment(), "NANOBOT_HOME": str(self._home)},
            )
            try:
                async with asyncio.timeout(LIMIT_S):
                    output, errors = await process.communicate()
            except TimeoutError as error:
                reason = f"it did not end within {LIMIT_S:.0f} s"
                raise InstallError("not installed", reason) from error
            finally:
                await _end(process)
        if process.returncode:
            text = errors.decode(errors="replace").strip()
            raise InstallError("not installed", _problem_in(text) or "it failed without a message")
        answer: dict[str, Any] = json.loads(output)
        return answer


def _checked(requirement: str) -> str:
    """Return a requirement that names a distribution, and nothing else."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement as error:
        reason = "it is not the name of a distribution, such as nanobot-telegram"
        raise InstallError(f"cannot install '{requirement}'", reason) from error
    if parsed.url or parsed.name.endswith((".py", ".whl")):
        reason = "a path or address is installed in the terminal only"
        raise InstallError(f"cannot install '{requirement}'", reason, "nanobot plugins add")
    return str(parsed)


def _planned(found: dict[str, Any]) -> PlannedPlugin:
    reaches = found["reaches"]
    lists = {"reaches": None if reaches is None else tuple(reaches), "news": tuple(found["news"])}
    return PlannedPlugin(**(found | lists))


def _problem_in(text: str) -> str:
    """Return the error message of the command."""
    return text.rpartition("Error: ")[2]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the command if it still runs, and give it time to undo what it has done."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
