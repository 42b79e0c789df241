"""Replays a recording of hook calls against a plugin."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nanobot_core.contracts.provider import ChatRequest, LLMResponse
from nanobot_core.errors import HookError
from nanobot_core.hooks.caller import CALLERS, Detached, declared_hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime, Implementation, invoke
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import HookPoint, point_of
from nanobot_core.messages import JsonValue
from nanobot_core.record import dataclass
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.recording import (
    RecordedCall,
    ValueReader,
    plain_data,
    read_recording,
)
from nanobot_core.testing.sample import type_hints

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import BaseModel

    from nanobot_core.hooks.caller import Hooks

T = TypeVar("T")
_CANCEL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """A recorded call that was made again, with the plugin under test alone.

    Attributes:
        number: that of the recorded call.
        hook: name of the hook.
        event: what the plugin got.
        answer: what the call returned now, as an object: see `HookCalled.answer`.
        recorded: what it returned in the recording, as plain data.
        failure: what the plugin raised, or that it took too long; empty if it succeeded.
        is_shortened: part of the call was not recorded, so that the answers cannot be compared.
    """

    number: int
    hook: str
    event: object
    answer: Any
    recorded: JsonValue
    failure: str = ""
    is_shortened: bool = False

    @property
    def differs(self) -> bool:
        """Whether the call failed now, or returned something else than in the recording."""
        is_other = not self.is_shortened and plain_data(self.answer) != self.recorded
        return bool(self.failure) or is_other

    def __str__(self) -> str:
        if self.failure:
            return f"call {self.number} of '{self.hook}' failed: {self.failure}"
        now = plain_data(self.answer)
        return f"call {self.number} of '{self.hook}' returned {now}, recorded: {self.recorded}"


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay.

    Attributes:
        calls: the calls of the hooks that the plugin implements, in the order of the recording.
        problems: what could not be read or called, in words; see `read_recording`.
    """

    calls: tuple[ReplayedCall, ...]
    problems: tuple[str, ...]

    @property
    def differences(self) -> tuple[str, ...]:
        """The calls that failed, or returned something else than in the recording, in words."""
        return tuple(str(call) for call in self.calls if call.differs)

    def answers(self, hook: str) -> list[Any]:
        """Return what the calls of one hook returned, in order."""
        return [call.answer for call in self.calls if call.hook == hook]


class Replayer:
    """Replays recordings; what the fixture ``nanobot_replay`` gives.

    Args:
        folder: for the data of the plugin.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(
        self,
        file: Path | str,
        plugin: object,
        *,
        plugin_id: str = "example",
        settings: BaseModel | Mapping[str, JsonValue] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Replay:
        """Start a plugin, make the recorded calls one after the other, and stop it.

        The calls have the order, the time limits and the isolation of a real run; hooks that are
        called later in a real run are waited for. A model call that the plugin wraps returns the
        recorded response.

        Args:
            file: the recording.
            plugin: a module, or an instance of the class, that the entry point names.
            plugin_id: the plugin's id; of what several plugins gathered in the recording, its
                items are compared.
            settings: its section.
            environment: the environment variables that are set.

        Raises:
            RecordingUnusable: the file is no recording, or one of an older format.
            OSError: the file cannot be read.
            PluginRejected: the plugin's hooks do not fit their declarations.
            HookError: its ``start`` or ``stop`` failed.
        """
        recording = await asyncio.to_thread(read_recording, Path(file))
        context = FakePluginContext(
            self._folder, plugin_id=plugin_id, settings=settings, environment=environment
        )
        problems = list(recording.problems)
        async with context, _Stage.open(plugin, plugin_id, context) as stage:
            calls = [await stage.repeat(call, problems) for call in recording.calls]
        return Replay(tuple(call for call in calls if call is not None), tuple(problems))


class _Stage:
    """A started plugin, and what calls its hooks."""

    def __init__(self, registrant: Registrant, spawn: Callable[..., asyncio.Task[Any]]) -> None:
        self._plugin_id = registrant.id
        self._failures: list[HookError] = []
        self.runtime: HookRuntime = HookRuntime(spawn=spawn, report=self._failures.append)
        self.hooks: Hooks = build_hooks([registrant], self.runtime, HookStats(time.monotonic))

    @classmethod
    @asynccontextmanager
    async def open(
        cls, plugin: object, plugin_id: str, context: FakePluginContext
    ) -> AsyncIterator[_Stage]:
        tasks: set[asyncio.Task[Any]] = set()
        stage = cls(Registrant(plugin_id, context.version, plugin), partial(_spawn, tasks))
        await stage._own("start", context)
        try:
            yield stage
        finally:
            await stage._own("stop", context, "shutdown")
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_CANCEL_S)

    async def repeat(self, call: RecordedCall, problems: list[str]) -> ReplayedCall | None:
        """Make a call again; ``None`` if the plugin does not implement the hook."""
        implementations = self.hooks.implementations.get(call.hook, ())
        if not implementations:
            return None
        place = f"call {call.number} of '{call.hook}'"
        reader = ValueReader()
        try:
            point = _point(call.hook, implementations[0])
            event = reader.read(_event_type(point), call.event, "event")
            make = self._call_of(point, call, reader)
        except ValueError as error:
            problems.append(f"{place} cannot be made: {error}")
            return None
        problems += [f"{place}: {problem}" for problem in reader.problems]
        self._failures.clear()
        answer = None
        try:
            answer = await make(event)
        except Exception as error:  # noqa: BLE001 - a finding about the plugin
            failure = f"{type(error).__name__}: {error}"
        else:
            failure = "; ".join(str(error) for error in self._failures)
        return ReplayedCall(
            number=call.number,
            hook=call.hook,
            event=event,
            answer=answer,
            recorded=self._own_items(call.answer) if point.kind is Kind.GATHER else call.answer,
            failure=failure,
            is_shortened=call.is_shortened,
        )

    def _call_of(
        self, point: HookPoint[..., Any], call: RecordedCall, reader: ValueReader
    ) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        """Return what calls a hook as a real run does."""
        caller: Any = getattr(self.hooks, point.name, None)
        if caller is None:  # a hook that another plugin declares
            found = self.hooks.implementations[point.name]
            return CALLERS[point.kind](point, found, self.runtime).__call__
        if point.kind is Kind.DETACHED:
            return partial(_settled, caller)
        if point.kind is not Kind.WRAP:
            whole: Callable[[Any], Coroutine[Any, Any, Any]] = caller
            return whole
        response = reader.read(LLMResponse, call.answer, "answer")

        async def inner(_request: ChatRequest) -> LLMResponse:
            return response

        return lambda event: caller(event, inner)

    def _own_items(self, answer: JsonValue) -> JsonValue:
        """Return those of the gathered pairs of plugin and item that are the plugin's."""
        pairs = answer if isinstance(answer, list) else []
        return [pair for pair in pairs if isinstance(pair, list) and pair[:1] == [self._plugin_id]]

    async def _own(self, name: str, *arguments: object) -> None:
        for implementation in self.hooks.implementations.get(name, ()):
            await invoke(implementation, self.runtime, *arguments)


async def _settled(caller: Detached[Any], event: object) -> None:
    caller(event)
    await caller.settle()


def _spawn(
    tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T], *, name: str
) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _point(hook: str, implementation: Implementation) -> HookPoint[..., Any]:
    point = declared_hooks().get(hook) or point_of(implementation.function)
    if point is None or point.kind in {Kind.CONTRIBUTE, Kind.OWN}:
        msg = f"'{hook}' is not a hook that can be replayed"
        raise ValueError(msg)
    return point


def _event_type(point: HookPoint[..., Any]) -> type[Any]:
    first = next(iter(inspect.signature(point.declaration).parameters))
    try:
        found: type[Any] = type_hints(point.declaration)[first]
    except (KeyError, NameError) as error:
        msg = f"the type of its event is unknown: {error}"
        raise ValueError(msg) from error
    return found
