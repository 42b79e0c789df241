"""One plugin's implementation of one hook, and how a single call of it is contained."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from nanobot_core.clock import Clock, SystemClock
from nanobot_core.errors import HookError
from nanobot_core.hooks.account import Account, Circuit
from nanobot_core.hooks.markers import ImplementationOptions

T = TypeVar("T")
CANCEL_GRACE_S = 1.0
"""Seconds beyond its limit that a call in a task of its own has to end."""


class Spawn(Protocol):
    """Starts a task that the application owns and awaits."""

    def __call__(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Return the running task."""


@dataclass(slots=True, eq=False, kw_only=True)
class Implementation:
    """A function that a plugin hung on a hook. Identity counts, never name or plugin.

    Attributes:
        plugin: id of the plugin, or ``run`` for hooks of a single run.
        version: version of the plugin.
        hook: name of the hook.
        function: called with the declared arguments in order.
        options: what the author said of it.
        wish: -1 to come before the others (``tryfirst``), 1 to come after them, else 0.
        limit_s: seconds one call may take, or ``None``.
        account: running totals, shared by all generations.
        circuit: whether calls go through, shared by all generations.
    """

    plugin: str
    hook: str
    function: Callable[..., Any]
    circuit: Circuit
    version: str = ""
    options: ImplementationOptions = field(default_factory=ImplementationOptions)
    wish: int = 0
    limit_s: float | None = None
    account: Account = field(default_factory=Account)


current_call: ContextVar[Implementation | None] = ContextVar("nanobot_current_call", default=None)
"""The implementation being called, for logs and for clients that a plugin uses."""


@dataclass(slots=True, kw_only=True)
class HookRuntime:
    """What calling needs of the application.

    Attributes:
        spawn: task owner for gates and detached hooks.
        report: told of each failure, with the exception chained to the error.
        clock: source of time for limits that are waited for.
    """

    spawn: Spawn
    report: Callable[[HookError], None]
    clock: Clock = field(default_factory=SystemClock)


def _nothing_passes(_error: BaseException) -> bool:
    return False


def _as_it_is(result: Any) -> Any:
    return result


async def invoke(
    implementation: Implementation,
    *args: Any,
    passes: Callable[[BaseException], bool] = _nothing_passes,
    check: Callable[[Any], Any] = _as_it_is,
) -> Any:
    """Call one implementation; count, time and contain it.

    Args:
        implementation: what to call.
        args: the declared arguments in order.
        passes: whether an exception is no failure of the plugin and goes on as it is.
        check: returns the result as the caller wants it, or raises when it is nothing the hook
            may return; that is a failure like any other and counts for the circuit.

    Raises:
        HookError: it failed, overran its time, or its circuit is open. Chained to the cause.

    Cancellation:
        The host's own cancellation is passed to the plugin and on. A `CancelledError` that the
        plugin raises by itself is a failure like any other, and so are ``SystemExit`` and
        ``KeyboardInterrupt``: under asyncio.run a real Ctrl-C arrives as cancellation.
    """
    if not implementation.circuit.admits():
        implementation.account.skipped += 1
        raise failure(implementation, "left out after repeated failures")
    token = current_call.set(implementation)
    started = time.perf_counter()
    scope: asyncio.Timeout | None = None
    try:
        if implementation.options.blocking:
            result: Any = asyncio.to_thread(implementation.function, *args)
        else:
            result = implementation.function(*args)
        if hasattr(type(result), "__await__"):
            async with asyncio.timeout(implementation.limit_s) as scope:
                result = await result
        result = check(result)
    except asyncio.CancelledError as error:
        if _host_cancels():
            implementation.circuit.released()
            raise
        raise count_failure(implementation, error) from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # isolation point
        if passes(error):
            implementation.circuit.released()
            raise
        overran = scope is not None and scope.expired()
        raise count_failure(implementation, error, overran=overran) from error
    finally:
        implementation.account.add(time.perf_counter() - started)
        current_call.reset(token)
    implementation.circuit.succeeded()
    return result


async def invoke_apart(
    implementation: Implementation,
    spawn: Spawn,
    *args: Any,
    check: Callable[[Any], Any] = _as_it_is,
) -> Any:
    """Call one implementation as `invoke` does, in a task of its own.

    It is the only form that survives a plugin which ignores its cancellation: the task is left to
    the owner of tasks.

    Raises:
        HookError: as `invoke`, and when it does not end.
    """
    work = invoke(implementation, *args, check=check)
    task = spawn(work, name=f"{implementation.hook}:{implementation.plugin}")
    limit_s = implementation.limit_s
    try:
        done, _ = await asyncio.wait(
            {task}, timeout=None if limit_s is None else limit_s + CANCEL_GRACE_S
        )
    finally:
        task.cancel()
    if not done:
        raise failure(implementation, "does not end when it is cancelled")
    return task.result()


def count_failure(
    implementation: Implementation, error: BaseException, *, overran: bool = False
) -> HookError:
    """Book a failed call and return the error that names the plugin."""
    if overran:
        implementation.account.timeouts += 1
        reason = f"no answer within {implementation.limit_s:g} seconds"
    else:
        implementation.account.errors += 1
        reason = f"{type(error).__name__}: {error}"
    implementation.account.last_error = reason
    implementation.circuit.failed()
    return failure(implementation, reason)


def failure(implementation: Implementation, reason: str) -> HookError:
    """Return the error of `implementation`."""
    return HookError(implementation.hook, implementation.plugin, reason)


def _host_cancels() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
