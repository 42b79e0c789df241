"""Loads a plugin again when its files change, while an agent works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import Nanobot, NanobotError, PluginError
from nanobot_devkit.faults import place_in, place_of_import
from nanobot_devkit.overlay import Source

if TYPE_CHECKING:
    from loguru import Message

POLL_S = 0.4
"""Seconds between two looks at the files."""
_CHILD_LIMIT_S = 60.0
_INFO = 20
_COMMAND = """\
import runpy, sys
end = sys.argv.index("--")
sys.path[1:1] = sys.argv[1:end]
sys.argv = ["nanobot", *sys.argv[end + 1:]]
runpy.run_module("nanobot_core", run_name="__main__")
"""
"""Runs nanobot with folders in front of ``sys.path``."""
Tell = Callable[[str], None]
Snapshot = Mapping[Path, tuple[int, int]]


async def watch(source: Source, on_change: Callable[[Sequence[Path]], Awaitable[None]]) -> None:
    """Call `on_change` with the files that changed, each time that no more follow.

    An editor that saves several files, or one in steps, causes one call. Runs until cancelled.

    Args:
        source: whose files are looked at.
        on_change: the files are not looked at while it runs.
    """
    known = await asyncio.to_thread(source.snapshot)
    while True:
        await asyncio.sleep(POLL_S)
        seen = await asyncio.to_thread(source.snapshot)
        if seen == known:
            continue
        while (later := await _after(POLL_S, source)) != seen:
            seen = later
        changed = _difference(known, seen)
        known = seen
        await on_change(changed)


async def _after(seconds: float, source: Source) -> Snapshot:
    await asyncio.sleep(seconds)
    return await asyncio.to_thread(source.snapshot)


def _difference(before: Snapshot, after: Snapshot) -> list[Path]:
    files = before.keys() | after.keys()
    return sorted(file for file in files if before.get(file) != after.get(file))


class Reloader:
    """Exchanges a plugin of a running agent.

    The former version continues if the new one fails. What a new version does for the first time
    is agreed to, because its author is the owner; it is printed.

    Args:
        bot: the agent, entered.
        source: the plugin.
        paths: precede ``sys.path``, so that children find it; none for a single file.
        tell: prints a line.
    """

    def __init__(self, bot: Nanobot, source: Source, paths: Sequence[str], tell: Tell) -> None:
        self._bot = bot
        self._source = source
        self._paths = paths
        self._tell = tell
        self._is_reloading = False

    async def start(self) -> None:
        """Start the plugin, and print whether it works."""
        try:
            await self._bot.plugins.activate(self._source.id)
        except NanobotError as error:
            await self._failed("does not start", error)
        else:
            self._tell(f"{self._source.id} runs; save a file to load it again")

    async def reload(self, changed: Sequence[Path]) -> None:
        """Load the plugin again, and print the result."""
        names = ", ".join(file.name for file in changed[:3]) + (", …" if len(changed) > 3 else "")
        self._is_reloading = True
        try:
            await self._exchange()
        except NanobotError as error:
            is_active = any(
                report.id == self._source.id and report.state in {"active", "degraded"}
                for report in self._bot.plugins.reports()
            )
            rest = "the former version continues" if is_active else "it does not run"
            await self._failed(f"not loaded ({names}), {rest}", error)
        else:
            self._tell(f"{self._source.id} loaded again ({names})")
        finally:
            self._is_reloading = False

    async def _exchange(self) -> None:
        plugin_id = self._source.id
        try:
            await self._bot.plugins.changes.reload(plugin_id)
        except PluginError as error:
            if f"nanobot plugins enable {plugin_id}" not in error.remedy:
                raise
            await asyncio.to_thread(self._agree)
            await self._bot.plugins.changes.reload(plugin_id)
        # It may never have run, and then it starts only when something needs it.
        await self._bot.plugins.activate(plugin_id)

    def _agree(self) -> None:
        """Run the remedy, with another configuration than the owner's. Blocks."""
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config.yaml"
            config.touch()
            is_file = self._source.project is None
            local = [f"NANOBOT_PLUGINS__LOCAL=[{self._source.module}]"] if is_file else []
            child = subprocess.run(
                [
                    *("env", f"NANOBOT_HOME={self._bot.loaded.home}", f"NANOBOT_CONFIG={config}"),
                    *local,
                    *(sys.executable, "-c", _COMMAND, *self._paths, "--"),
                    *("plugins", "enable", self._source.id),
                ],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_CHILD_LIMIT_S,
                check=False,
            )
        if child.returncode:
            self._tell(child.stderr.strip())
        for line in child.stdout.splitlines():
            if line.startswith("new since"):
                self._tell(f"{self._source.id}: {line}")

    async def _failed(self, what: str, error: NanobotError) -> None:
        reason = str(error).removeprefix(f"plugin '{self._source.id}': ")
        place = place_in(error, self._source.code)
        if not place and str(self._source.code) not in reason:
            arguments = self._source.module, self._paths, self._source.code
            place = await asyncio.to_thread(place_of_import, *arguments)
        where = f"{place}: " if place else ""
        self._tell(f"{self._source.id} {what}: {where}{reason}")

    def show(self, message: Message) -> None:
        """Print a log record of the plugin, with file and line of what its code raised.

        A sink of the log.
        """
        record = message.record
        plugin_id = self._source.id
        if record["extra"].get("plugin") != plugin_id:
            return
        raised = record["exception"]
        if raised is not None and raised.value is not None:
            if place := place_in(raised.value, self._source.code):
                kind = type(raised.value).__name__
                self._tell(f"{plugin_id}: {place}: {kind}: {raised.value}")
            return
        is_of_host = (record["name"] or "").startswith("nanobot_core.plugins.")
        if record["level"].no >= _INFO and not (self._is_reloading and is_of_host):
            self._tell(f"{plugin_id}: {record['level'].name.lower()}: {record['message']}")
