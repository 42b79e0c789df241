"""One caller for each kind of hook. A caller without implementations is false.

Callers hold a tuple that never changes: a call in progress keeps the implementations it began
with, whatever is loaded meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from nanobot_core.contracts.plugin import Allow, Ask, Decision, Deny, Refuse, Rewrite
from nanobot_core.errors import HookError, LimitError
from nanobot_core.hooks.implementation import (
    HookRuntime,
    Implementation,
    Interlude,
    invoke,
)

if TYPE_CHECKING:
    from nanobot_core.contracts.provider import ChatRequest, LLMResponse, ModelCallRequested
    from nanobot_core.events import MessageReceived, ToolCallProposed
    from nanobot_core.hooks.detached import DetachedQueues
    from nanobot_core.hooks.markers import HookPoint
    from nanobot_core.messages import ToolCall

E = TypeVar("E")
V = TypeVar("V")


class Caller:
    """Base of the callers: the implementations of one hook in their order."""

    __slots__ = ("implementations", "point", "runtime")

    def __init__(
        self,
        point: HookPoint[..., Any],
        implementations: Sequence[Implementation],
        runtime: HookRuntime,
    ) -> None:
        self.point: HookPoint[..., Any] = point
        self.implementations: tuple[Implementation, ...] = tuple(implementations)
        self.runtime: HookRuntime = runtime

    def __bool__(self) -> bool:
        return bool(self.implementations)

    def _check(self, value: Any) -> Any:
        """Return `value`, or raise when it is nothing the hook may return."""
        if value is None or isinstance(value, self.point.result):
            return value
        wanted = " or ".join(kind.__name__ for kind in self.point.result)
        msg = f"returned {type(value).__name__} instead of {wanted} or None"
        raise TypeError(msg)


class Observe(Caller, Generic[E]):
    """Calls every implementation in order."""

    async def __call__(self, event: E) -> None:
        """Call all of them; a failure is reported and does not affect the others."""
        for implementation in self.implementations:
            try:
                await invoke(implementation, self.runtime, event)
            except HookError as error:
                self.runtime.report(error)


class Detached(Caller, Generic[E]):
    """Calls every implementation later, in order, from a bounded queue of its plugin."""

    __slots__ = ("queues",)

    def __init__(
        self,
        point: HookPoint[..., Any],
        implementations: Sequence[Implementation],
        runtime: HookRuntime,
        queues: DetachedQueues,
    ) -> None:
        super().__init__(point, implementations, runtime)
        self.queues: DetachedQueues = queues

    def __call__(self, event: E) -> None:
        """Put `event` into the queues; returns at once."""
        for implementation in self.implementations:
            self.queues.put(implementation, event)

    async def settle(self) -> None:
        """Wait until what was queued so far has been handled, within a limit."""
        await self.queues.settle(each.plugin for each in self.implementations)


class Chain(Caller, Generic[E, V]):
    """Passes one field of the event from implementation to implementation."""

    async def __call__(self, event: E) -> V:
        """Return the field as the last implementation left it.

        Raises:
            HookError: an implementation marked critical failed.
        """
        name = self.point.field
        for implementation in self.implementations:
            try:
                value = await invoke(implementation, self.runtime, event, check=self._check)
            except HookError as error:
                self.runtime.report(error)
                if implementation.options.critical:
                    raise
                continue
            if value is not None:
                event = dataclasses.replace(event, **{name: value})  # type: ignore[type-var]  # events are dataclasses
        result: V = getattr(event, name)
        return result


class First(Caller, Generic[E, V]):
    """Calls implementations in order until one answers."""

    async def __call__(self, event: E) -> V | None:
        """Return the first answer, or ``None``."""
        for implementation in self.implementations:
            try:
                value: V | None = await invoke(
                    implementation, self.runtime, event, check=self._check
                )
            except HookError as error:
                self.runtime.report(error)
                continue
            if value is not None:
                return value
        return None


class Gather(Caller, Generic[E, V]):
    """Calls all side by side and collects their items."""

    async def __call__(self, event: E) -> list[tuple[str, V]]:
        """Return (plugin id, item) pairs, ordered by the implementations."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._collect(each, event)) for each in self.implementations]
        return [pair for task in tasks for pair in task.result()]

    async def _collect(self, implementation: Implementation, event: E) -> list[tuple[str, V]]:
        try:
            items: list[V] = await invoke(implementation, self.runtime, event, check=self._items)
        except HookError as error:
            self.runtime.report(error)
            return []
        return [(implementation.plugin, item) for item in items]

    def _items(self, found: Any) -> list[V]:
        if not isinstance(found, Iterable):
            found = (found,)
        return [self._check(item) for item in found if item is not None]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The combined decision of all policies on a call.

    Attributes:
        decision: whether it may run.
        call: the call as the policies have rewritten it.
    """

    decision: Allow | Ask | Deny
    call: ToolCall


class Gate(Caller):
    """Base of the callers of gates: what fails, and what cannot be asked, refuses.

    Attributes:
        judged: what it is that the gate judges, in words for people.
    """

    judged: ClassVar[str]

    @staticmethod
    def refusal(reason: str) -> object:
        """Return the answer of the hook that refuses."""
        raise NotImplementedError


class AdmitMessage(Gate):
    """Asks whether a message may come in; one refusal is enough, a failure refuses."""

    judged: ClassVar[str] = "channel message"

    @staticmethod
    def refusal(reason: str) -> Refuse:
        """Return the answer that refuses."""
        return Refuse(reason)

    async def __call__(self, event: MessageReceived) -> Refuse | None:
        """Return the first refusal, or ``None``."""
        for implementation in self.implementations:
            try:
                refusal: Refuse | None = await invoke(
                    implementation, self.runtime, event, check=self._check
                )
            except HookError as error:
                self.runtime.report(error)
                return self.refusal(_unable(implementation))
            if refusal is not None:
                return refusal
        return None


class AuthorizeToolCall(Gate):
    """Asks whether a tool call may run; the strongest answer wins, a failure denies."""

    judged: ClassVar[str] = "tool call"

    @staticmethod
    def refusal(reason: str) -> Deny:
        """Return the answer that refuses."""
        return Deny(reason)

    async def __call__(self, event: ToolCallProposed) -> Verdict:
        """Return the verdict: Deny, else Ask, else Allow; a later policy sees earlier rewrites."""
        asked: Ask | None = None
        for implementation in self.implementations:
            decision = await self._decide(implementation, event)
            if isinstance(decision, Deny):
                return Verdict(decision, event.call)
            if isinstance(decision, Ask):
                asked = asked or decision
            elif isinstance(decision, Rewrite):
                call = dataclasses.replace(event.call, arguments=decision.arguments)
                event = dataclasses.replace(event, call=call)
        return Verdict(asked or Allow(), event.call)

    async def _decide(
        self, implementation: Implementation, event: ToolCallProposed
    ) -> Decision | None:
        try:
            decision: Decision | None = await invoke(
                implementation, self.runtime, event, check=self._check
            )
        except HookError as error:
            self.runtime.report(error)
            return self.refusal(_unable(implementation))
        return decision


def _unable(implementation: Implementation) -> str:
    """Say that a gate cannot judge, and how its owner does without it."""
    plugin, last = implementation.plugin, implementation.account.last_error
    is_open = implementation.circuit.state != "closed"
    reason = f"it is left out after repeated failures, the last one: {last}" if is_open else last
    return (
        f"the policy of plugin '{plugin}' failed: {reason}; to do without it, run nanobot plugins "
        f"disable {plugin}"
    )


ModelCall = Callable[["ChatRequest"], Awaitable["LLMResponse"]]


class WrapModelCall(Caller):
    """Wraps a model call."""

    async def __call__(self, event: ModelCallRequested, inner: ModelCall) -> LLMResponse:
        """Run `inner` inside all implementations, the first one outermost.

        Raises:
            LimitError: an implementation ended the turn.
            Exception: what `inner` raised.
        """
        return await self._layer(0, event, inner)

    async def _layer(self, index: int, event: ModelCallRequested, inner: ModelCall) -> LLMResponse:
        if index == len(self.implementations):
            return await inner(event.request)
        implementation = self.implementations[index]
        attempt = _NextCall(
            lambda request: self._layer(
                index + 1, dataclasses.replace(event, request=request), inner
            )
        )
        try:
            response = await invoke(
                implementation,
                self.runtime,
                event,
                attempt,
                passes=attempt.is_not_the_plugins,
                check=self._check,
                interlude=attempt,
            )
        except HookError as error:
            self.runtime.report(error)
            if attempt.error is not None:
                raise attempt.error from error
            response = None
        if response is None:
            response = attempt.response or await self._layer(index + 1, event, inner)
        answer: LLMResponse = response
        return answer


class _NextCall(Interlude):
    """``call_next`` for one implementation: usable once; it keeps the result."""

    def __init__(self, proceed: ModelCall) -> None:
        super().__init__()
        self._proceed = proceed
        self.response: LLMResponse | None = None
        self.error: Exception | None = None

    async def __call__(self, request: ChatRequest) -> LLMResponse:
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

    def is_not_the_plugins(self, error: BaseException) -> bool:
        """Whether `error` came from the model call, or ends the turn on purpose."""
        return error is self.error or isinstance(error, LimitError)
