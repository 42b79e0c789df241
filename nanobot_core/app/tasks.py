"""TaskOwner: every task has an owner that awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
ENDING_S = 5.0
"""Seconds that tasks have to end after they are cancelled."""


class TaskOwner:
    """Starts tasks and sees to it that none outlives the application.

    Unlike a task group it lets the others go on when one fails: who waits for a task gets its
    exception, and one that nobody waits for is logged.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start `work` and return its task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> list[str]:
        """Cancel what still runs and wait for it; return the names of tasks that do not end."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return []
        _, stuck = await asyncio.wait(tasks, timeout=ENDING_S)
        return sorted(task.get_name() for task in stuck)
