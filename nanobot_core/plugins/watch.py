"""Names the plugin whose synchronous code blocks the event loop, while it blocks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, ModuleType

from nanobot_core.hooks.generation import Registrant
from nanobot_core.hooks.implementation import called_in

LOOK_S = 0.1
BLOCKED_AFTER_S = 0.25
LONG_AFTER_S = 1.0
"""Seconds from which a block counts as a failure of the plugin."""
_RUN_ONCE = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]  # noqa: SLF001
"""One turn of asyncio's own loop; another loop is asked for an answer at each look."""


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """A stretch in which the loop did not turn.

    Attributes:
        plugin: id of the plugin whose code was running, or an empty string.
        place: ``file:line`` of the innermost frame of that plugin, else of the loop's thread.
        blocked_s: seconds so far.
        hook: the hook that was being called, or an empty string: a tool, a task, a handler.
    """

    plugin: str
    place: str
    blocked_s: float
    hook: str = ""

    @property
    def is_long(self) -> bool:
        """Whether it counts as a failure."""
        return self.blocked_s >= LONG_AFTER_S

    @property
    def reason(self) -> str:
        """What happened, in one sentence."""
        return f"it blocks the event loop for {self.blocked_s:.1f} s or more at {self.place}"

    @property
    def remedy(self) -> str:
        """What its author should do."""
        return "await it, run it in a thread, or mark the hook blocking=True"


def code_place(registrant: Registrant) -> str | None:
    """Return the folder of a plugin's package, else its file, else ``None``.

    Of what the core registers it is the file: the rest of the core is not its doing.
    """
    namespace = registrant.namespace
    name = namespace.__name__ if isinstance(namespace, ModuleType) else type(namespace).__module__
    package = name.partition(".")[0]
    is_core = package == __name__.partition(".")[0]
    folders = [] if is_core else list(getattr(sys.modules.get(package), "__path__", ()))
    return folders[0] if folders else getattr(sys.modules.get(name), "__file__", None)


class LoopWatch:
    """A thread that looks at the loop, and asks it for an answer while it is at work.

    A loop that waits for something to happen is left in peace.

    Args:
        places: by plugin id, the folder or the file of its code, absolute.
        on_block: called from the thread, once for each stretch, and again when it gets long.
    """

    def __init__(
        self, places: Callable[[], Mapping[str, str]], on_block: Callable[[LoopBlock], None]
    ) -> None:
        self._places = places
        self._on_block = on_block
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._loop_thread = 0

    async def run(self) -> None:
        """Watch until cancelled; the thread ends with it."""
        self._loop_thread = threading.get_ident()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._watch, args=(loop,), name="nanobot-watch", daemon=True
        )
        thread.start()
        try:
            await loop.create_future()  # never done: until cancelled
        finally:
            self._stop.set()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(LOOK_S):
            if self._is_waiting():
                continue
            self._answered.clear()
            with suppress(RuntimeError):  # the loop is closed, and this about to be stopped
                loop.call_soon_threadsafe(self._answered.set)
                self._await_answer(time.monotonic())

    def _await_answer(self, asked_s: float) -> None:
        """Wait for the loop, and tell when it does not turn."""
        for limit_s in (BLOCKED_AFTER_S, LONG_AFTER_S):
            if self._answered.wait(asked_s + limit_s - time.monotonic()):
                return
            self._tell(time.monotonic() - asked_s)
        while not self._answered.wait(LOOK_S) and not self._stop.is_set():
            pass

    def _is_waiting(self) -> bool:
        """Tell whether the loop waits for events itself, and not some code that it called."""
        frame = self._frame()
        if frame is None or frame.f_back is None or frame.f_code.co_name != "select":
            return False
        return frame.f_back.f_code is _RUN_ONCE

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way

    def _tell(self, blocked_s: float) -> None:
        self._on_block(self._locate(self._frame(), blocked_s))

    def _locate(self, frame: FrameType | None, blocked_s: float) -> LoopBlock:
        places = self._places()
        innermost = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
        while frame is not None:
            file = frame.f_code.co_filename
            for plugin, place in places.items():
                if file == place or file.startswith(place + os.sep):
                    at = f"{file}:{frame.f_lineno}"
                    return LoopBlock(plugin, at, blocked_s, _hook_above(frame, plugin))
            frame = frame.f_back
        return LoopBlock("", innermost, blocked_s)


def _hook_above(frame: FrameType | None, plugin: str) -> str:
    """Return the hook of `plugin` whose call `frame` is part of, or an empty string."""
    while frame is not None:
        called = called_in(frame)
        if called is not None and called.plugin == plugin:
            return called.hook
        frame = frame.f_back
    return ""
