"""Generations: what one turn uses from its first hook to its last, and who still uses which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.tools.registry import ToolRegistry


_current: ContextVar[object | None] = ContextVar("nanobot_lease", default=None)
"""The lease of the work that is being done."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Generation:
    """Hooks and tools that belong together. No plugin that comes, changes or goes changes them.

    Attributes:
        number: counts the changes of the host.
        hooks: the call points.
        tools: a registry of its own, with the tools as they were.
        newest_tools: gives another such registry where one of its plugins, which is the same
            still, has published other tools since; else the same one.
    """

    number: int
    hooks: Hooks
    tools: ToolRegistry
    newest_tools: Callable[[], ToolRegistry]


class Leases:
    """Who still uses which generation.

    Attributes:
        number: that of the present generation.
        is_over: nobody waits any longer, since the host stops.
    """

    def __init__(self) -> None:
        self.number: int = 0
        self._held: dict[object, int] = {}
        self._released = asyncio.Event()
        self.is_over: bool = False

    @contextmanager
    def hold(self) -> Iterator[int]:
        """Use the present generation inside; yield its number."""
        number, lease = self.number, object()
        self._held[lease] = number
        token = _current.set(lease)
        try:
            yield number
        finally:
            _current.reset(token)
            del self._held[lease]
            self._wake()

    @contextmanager
    def nobody(self) -> Iterator[None]:
        """Start tasks inside that belong to none of those who hold a lease."""
        token = _current.set(None)
        try:
            yield
        finally:
            _current.reset(token)

    async def released(self, number: int, limit_s: float) -> bool:
        """Wait until nobody uses generation `number` or an older one.

        Older ones count, because work that began long ago may have asked for a plugin since. The
        work that the caller is part of does not: a command that reloads a plugin would wait for
        itself.

        Returns:
            False when that takes longer than `limit_s` seconds.
        """
        try:
            async with asyncio.timeout(limit_s):
                while not self.is_over and self._is_held(number):
                    await self._released.wait()
        except TimeoutError:
            return False
        return True

    def _is_held(self, number: int) -> bool:
        own = _current.get()
        return any(held <= number for lease, held in self._held.items() if lease is not own)

    def end(self) -> None:
        """Let nobody wait any longer: the host stops."""
        self.is_over = True
        self._wake()

    def begin(self) -> None:
        """Let those who change something wait for others: the host starts."""
        self.is_over = False

    def _wake(self) -> None:
        self._released.set()
        self._released = asyncio.Event()
