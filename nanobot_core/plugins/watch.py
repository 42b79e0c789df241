"""Names the plugin whose synchronous code blocks the event loop, while it blocks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType

from nanobot_core.hooks.generation import Registrant
from nanobot_core.hooks.implementation import Implementation, invoke

BEAT_S = 0.1
BLOCKED_AFTER_S = 0.25
LONG_AFTER_S = 1.0
"""Seconds from which a block counts as a failure of the plugin."""


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
    """Return the folder of a plugin's package, else its file, else ``None``."""
    namespace = registrant.namespace
    name = namespace.__name__ if isinstance(namespace, ModuleType) else type(namespace).__module__
    top = sys.modules.get(name.partition(".")[0])
    folders = list(getattr(top, "__path__", ()))
    return folders[0] if folders else getattr(sys.modules.get(name), "__file__", None)


class LoopWatch:
    """A thread that looks at a heartbeat of the loop.

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
        self._beat_s = time.monotonic()
        self._loop_thread = 0

    async def run(self) -> None:
        """Beat until cancelled; the watching thread ends with it."""
        self._loop_thread = threading.get_ident()
        self._beat_s = time.monotonic()
        thread = threading.Thread(target=self._watch, name="nanobot-watch", daemon=True)
        thread.start()
        try:
            while True:
                self._beat_s = time.monotonic()
                await asyncio.sleep(BEAT_S)
        finally:
            self._stop.set()

    def _watch(self) -> None:
        told_beat_s = long_beat_s = 0.0
        while not self._stop.wait(BEAT_S):
            beat_s = self._beat_s
            blocked_s = time.monotonic() - beat_s
            if blocked_s >= BLOCKED_AFTER_S + BEAT_S and beat_s != told_beat_s:
                told_beat_s = beat_s
                self._tell(blocked_s)
            elif blocked_s >= LONG_AFTER_S and beat_s != long_beat_s:
                long_beat_s = beat_s
                self._tell(blocked_s)

    def _tell(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way
        self._on_block(self._locate(frame, blocked_s))

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
        if frame.f_code is invoke.__code__:
            called = frame.f_locals.get("implementation")
            if isinstance(called, Implementation) and called.plugin == plugin:
                return called.hook
        frame = frame.f_back
    return ""
