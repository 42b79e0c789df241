"""One plugin's implementation of one hook, and how a single call of it is contained."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from nanobot_core.clock import Clock, SystemClock
from nanobot_core.errors import HookError
from nanobot_core.hooks.account import Account, Circuit
from nanobot_core.hooks.markers import ImplementationOptions
from nanobot_core.tasks import Spawn

CANCEL_GRACE_S = 1.0
"""Seconds that a call has to end after it was cancelled."""
NAMED_AFTER_S = 4.0
"""Seconds after which a call that may take longer is named: a person may be waiting for it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Implementation:
    """A plugin's implementation of a hook. Compare by identity, not by name or plugin.

    Attributes:
        plugin: id of the plugin, or ``run`` for hooks of a single run.
        version: version of the plugin.
        hook: name of the hook.
        function: called with the declared arguments in order.
        options: options of the implementation.
        wish: -1 to come before the others (``tryfirst``), 1 to come after them, else 0.
        limit_s: seconds one call may take, or ``None`` where a person is waited for.
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
        spawn: task owner of calls that are waited for.
        report: called with each failure; the exception is chained to the error.
        clock: source of time for limits that are waited for.
    """

    spawn: Spawn
    report: Callable[[HookError], None]
    clock: Clock = field(default_factory=SystemClock)


def _nothing_passes(_error: BaseException) -> bool:
    return False


def _as_it_is(result: Any) -> Any:
    return result


class Interlude:
    """A part of a call that is not the plugin's work, and whose time does not count.

    Attributes:
        begun: done when it begins.
        ended: done when it is over.
        is_closed: it may not begin any more.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.is_closed: bool = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call came to: its result, or what it raised."""

    result: Any = None
    error: BaseException | None = None


class _Overran(TimeoutError):
    """A call took longer than it may."""


async def invoke(
    implementation: Implementation,
    runtime: HookRuntime,
    *args: Any,
    passes: Callable[[BaseException], bool] = _nothing_passes,
    check: Callable[[Any], Any] = _as_it_is,
    interlude: Interlude | None = None,
) -> Any:
    """Call one implementation; count, time and contain it.

    What it awaits runs in a task of its own, the only form that survives a plugin which ignores
    its cancellation, and what blocks in a thread of its own. Either is left behind when it does
    not end in time, and counts until it does.

    Args:
        implementation: what to call.
        runtime: what calling needs of the application.
        args: the declared arguments in order.
        passes: whether an exception is no failure of the plugin and goes on as it is.
        check: returns the result as the caller wants it, or raises when it is nothing the hook
            may return; that is a failure like any other and counts for the circuit.
        interlude: a part of the call that does not count for its limit.

    Raises:
        HookError: it failed, overran its time, or its circuit is open. Chained to the cause.

    Cancellation:
        The host's own cancellation is passed to the plugin, which has `CANCEL_GRACE_S` to end,
        and on. A `CancelledError` that the plugin raises by itself is a failure like any other,
        and so are ``SystemExit`` and ``KeyboardInterrupt``: under asyncio.run a real Ctrl-C
        arrives as cancellation.
    """
    if not implementation.circuit.admits():
        implementation.account.skipped += 1
        raise failure(implementation, "left out after repeated failures")
    token = current_call.set(implementation)
    started = time.perf_counter()
    try:
        if implementation.options.blocking:
            call = _in_thread(implementation, args)
            result = await _Call(implementation, runtime, call, interlude).result()
        else:
            result = implementation.function(*args)
            if hasattr(type(result), "__await__"):
                name = f"{implementation.hook}:{implementation.plugin}"
                call = runtime.spawn(_contained(implementation, result), name=name)
                result = await _Call(implementation, runtime, call, interlude).result()
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
        raise count_failure(implementation, error) from error
    finally:
        implementation.account.add(time.perf_counter() - started)
        current_call.reset(token)
    implementation.circuit.succeeded()
    return result


class _Call:
    """A call in a task or a thread of its own, waited for in bounded time."""

    def __init__(
        self,
        implementation: Implementation,
        runtime: HookRuntime,
        call: asyncio.Future[_Outcome],
        interlude: Interlude | None,
    ) -> None:
        self._implementation = implementation
        self._runtime = runtime
        self._call = call
        self._interlude = interlude

    async def result(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        try:
            is_in_time = await self._is_in_time()
        except asyncio.CancelledError:
            if not await self._is_ended() and self._can_be_blamed():
                error = _Overran("does not end when it is cancelled")
                self._runtime.report(count_failure(self._implementation, error))
            raise
        if not is_in_time:
            is_ended = await self._is_ended()
            reason = f"no answer within {self._implementation.limit_s:g} seconds"
            raise _Overran(reason if is_ended else f"{reason}, and it does not end")
        if self._call.cancelled():
            raise asyncio.CancelledError
        outcome = self._call.result()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    async def _is_in_time(self) -> bool:
        if (interlude := self._interlude) is not None:
            if not await self._limited(self._call, interlude.begun):
                return False
            # What runs now has limits of its own.
            ends: list[asyncio.Future[Any]] = [self._call, interlude.ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return await self._limited(self._call)

    async def _limited(self, *ends: asyncio.Future[Any]) -> bool:
        """Wait for one of `ends`; name the plugin meanwhile where that may take long."""
        limit_s = self._implementation.limit_s
        if limit_s is None or limit_s <= NAMED_AFTER_S:
            return await self._wait(limit_s, *ends)
        if await self._wait(NAMED_AFTER_S, *ends):
            return True
        reason = f"no answer for {NAMED_AFTER_S:g} seconds, it may take {limit_s:g}"
        self._runtime.report(failure(self._implementation, reason))
        return await self._wait(limit_s - NAMED_AFTER_S, *ends)

    async def _wait(self, limit_s: float | None, *ends: asyncio.Future[Any]) -> bool:
        """Whether one of `ends` is done within `limit_s` seconds of the application's clock."""
        clock = self._runtime.clock
        waited: list[asyncio.Future[Any]] = [*ends]
        if is_other_clock := limit_s is not None and not isinstance(clock, SystemClock):
            waited.append(self._runtime.spawn(clock.sleep(limit_s or 0), name="limit of a hook"))
        try:
            await asyncio.wait(
                waited,
                timeout=None if is_other_clock else limit_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for timer in waited[len(ends) :]:
                timer.cancel()
        return any(end.done() for end in ends)

    async def _is_ended(self) -> bool:
        """Cancel the call, wait a moment for its end, and say whether it has ended."""
        if self._interlude is not None:
            self._interlude.is_closed = True
        if isinstance(self._call, asyncio.Task):  # a thread cannot be cancelled
            self._call.cancel()
        try:
            return await self._wait(CANCEL_GRACE_S, self._call)
        finally:
            if not self._call.done():
                self._leave_behind()

    def _leave_behind(self) -> None:
        self._implementation.circuit.leave_behind(self._call)
        if isinstance(self._call, asyncio.Task):
            # asyncio.run waits at its end for all tasks that it knows, and this one may never end.
            asyncio.tasks._unregister_task(self._call)  # noqa: SLF001 - documented for extensions

    def _can_be_blamed(self) -> bool:
        """Whether it is the plugin's code that ignores a cancellation."""
        inner = self._interlude
        is_inside = inner is not None and inner.begun.done() and not inner.ended.done()
        return isinstance(self._call, asyncio.Task) and not is_inside


async def _contained(implementation: Implementation, work: Awaitable[Any]) -> _Outcome:
    """Return what `work` comes to: what ends a program must not reach the event loop."""
    try:
        return _Outcome(await work)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point
        return _Outcome(error=error)


def _in_thread(implementation: Implementation, args: tuple[Any, ...]) -> asyncio.Future[_Outcome]:
    """Call a blocking function in a thread that does not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_Outcome] = loop.create_future()

    def work() -> None:
        try:
            outcome = _Outcome(implementation.function(*args))
        except BaseException as error:  # noqa: BLE001 - isolation point, raised by the caller
            outcome = _Outcome(error=error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set_result, outcome)

    name = f"{implementation.hook}:{implementation.plugin}"
    threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return ended


def called_in(frame: FrameType) -> Implementation | None:
    """Return the implementation whose call `frame` is; ``None`` for any other frame."""
    if frame.f_code not in {invoke.__code__, _contained.__code__}:
        return None
    found = frame.f_locals.get("implementation")
    return found if isinstance(found, Implementation) else None


def count_failure(implementation: Implementation, error: BaseException) -> HookError:
    """Book a failed call and return the error that names the plugin."""
    if isinstance(error, _Overran):
        implementation.account.timeouts += 1
        reason = str(error)
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
