"""CoolDowns: providers that are left out for a while because they failed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.errors import AuthenticationFailed, ProviderError, Unreachable
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nanobot_core.agent.run import Model
    from nanobot_core.clock import Clock
    from nanobot_core.errors import PluginError

FIRST_S = 60.0
LONGEST_S = 900.0
"""Seconds of the first and of the longest cool-down; each one in a row is twice as long."""


@dataclass(frozen=True, slots=True)
class CoolDown:
    """One provider that is left out of chains.

    Attributes:
        provider: its name.
        model: the only model it applies to, as the service knows it; ``None`` means all.
        reason: why the last call failed.
        remaining_s: seconds until it is tried again.
    """

    provider: str
    model: str | None
    reason: str
    remaining_s: float

    def __str__(self) -> str:
        which = f", only {self.model}," if self.model else ""
        return f"left out{which} for {self.remaining_s:.0f} s more: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    until_s: float
    length_s: float


class CoolDowns:
    """Remembers failed calls of all runs, so that a chain does not begin with a dead provider.

    A service that cannot be reached or refuses the key is left out with all its models, another
    failure concerns one model. When the time is over, one call tries it; meanwhile other calls
    still leave it out.

    Args:
        clock: source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str | None], _Failure] = {}

    def current(self) -> Iterator[CoolDown]:
        """Yield what is left out now."""
        for (provider, model), failure in self._failures.items():
            remaining_s = failure.until_s - self._clock.monotonic_s()
            if remaining_s > 0:
                yield CoolDown(provider, model, failure.reason, remaining_s)

    def has(self, model: Model) -> bool:
        """Whether a model is left out now."""
        now_s = self._clock.monotonic_s()
        found = map(self._failures.get, _places(model))
        return any(failure is not None and failure.until_s > now_s for failure in found)

    def begin_trial(self, model: Model) -> bool:
        """Whether the next call tries a model whose time is over; others still leave it out."""
        now_s = self._clock.monotonic_s()
        due = [
            (place, failure)
            for place in _places(model)
            if (failure := self._failures.get(place)) and failure.until_s <= now_s
        ]
        for place, failure in due:
            self._failures[place] = replace(failure, until_s=now_s + failure.length_s)
        return bool(due)

    def record(self, model: Model, error: ProviderError | PluginError) -> None:
        """Leave a model or its provider out from now on."""
        is_general = isinstance(error, AuthenticationFailed | Unreachable)
        place = (model.provider_name, None if is_general else model.wire_name)
        former = self._failures.get(place)
        length_s = min(former.length_s * 2, LONGEST_S) if former else FIRST_S
        wanted_s = error.retry_after_s if isinstance(error, ProviderError) else None
        wait_s = length_s if wanted_s is None else min(max(wanted_s, 1.0), LONGEST_S)
        until_s = self._clock.monotonic_s() + wait_s
        self._failures[place] = _Failure(error.reason, until_s, length_s)

    def clear(self, model: Model | None = None) -> None:
        """Forget the failures of a model that has answered, or all."""
        for place in _places(model) if model else list(self._failures):
            self._failures.pop(place, None)


def _places(model: Model) -> tuple[tuple[str, str | None], ...]:
    return ((model.provider_name, None), (model.provider_name, model.wire_name))
