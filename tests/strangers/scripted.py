"""A single-file plugin: a provider that does what the user's message says, word for word.

``call NAME {"json": 1}`` calls that tool; the answer then repeats what the tool said. Any other
message is answered with itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

from nanobot_core import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    PluginContext,
    ProviderSpec,
    StreamEvent,
    ToolCall,
    on,
)


class ScriptedProvider(LLMProvider):
    name = "scripted"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        last = request.messages[-1]
        text = last.content if isinstance(last.content, str) else ""
        if last.role == "tool":
            yield Completed(LLMResponse(content=f"The tool said: {text}"))
            return
        command = text.strip().splitlines()[-1]
        verb, _, rest = command.partition(" ")
        if verb == "call":
            name, _, arguments = rest.partition(" ")
            call = ToolCall("call-1", name, json.loads(arguments or "{}"))
            yield Completed(LLMResponse(tool_calls=(call,), finish_reason="tool_calls"))
            return
        yield Completed(LLMResponse(content=f"You said: {command}"))


def create(ctx: PluginContext, spec: ProviderSpec, settings: object) -> ScriptedProvider:
    return ScriptedProvider()


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(name="scripted", factory=f"{__name__}:create", needs_key=False)
