"""Call points whose calls are announced to the hook `after_hook`.

They take the place of the others while a plugin implements that hook, so that calls cost nothing
more without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nanobot_core.events import HookCalled
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.hooks.caller import Caller, Detached
    from nanobot_core.hooks.implementation import Implementation, ModelCall
    from nanobot_core.hooks.markers import HookPoint


@dataclass(frozen=True, slots=True)
class Watch:
    """Announces calls.

    Attributes:
        after_hook: the call point of that hook.
        numbers: counts the calls.
    """

    after_hook: Detached[HookCalled]
    numbers: Iterator[int]

    def announce(
        self,
        point: HookPoint[..., Any],
        event: object,
        answer: object = None,
        error: str | None = None,
    ) -> None:
        """Queue the event of a call."""
        self.after_hook(
            HookCalled(
                number=next(self.numbers),
                hook=point.name,
                revision=point.revision,
                event=event,
                answer=answer,
                error=error,
            )
        )


class WatchedDetached:
    """A detached call point that takes every event, and announces it."""

    __slots__ = ("_inner", "_point", "_watch")

    def __init__(self, point: HookPoint[..., Any], inner: Detached[Any], watch: Watch) -> None:
        self._point = point
        self._inner = inner
        self._watch = watch

    @property
    def implementations(self) -> Sequence[Implementation]:
        """Those of the call point."""
        return self._inner.implementations

    def __call__(self, event: Any) -> None:
        """Put `event` into the queues; returns at once."""
        self._inner(event)
        self._watch.announce(self._point, event)

    async def settle(self) -> None:
        """See `Detached.settle`."""
        await self._inner.settle()


class Watched:
    """Any other call point; it takes every event, and announces the call with its answer.

    A call that is cancelled has no answer, and is left out.
    """

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Caller, watch: Watch) -> None:
        self._inner: Any = inner
        self._watch = watch

    @property
    def point(self) -> HookPoint[..., Any]:
        """The hook."""
        found: HookPoint[..., Any] = self._inner.point
        return found

    @property
    def implementations(self) -> Sequence[Implementation]:
        """Those of the call point."""
        found: Sequence[Implementation] = self._inner.implementations
        return found

    async def __call__(self, event: Any, *inner: ModelCall) -> Any:
        """Return what the call point returns, or raise what it raises."""
        return await self._announced(event, self._inner(event, *inner), lambda answer: answer)

    async def traced(self, event: Any) -> Any:
        """See `Chain.traced`."""
        return await self._announced(event, self._inner.traced(event), lambda answer: answer[0])

    async def _announced(
        self, event: object, call: Awaitable[Any], counting: Callable[[Any], object]
    ) -> Any:
        try:
            answer = await call
        except Exception as error:
            self._watch.announce(self.point, event, error=f"{type(error).__name__}: {error}")
            raise
        self._watch.announce(self.point, event, counting(answer))
        return answer
