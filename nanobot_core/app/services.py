"""Services of plugins: started after what they need, stopped before it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.channels.supervisor import Supervisor
from nanobot_core.contracts.service import Service
from nanobot_core.plugins.loader import make_object
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.service import RunStatus
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.tasks import Spawn


@dataclass(frozen=True, slots=True)
class _Declared:
    """A service as its manifest declares it."""

    name: str
    plugin: str
    factory: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Running:
    """A service that runs.

    Attributes:
        needs: names of services that it needs.
        up: set while it works.
    """

    supervisor: Supervisor
    needs: tuple[str, ...]
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
        """In the order in which they were started."""

    def start_missing(self) -> None:
        """Start every service that does not run, after those that it needs."""
        declared = self._declared()
        for name in _in_order(declared):
            if name not in self._running:
                self._running[name] = self._supervised(declared[name])
                self._running[name].supervisor.start()

    async def stop(self, plugins: Collection[str] | None = None) -> None:
        """Stop the services of these plugins with those that need them, or all.

        The last started is stopped first.
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

    def _declared(self) -> dict[str, _Declared]:
        found = list(self._host.declared("services"))
        claims = Counter(declaration.name for _, declaration in found)
        for name in sorted(name for name, count in claims.items() if count > 1):
            logger.error("several plugins provide service '{}'; disable all but one", name)
        return {
            declaration.name: _Declared(
                declaration.name,
                plugin,
                str(declaration.detail["factory"]),
                tuple(declaration.detail.get("needs") or ()),
            )
            for plugin, declaration in found
            if claims[declaration.name] == 1
        }

    def _supervised(self, service: _Declared) -> _Running:
        async def attempt() -> None:
            for need in service.needs:
                await self._running[need].up.wait()
            made = await self._make(service)
            running.up.set()
            supervisor.alive()
            try:
                await made.run()
            finally:
                running.up.clear()

        supervisor = Supervisor(
            service.name,
            "service",
            service.plugin,
            attempt,
            spawn=self._spawn,
            clock=self._clock,
            on_failed=self._on_failed,
        )
        running = _Running(supervisor, service.needs)
        return running

    async def _make(self, service: _Declared) -> Service:
        context = await self._host.context_for(service.plugin)
        return await make_object(service.plugin, service.factory, Service, context)  # type: ignore[type-abstract]  # only isinstance is asked of it


def _in_order(declared: Mapping[str, _Declared]) -> list[str]:
    """Return names, needed ones first; services that need each other are logged and left out."""
    startable = dict(declared)
    while True:
        for service in list(startable.values()):
            if absent := [need for need in service.needs if need not in startable]:
                logger.bind(plugin=service.plugin).error(
                    "service {} does not start: it needs {}, which is missing",
                    service.name,
                    ", ".join(absent),
                )
                del startable[service.name]
                break
        else:
            break
    try:
        return list(
            TopologicalSorter(
                {name: sorted(item.needs) for name, item in startable.items()}
            ).static_order()
        )
    except CycleError as error:
        circle = list(dict.fromkeys(error.args[1]))
        logger.error("services do not start, because they need each other: {}", ", ".join(circle))
        return _in_order({name: item for name, item in startable.items() if name not in circle})
