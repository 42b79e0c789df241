"""One plugin's implementation of one hook, and a single call of it: counted, timed, contained."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from nanobot_core.clock import Clock, SystemClock
from nanobot_core.errors import FOREIGN_ERRORS, HookError, LimitError
from nanobot_core.hooks.account import Account, Circuit, PluginCosts
from nanobot_core.hooks.markers import ImplementationOptions
from nanobot_core.tasks import Spawn

if TYPE_CHECKING:
    from nanobot_core.contracts.provider import ChatRequest, LLMResponse

ModelCall = Callable[["ChatRequest"], Awaitable["LLMResponse"]]
CANCEL_GRACE_S = 1.0
"""Seconds that a call has to end after it was cancelled."""
NAMED_AFTER_S = 4.0
"""Seconds after which a call that may take longer is reported, because a person may be waiting."""


@dataclass(slots=True, eq=False, kw_only=True)
class Implementation:
    """A plugin's implementation of a hook. Compare by identity, not by name or plugin.

    Attributes:
        plugin: id of the plugin, or ``run`` for hooks of a single run.
        version: version of the plugin.
        hook: name of the hook.
        function: called with the declared arguments in order.
        options: options of the implementation.
        failure: the owner's decision on what a gate or chain processes when it fails: it is
            stopped (``closed``) or passes (``open``); ``None`` leaves it to kind and options.
        priority: -1 to come before the others (``tryfirst``), 1 to come after them, else 0.
        limit_s: seconds one call may take, or ``None`` if it waits for a person.
        revision: that of the declaration, 0 if only its name is known.
        account: running totals, shared by all generations.
        circuit: whether calls go through, shared by all generations.
    """

    plugin: str
    hook: str
    function: Callable[..., Any]
    circuit: Circuit
    version: str = ""
    options: ImplementationOptions = field(default_factory=ImplementationOptions)
    failure: Literal["open", "closed"] | None = None
    priority: int = 0
    limit_s: float | None = None
    revision: int = 0
    account: Account = field(default_factory=Account)

    @property
    def label(self) -> str:
        """The plugin with its version, as messages and reports name it."""
        return f"{self.plugin}@{self.version}" if self.version else self.plugin


@dataclass(slots=True, kw_only=True)
class HookRuntime:
    """What calls need from the application.

    Attributes:
        spawn: starts the tasks of calls.
        report: called with each failure; the exception is chained to the error.
        clock: source of time for limits.
        costs_of: returns what a plugin has cost, by its id.
    """

    spawn: Spawn
    report: Callable[[HookError], None]
    clock: Clock = field(default_factory=SystemClock)
    costs_of: Callable[[str], PluginCosts] = lambda _plugin: PluginCosts()


Outcome = tuple[Any, BaseException | None]
"""The result of a call, or what it raised."""


class NextCall:
    """``call_next`` of a wrapper: usable once. Its time is not the plugin's.

    Attributes:
        begun: done when it begins.
        ended: done when it is over.
        is_closed: it can no longer begin.
        response: what it returned, or ``None``.
        error: what it raised, or ``None``.
    """

    def __init__(self, proceed: ModelCall) -> None:
        loop = asyncio.get_running_loop()
        self._proceed = proceed
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.is_closed: bool = False
        self.response: LLMResponse | None = None
        self.error: Exception | None = None

    async def __call__(self, request: ChatRequest) -> LLMResponse:
        """Make the model call."""
        if self.begun.done() or self.is_closed:
            msg = "call_next was already used" if self.begun.done() else "call_next came too late"
            raise RuntimeError(msg)
        self.begun.set_result(None)
        try:
            self.response = await self._proceed(request)
        except Exception as error:
            self.error = error
            raise
        finally:
            self.ended.set_result(None)
        return self.response

    def passes(self, error: BaseException) -> bool:
        """Whether `error` is not the plugin's fault: the model's, or one that ends the turn."""
        return error is self.error or isinstance(error, LimitError)


class _Overran(TimeoutError):
    """A call took longer than it may."""


async def invoke(
    implementation: Implementation,
    runtime: HookRuntime,
    *args: Any,
    check: Callable[[Any], Any] = lambda result: result,
    call_next: NextCall | None = None,
) -> Any:
    """Call one implementation; count, time and contain it.

    What it awaits runs in a task of its own, the only form that survives a plugin which ignores
    its cancellation, and what blocks in a thread of its own. Either is left behind when it does
    not end in time, and counts until it does.

    Args:
        implementation: what to call.
        runtime: what calls need from the application.
        args: the declared arguments in order, without `call_next`.
        check: returns the result as the caller wants it, or raises when the hook may not return
            it; that is a failure like any other and counts for the circuit.
        call_next: the last argument of a wrapper.

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
    started = time.perf_counter()
    if call_next is not None:
        args = (*args, call_next)
    try:
        if implementation.options.blocking:
            call = _in_thread(implementation, args)
            result = await _Call(implementation, runtime, call, call_next).result()
        else:
            result = implementation.function(*args)
            if hasattr(type(result), "__await__"):
                name = f"{implementation.hook}:{implementation.plugin}"
                call = runtime.spawn(_contained(implementation, result), name=name)
                result = await _Call(implementation, runtime, call, call_next).result()
        result = check(result)
    except asyncio.CancelledError as error:
        if _host_cancels():
            implementation.circuit.released()
            raise
        raise count_failure(implementation, error) from error
    except FOREIGN_ERRORS as error:
        if call_next is not None and call_next.passes(error):
            implementation.circuit.released()
            raise
        raise count_failure(implementation, error) from error
    finally:
        implementation.account.add(time.perf_counter() - started)
    implementation.circuit.succeeded()
    return result


class _Call:
    """A call in a task or a thread of its own, waited for in bounded time."""

    def __init__(
        self,
        implementation: Implementation,
        runtime: HookRuntime,
        call: asyncio.Future[Outcome],
        call_next: NextCall | None,
    ) -> None:
        self._implementation = implementation
        self._runtime = runtime
        self._call = call
        self._next = call_next

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
        result, raised = self._call.result()
        if raised is not None:
            raise raised
        return result

    async def _is_in_time(self) -> bool:
        if self._next is not None:
            if not await self._limited(self._call, self._next.begun):
                return False
            # The model call has limits of its own.
            ends: list[asyncio.Future[Any]] = [self._call, self._next.ended]
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
        if self._next is not None:
            self._next.is_closed = True
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
        following = self._next
        is_model_call = following and following.begun.done() and not following.ended.done()
        return isinstance(self._call, asyncio.Task) and not is_model_call


async def _contained(implementation: Implementation, work: Awaitable[Any]) -> Outcome:
    """Return the outcome of `work`: what ends a program must not reach the event loop."""
    try:
        return await work, None
    except FOREIGN_ERRORS as error:
        return None, error


def _in_thread(implementation: Implementation, args: tuple[Any, ...]) -> asyncio.Future[Outcome]:
    """Call a blocking function in a thread that does not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Outcome] = loop.create_future()

    def work() -> None:
        try:
            outcome: Outcome = implementation.function(*args), None
        except BaseException as error:  # noqa: BLE001 - isolation point, raised by the caller
            outcome = None, error
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
    """Count a failed call, and return the error that names the plugin."""
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
