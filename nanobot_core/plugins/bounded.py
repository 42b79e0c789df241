"""Foreign code that may never return, called in a thread that can be left behind."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from nanobot_core.errors import PluginLoadFailed

T = TypeVar("T")


def call_within(limit_s: float, plugin_id: str, doing: str, function: Callable[[], T]) -> T:
    """Return what `function` returns. Blocks; call it in a thread from a loop.

    Python cannot end a thread. One that overruns is left behind and does not hold up the end of
    the process, unlike those of the loop's executor.

    Args:
        limit_s: seconds it may take.
        plugin_id: whose code it is.
        doing: what is being done, for the message: ``importing 'nanobot_x.plugin'``.
        function: the plugin's code.

    Raises:
        PluginLoadFailed: it did not end in time, or wanted to end the process or the task.
        Exception: what `function` raised.
    """
    call = _Call(function)
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(call.run,), name=f"plugin:{plugin_id}", daemon=True
    )
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise PluginLoadFailed(
            plugin_id, f"{doing} did not end within {limit_s:g} s", "disable it, then restart"
        )
    if isinstance(call.error, Exception):
        raise call.error
    if call.error is not None:
        error = call.error
        raise PluginLoadFailed(
            plugin_id, f"{doing} raised {type(error).__name__}: {error}", "remove that call"
        ) from error
    return call.results[0]


class _Call(Generic[T]):
    """A call and what came of it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - isolation point, raised by the caller
            self.error = error
