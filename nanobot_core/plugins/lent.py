"""What the host lent to one plugin and takes back when it goes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from nanobot_core.errors import HookError
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.tasks import TASKS_END_S


class Lent:
    """The tasks and closers of one plugin.

    Args:
        plugin_id: whose they are.
        runtime: starts tasks and is told of failures.
    """

    def __init__(self, plugin_id: str, runtime: HookRuntime) -> None:
        self._plugin_id = plugin_id
        self._runtime = runtime
        self._closers: list[Callable[[], Awaitable[None] | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` until it ends or is taken back; a failure is reported."""
        task = self._runtime.spawn(self._contained(work, name), name=f"{self._plugin_id}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` at the end, in reverse order of registration."""
        self._closers.append(close)

    async def take_back(self) -> None:
        """Cancel the tasks, then call the closers, newest first; what fails is reported."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=TASKS_END_S)
            for task in stuck:
                self._report(task.get_name(), TimeoutError("does not end when it is cancelled"))
        while self._closers:
            close = self._closers.pop()
            try:
                async with asyncio.timeout(TASKS_END_S):
                    result = close()
                    if inspect.isawaitable(result):
                        await result
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point
                self._report("on_dispose", error)

    async def _contained(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point
            self._report(name, error)

    def _report(self, place: str, error: BaseException) -> None:
        problem = HookError(place, self._plugin_id, f"{type(error).__name__}: {error}")
        problem.__cause__ = error
        self._runtime.report(problem)
