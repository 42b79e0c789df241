"""The contract of a plugin's hooks, as a test suite."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanobot_core.contracts.plugin import Applied, Health, NeedsReload, SettingsChange
from nanobot_core.contracts.provider import LLMResponse
from nanobot_core.errors import ConfigError, HookError, PluginRejected
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, compile_plugin
from nanobot_core.hooks.implementation import HookRuntime, Implementation, invoke
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import HookPoint
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.sample import sample_of, type_hints
from nanobot_core.testing.suite import ContextSuite, ends_within

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject

_LIMIT_S = 2.0
"""Seconds that a hook may block the event loop, or delay a turn."""
_BEAT_S = 0.05
_POOLED = ("asyncio_", "AnyIO worker")
"""Begins the names of threads that belong to the event loop."""
_WAITS_FOR_NOBODY = {Kind.CONTRIBUTE, Kind.OWN, Kind.DETACHED}
_OWN_RESULTS: dict[str, tuple[type, ...]] = {
    "check_health": (Health,),
    "settings_changed": (Applied, NeedsReload),
}


class PluginContract(ContextSuite):
    """What the hooks of every plugin must do. Supply `make_plugin`.

    Each test runs the plugin's life: `start`, every hook with a sample event, `stop`.
    """

    @abstractmethod
    def make_plugin(self) -> object:
        """Return what the entry point names: the module, or a new instance of the class."""

    async def test_every_hook_succeeds_in_time_with_a_result_of_its_type(
        self, tmp_path: Path
    ) -> None:
        # Only the second life counts for time: the first one may import what it needs.
        first = await self._live(tmp_path / "1")
        second = await self._live(tmp_path / "2")
        found = [*first.failures, *second.failures, *second.delays]
        assert not found, "\n".join(dict.fromkeys(found))
        _skip_if(first.unset)

    async def test_nothing_is_left_running_after_stop(self, tmp_path: Path) -> None:
        tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
        life = await self._live(tmp_path)
        left = await _leftovers(tasks, threads)
        assert not left, "\n".join(left)
        _skip_if(life.unset)

    async def _live(self, tmp_path: Path) -> _Life:
        registrant = Registrant(self.plugin_id, "0", self.make_plugin())
        life = _Life(compile_plugin(registrant, HookStats(now_s=time.monotonic)))
        try:
            async with self.make_context(tmp_path) as context:
                await life.run(context)
        except Exception as error:  # noqa: BLE001 - what spawned work raises is a finding
            life.failures.append(f"work given to ctx.spawn or ctx.on_dispose failed: {error!r}")
        return life


class _Life:
    """One start, one call of each hook, and one stop.

    Attributes:
        failures: what is wrong with the results of hooks.
        delays: hooks that take too long.
        unset: the settings that a hook needs, or an empty string.
    """

    def __init__(self, hooks: Mapping[str, Iterable[Implementation]]) -> None:
        self.failures: list[str] = []
        self.delays: list[str] = []
        self.unset: str = ""
        self._hooks = hooks
        self._runtime = HookRuntime(spawn=_spawn, report=lambda _error: None)

    async def run(self, context: FakePluginContext) -> None:
        """Call the hooks; one that cannot start with these settings ends the life."""
        working = [name for name in self._hooks if _kind(name) is not Kind.OWN]
        await self._call("start", context)
        if self.unset:
            return
        for name in (*working, "check_health"):
            await self._call(name, context)
        for section in await self._call("contribute_settings", context) or ():
            values: JsonObject = _default_values(section.model)
            change = SettingsChange(path=section.path, before={}, after=values)
            await self._call("settings_changed", context, change)
        await self._call("stop", context, "shutdown")

    async def _call(self, name: str, *own: object) -> Any:  # noqa: ANN401 - any hook's result
        result = None
        for implementation in self._hooks.get(name, ()):
            point = declared_hooks().get(name)
            if point is None or point.limit_s is None:
                continue  # a hook of another plugin, or one that waits for a person
            started = time.monotonic()
            arguments = _arguments(point, own)
            work = _spawn(self._invoke(point, implementation, arguments), name=name)
            blocked_s = await _longest_block(work)
            elapsed_s = time.monotonic() - started
            result = work.result()
            if blocked_s > _LIMIT_S:
                self.delays.append(
                    f"hook '{name}' blocks the event loop for {blocked_s:.1f} s, and every chat "
                    "with it; await instead, or mark it blocking=True"
                )
            elif point.kind not in _WAITS_FOR_NOBODY and elapsed_s > _LIMIT_S:
                self.delays.append(
                    f"hook '{name}' takes {elapsed_s:.1f} s, and every turn waits for it; hand "
                    "the work to ctx.spawn, or use a detached hook"
                )
        return result

    async def _invoke(
        self, point: HookPoint[..., Any], implementation: Implementation, arguments: list[Any]
    ) -> Any:  # noqa: ANN401 - any hook's result
        try:
            return await invoke(
                implementation,
                self._runtime,
                *arguments,
                check=lambda found: _checked(point, found),
            )
        except HookError as error:
            if isinstance(error.__cause__, ConfigError | PluginRejected):
                self.unset = error.reason
            else:
                self.failures.append(f"hook '{point.name}' failed: {error.reason}")
            return None


def _skip_if(unset: str) -> None:
    if unset:
        pytest.skip(f"it needs settings: {unset}")


def _kind(name: str) -> Kind:
    point = declared_hooks().get(name)
    return point.kind if point else Kind.CONTRIBUTE


def _spawn(work: Any, *, name: str) -> asyncio.Task[Any]:  # noqa: ANN401 - any result
    return asyncio.get_running_loop().create_task(work, name=name)


def _arguments(point: HookPoint[..., Any], own: tuple[object, ...]) -> list[Any]:
    names = list(inspect.signature(point.declaration).parameters)
    if point.kind in {Kind.CONTRIBUTE, Kind.OWN}:
        return list(own[: len(names)])
    event = sample_of(type_hints(point.declaration)["event"])
    return [event, _answer][: len(names)]


async def _answer(_request: object) -> LLMResponse:
    """Answer `wrap_model_call` instead of a model."""
    return LLMResponse(content="sample")


def _checked(point: HookPoint[..., Any], found: Any) -> Any:  # noqa: ANN401 - any hook's result
    """Return `found`, as a list if it is an iterator; raise if its type is wrong."""
    if point.kind is Kind.CONTRIBUTE:
        return list(found) if isinstance(found, Iterable) else found
    wanted = point.result or _OWN_RESULTS.get(point.name, ())
    is_several = point.kind is Kind.GATHER and isinstance(found, Iterable)
    for item in found if is_several else (found,):
        if item is not None and not isinstance(item, wanted):
            names = " or ".join((*(kind.__name__ for kind in wanted), "None"))
            msg = f"it returns {type(item).__name__}, expected {names}"
            raise TypeError(msg)
    return found


def _default_values(dotted: str) -> JsonObject:
    from nanobot_core.plugins.examine import settings_model

    values: JsonObject = settings_model("example", dotted)().model_dump(mode="json")
    return values


async def _longest_block(work: asyncio.Task[Any]) -> float:
    """Wait for `work`; return the longest time in seconds that the event loop did not run."""
    longest_s = 0.0
    while not work.done():
        before = time.monotonic()
        await asyncio.wait({work}, timeout=_BEAT_S)
        longest_s = max(longest_s, time.monotonic() - before - _BEAT_S)
    return longest_s


async def _leftovers(tasks: set[asyncio.Task[Any]], threads: set[threading.Thread]) -> list[str]:
    """Name what runs besides `tasks` and `threads`, once it had a moment to end."""
    left = [
        f"task {task.get_name()} ({task.get_coro()}) still runs after stop; start it with "
        "ctx.spawn, or cancel it in stop and wait for it"
        for task in asyncio.all_tasks() - tasks
        if not await ends_within(task, _LIMIT_S)
    ]
    for thread in set(threading.enumerate()) - threads:
        if not thread.name.startswith(_POOLED):
            thread.join(_LIMIT_S)
            if thread.is_alive():
                left.append(
                    f"thread {thread.name} still runs after stop; end and join it in stop or with "
                    "ctx.on_dispose"
                )
    return left
