"""A plugin in one file for these tests: a provider that does what the prompt says, and tools.

Prompts: ``say WORDS``, ``think WORDS``, ``hang``, ``fail``, or ``call TOOL {"json": 1}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterable

from nanobot_core import (
    Ask,
    AuthenticationFailed,
    ChatRequest,
    Completed,
    Decision,
    LLMProvider,
    LLMResponse,
    PluginContext,
    ProviderSpec,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Tool,
    ToolCall,
    ToolCallProposed,
    ToolContext,
    on,
    tool,
)


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(name="playing", factory=f"{__name__}:make_provider", needs_key=False)


def make_provider(ctx: PluginContext, spec: ProviderSpec, settings: object) -> LLMProvider:
    return PlayingProvider()


class PlayingProvider(LLMProvider):
    name = "playing"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        last = request.messages[-1]
        if last.role == "tool":
            yield TextDelta("The tool ")
            yield TextDelta("has ended.")
            yield Completed(LLMResponse(content="The tool has ended."))
            return
        verb, _, rest = last.text.strip().splitlines()[-1].partition(" ")
        if verb == "call":
            name, _, arguments = rest.partition(" ")
            call = ToolCall(f"call-{len(request.messages)}", name, json.loads(arguments or "{}"))
            yield Completed(LLMResponse(tool_calls=(call,), finish_reason="tool_calls"))
            return
        if verb == "fail":
            raise AuthenticationFailed("playing", "the key is not accepted")
        if verb == "hang":
            yield TextDelta("beginning")
            await asyncio.Event().wait()
        if verb == "think":
            yield ReasoningDelta("Let me see.")
        for word in rest.split(" "):
            yield TextDelta(f"{word} ")
        yield Completed(LLMResponse(content=f"{rest} "))


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    yield note
    yield shout


@on.authorize_tool_call
def authorize_tool_call(event: ToolCallProposed) -> Decision | None:
    return Ask("Write it down?") if event.call.arguments.get("word") == "carefully" else None


@tool
async def note(context: ToolContext, word: str) -> str:
    """Write a word down.

    Args:
        word: any word.
    """
    with (context.workspace / "notes.txt").open("a") as file:
        file.write(f"{word}\n")
    return f"noted {word}"


@tool
async def shout() -> str:
    """Write to standard output, and let a program do the same."""
    sys.stdout.write("a line that is not JSON\n")
    sys.stdout.flush()
    os.write(1, b"another one\n")
    process = await asyncio.create_subprocess_exec("cat", stdin=None)
    await asyncio.create_subprocess_exec("echo", "a third one")
    return f"cat ended with {await process.wait()}"
