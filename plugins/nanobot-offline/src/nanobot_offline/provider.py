"""The provider, and the choice between it and the replay of a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from nanobot_core import (
    ChatRequest,
    Clock,
    Completed,
    ConfigUnreadable,
    LLMProvider,
    PluginContext,
    ProviderSpec,
    StreamEvent,
    ToolCallDelta,
)
from nanobot_offline.answer import answer, text_pieces, with_usage
from nanobot_offline.replay import ScriptedProvider
from nanobot_offline.script import load_script
from nanobot_offline.settings import OfflineSettings


def create_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: OfflineSettings
) -> LLMProvider:
    """Return the provider that `settings` ask for. Reads the script, so it blocks for a moment.

    Raises:
        ConfigError: the script cannot be used.
    """
    if settings.script is None:
        return OfflineProvider(spec.name, ctx.clock)
    try:
        file = ctx.workspace / Path(settings.script).expanduser()
    except RuntimeError as error:
        raise ConfigUnreadable(settings.script, "there is no such user") from error
    return ScriptedProvider(spec.name, ctx.clock, str(file), load_script(file))


class OfflineProvider(LLMProvider):
    """Carries out the calls that the user writes; keeps nothing between calls."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Yield the next step of what the newest user message asks for."""
        response = answer(request)
        for piece in text_pieces(response.content or ""):
            yield piece
            await self._clock.sleep(0)
        for index, call in enumerate(response.tool_calls):
            yield ToolCallDelta(index, call.name)
        yield Completed(with_usage(response, request))
