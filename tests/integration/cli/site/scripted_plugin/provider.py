"""The provider and the tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from nanobot_core import (
    AuthenticationFailed,
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    PluginContext,
    ProviderSettings,
    ProviderSpec,
    StreamEvent,
    TextDelta,
    ToolCall,
    Usage,
    tool,
)


@tool
async def ping(word: str) -> str:
    """Return the word.

    Args:
        word: any word.
    """
    return f"pong {word}"


def create(ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings) -> LLMProvider:
    return ScriptedProvider()


class ScriptedProvider(LLMProvider):
    """Says back what follows ``say``; other words make it call, fail or hang."""

    name = "scripted"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        last = request.messages[-1]
        if last.role == "tool":
            text = f"The tool said: {last.text}"
        elif "refuse" in last.text:
            raise AuthenticationFailed(self.name, "the key is not accepted")
        elif "hang" in last.text:
            yield TextDelta("It begins" + " and goes on" * 50 * last.text.count("long"))
            await asyncio.Event().wait()
        elif "call" in last.text:
            yield TextDelta("Let me see.")
            call = ToolCall("call_1", "ping", {"word": "once"})
            yield Completed(
                LLMResponse(content="Let me see.", tool_calls=(call,), finish_reason="tool_calls")
            )
            return
        text = text if last.role == "tool" else last.text.rpartition("say ")[2]
        for word in text.split(" "):
            yield TextDelta(f"{word} ")
        usage = Usage(prompt_tokens=7, completion_tokens=3)
        yield Completed(LLMResponse(content=text, finish_reason="stop", usage=usage))
