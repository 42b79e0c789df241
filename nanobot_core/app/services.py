"""Services of plugins: started after what they need, stopped before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.channels.supervisor import Supervisor, uncontested
from nanobot_core.contracts.service import Service
from nanobot_core.plugins.loader import make_object
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.service import RunStatus
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.plugins.manifest import Declaration
    from nanobot_core.tasks import Spawn


@dataclass(frozen=True, slots=True)
class _Running:
    """A service that runs.

    Attributes:
        needs: names of services that it needs.
        up: set while it works.
    """

    supervisor: Supervisor
    needs: Sequence[str]
    up: asyncio.Event = field(default_factory=asyncio.Event)


class ServiceRunner:
    """Starts, restarts and stops services.

    Args:
        host: has the services that plugins contribute.
        spawn: starts tasks that the application owns.
        clock: source of time.
        on_failed: called once when a service has failed too often.
    """

    def __init__(
        self,
        host: PluginHost,
        *,
        spawn: Spawn,
        clock: Clock,
        on_failed: Callable[[RunStatus], Awaitable[None]],
    ) -> None:
        self._host = host
        self._spawn = spawn
        self._clock = clock
        self._on_failed = on_failed
        self._running: dict[str, _Running] = {}
        """By name, in the order in which they were started."""

    def start_missing(self) -> None:
        """Start every service that is not running, after those that it needs."""
        declared = uncontested("service", self._host.declared("services"))
        needs = {name: _needs(found) for name, (_, found) in declared.items()}
        for name in _in_order(needs):
            if name not in self._running:
                self._running[name] = self._supervised(*declared[name])
                self._running[name].supervisor.start()

    async def stop(self, plugins: Collection[str] | None = None) -> None:
        """Stop the services of these plugins and those that need them, or all.

        The service that was started last is stopped first.
        """
        leaving: list[tuple[str, Supervisor]] = []
        needed: set[str] = set()
        for name, running in self._running.items():
            of_plugin = plugins is None or running.supervisor.plugin in plugins
            if of_plugin or needed.intersection(running.needs):
                leaving.append((name, running.supervisor))
                needed.add(name)
        for name, supervisor in reversed(leaving):
            await supervisor.stop()
            del self._running[name]

    def statuses(self) -> list[RunStatus]:
        """Return the state of every service, by name."""
        return [running.supervisor.status for _, running in sorted(self._running.items())]

    def _supervised(self, plugin: str, service: Declaration) -> _Running:
        async def attempt() -> None:
            for need in running.needs:
                await self._running[need].up.wait()
            context = await self._host.context_for(plugin)
            factory = str(service.detail["factory"])
            made = await make_object(plugin, factory, Service, context)  # type: ignore[type-abstract]  # used for isinstance only
            running.up.set()
            supervisor.alive()
            try:
                await made.run()
            finally:
                running.up.clear()

        supervisor = Supervisor(
            service.name,
            "service",
            plugin,
            attempt,
            spawn=self._spawn,
            clock=self._clock,
            on_failed=self._on_failed,
        )
        running = _Running(supervisor, _needs(service))
        return running


def _needs(service: Declaration) -> Sequence[str]:
    return service.detail.get("needs") or ()


def _in_order(services: Mapping[str, Sequence[str]]) -> list[str]:
    """Return names, needed ones first, without services that cannot start, which are logged.

    Args:
        services: name of each service to those that it needs.
    """
    startable = dict(services)
    while lacking := {
        name: absent
        for name, needs in startable.items()
        if (absent := [need for need in needs if need not in startable])
    }:
        for name, absent in lacking.items():
            logger.error(
                "service {} does not start: it needs {}, which is missing", name, ", ".join(absent)
            )
            del startable[name]
    try:
        return list(
            TopologicalSorter(
                {name: sorted(needs) for name, needs in startable.items()}
            ).static_order()
        )
    except CycleError as error:
        cycle = list(dict.fromkeys(error.args[1]))
        logger.error("services do not start, because they need each other: {}", ", ".join(cycle))
        return _in_order({name: needs for name, needs in startable.items() if name not in cycle})
