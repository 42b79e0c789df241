"""Plugins as plain objects, compiled into real hooks whose tasks the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from nanobot_core.errors import HookError
from nanobot_core.events import TurnInfo
from nanobot_core.hooks.caller import Hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime
from tests.registrants import check_registrant

T = TypeVar("T")
TURN = TurnInfo(
    id="t1", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me", source="cli"
)


@dataclass
class Bench:
    """Compiles plugins and keeps what they reported; time is a number that the test moves."""

    reported: list[HookError] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    now_s: float = 0.0
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ledger = HookStats(lambda: self.now_s, self.opened.append)
        self.runtime = HookRuntime(spawn=self.spawn, report=self.reported.append)

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        return task

    def hooks(self, *plugins: object, **options: Any) -> Hooks:
        """Compile `plugins`, called p0, p1, … in this order."""
        registrants = [Registrant(f"p{n}", "1.0", plugin) for n, plugin in enumerate(plugins)]
        for registrant in registrants:
            check_registrant(registrant)
        return build_hooks(registrants, self.runtime, self.ledger, **options)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    for task in made.tasks:
        task.cancel()
    if made.tasks:
        await asyncio.wait(made.tasks, timeout=5)


@pytest.fixture
def turn() -> TurnInfo:
    return TURN


Faulty = Callable[[], None]
