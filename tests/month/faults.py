"""What goes wrong in a month, chosen from a seed. Each fault is over when its function returns."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from nanobot_core.testing import Reply
from tests.month.process import HOUR_S
from tests.month.setting import FAULTY, command, faulty_plugin, forecast_plugin

if TYPE_CHECKING:
    from tests.month.month import Month

_MOMENT_S: Final = 1.0
_RETRIED: Final = (
    Reply(status=429, headers={"retry-after": "0"}, body=b"{}"),
    Reply(status=500, body=b"oops"),
    Reply(status=503, body=b"<html>busy</html>"),
    Reply(text="x" * 999, stop_after_bytes=900, stop="reset"),
    Reply(text="x" * 999, stop_after_bytes=900),
)
"""Answers of a model service after which it is asked again."""


async def kill(month: Month) -> None:
    """A power failure."""
    await month.restart(signal.SIGKILL)


async def stop(month: Month) -> None:
    """The system restarts the gateway."""
    await month.restart(signal.SIGTERM)


async def provider_fault(month: Month) -> None:
    """The model service fails twice."""
    month.model.faults += month.rng.sample(_RETRIED, 2)
    await asyncio.sleep(_MOMENT_S)


async def platform_away(month: Month) -> None:
    """A platform breaks every connection and accepts none."""
    platform = month.rng.choice(month.platforms)
    await platform.hang_up()
    try:
        await asyncio.sleep(_MOMENT_S)
    finally:
        await platform.come_back()


async def platform_silent(month: Month) -> None:
    """A connection for receiving stays open, and nothing comes."""
    platform = month.rng.choice(month.platforms)
    await platform.go_silent()
    await month.people.write()
    await month.pass_time(HOUR_S)  # more than any channel accepts


async def platform_busy(month: Month) -> None:
    """A platform asks to wait."""
    able = [each for each in month.platforms if each.abilities.asks_to_wait]
    month.rng.choice(able).busy(0.5, times=3)
    await asyncio.sleep(_MOMENT_S)


async def network_away(month: Month) -> None:
    """No platform can be reached for three hours, in which people write."""
    for platform in month.platforms:
        await platform.hang_up()
    try:
        await month.people.write()
        for _ in range(3):
            await month.pass_time(HOUR_S, delivers=False)
    finally:
        for platform in month.platforms:
            await platform.come_back()


async def disk_full(month: Month) -> None:
    """No file of the gateway can grow, so it accepts no message until there is space."""
    pid = month.gateway.pid
    former = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, former[1]))
    try:
        await month.people.write()
        await asyncio.sleep(_MOMENT_S)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, former)


async def clock_forward(month: Month) -> None:
    """Five hours are over at once, as after a suspend."""
    await month.pass_time(5 * HOUR_S)


async def clock_back(month: Month) -> None:
    """Somebody sets the time of day back by an hour, and later forward again."""
    if month.gateway.shift.now().hour == 0:  # the budget of the day before may be spent
        await month.pass_time(HOUR_S)
    shift = month.gateway.shift
    month.gateway.move(replace(shift, wall_s=shift.wall_s - HOUR_S))
    await month.people.write()
    await month.pass_time(HOUR_S)
    shift = month.gateway.shift
    month.gateway.move(replace(shift, wall_s=shift.wall_s + HOUR_S))


async def server_killed(month: Month) -> None:
    """An MCP server dies."""
    for child in _children(month.gateway.pid):
        if "mcp_server_time" in child.command:
            os.kill(child.pid, signal.SIGKILL)
    await asyncio.sleep(_MOMENT_S)


async def reload(month: Month) -> None:
    """The owner switches a plugin off, and on again."""
    for word in ("disable", "enable"):
        await month.change(lambda: command(month.home, "plugins", word, "skills"))  # noqa: B023 - awaited here


async def upgrade(month: Month) -> None:
    """A plugin is replaced by its next version."""
    month.version += 1
    forecast_plugin(month.home, month.version)
    await month.change(lambda: command(month.home, "gateway", "reload"))


async def plugin_fault(month: Month) -> None:
    """A plugin of the owner's is broken in one of many ways."""
    name = month.rng.choice(sorted(FAULTY))
    faulty_plugin(month.home, name)
    enable = ("plugins", "enable", "faulty", "--yes")
    await month.change(lambda: command(month.home, *enable, must_succeed=False))
    await asyncio.sleep(_MOMENT_S)
    await month.change(lambda: command(month.home, "plugins", "disable", "faulty"))


Fault: TypeAlias = Callable[["Month"], Awaitable[None]]
UNDER_LOAD: Final[Mapping[Fault, int]] = {
    kill: 4,
    stop: 1,
    provider_fault: 3,
    platform_away: 2,
    platform_busy: 2,
    server_killed: 1,
    reload: 1,
    upgrade: 1,
    plugin_fault: 2,
}
"""What happens while people write, and how often it is chosen."""
BETWEEN: Final[Mapping[Fault, int]] = {
    platform_silent: 2,
    network_away: 2,
    disk_full: 2,
    clock_forward: 1,
    clock_back: 1,
}
"""What happens while no turn runs, because hours pass: a turn has limits of time."""


def choose(rng: random.Random, faults: Mapping[Fault, int], chance: float) -> list[Fault]:
    """Return up to three faults, the more the higher the chance of one is."""
    count = sum(rng.random() < chance for _ in range(3))
    return rng.choices(list(faults), list(faults.values()), k=count)


class _Child:
    def __init__(self, folder: Path) -> None:
        self.pid = int(folder.name)
        self.parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        self.command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def _children(pid: int) -> list[_Child]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append(_Child(folder))
    return [child for child in found if child.parent == pid]
