"""A single-file plugin for tests of the gateway: channel, provider, tools and services.

The channel speaks with a `tests.gateways.Platform` over a unix socket. The provider does what the
user's message says: ``say WORDS``, ``hang``, ``stream`` (words, then nothing), ``fail``, ``spend``
(calls of 1,000 tokens without end), or ``call TOOL {"json": 1}`` with several calls separated by
``;;``. It answers reports of subagents with the results that they name.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from uuid import uuid4

from nanobot_core import (
    AuthenticationFailed,
    Channel,
    ChannelCapabilities,
    ChannelError,
    ChannelSettings,
    ChannelSpec,
    ChatRequest,
    Completed,
    InboundMessage,
    Inbox,
    LLMProvider,
    LLMResponse,
    OutboundMessage,
    PluginContext,
    ProviderSpec,
    Service,
    ServiceSpec,
    SettingsSection,
    StreamEvent,
    TextDelta,
    Tool,
    ToolCall,
    ToolContext,
    Usage,
    on,
    tool,
)

REPORTED = re.compile(r"RESULT-\w+|waited [\d.]+|used up")


class ChattySettings(ChannelSettings):
    """``channels.chatty``."""

    path: str = ""
    hangs_in_stop: bool = False
    service: str = ""
    """``hang``: a service that does not end when it is cancelled."""


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    yield SettingsSection("channels.chatty", f"{__name__}:ChattySettings")


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    yield ChannelSpec(name="chatty", factory=f"{__name__}:make_channel")


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(name="chatty", factory=f"{__name__}:make_provider", needs_key=False)


@on.contribute_services
def contribute_services(ctx: PluginContext) -> Iterable[ServiceSpec]:
    yield ServiceSpec(name="idler", factory=f"{__name__}:make_service")


def make_channel(ctx: PluginContext) -> Channel:
    return ChattyChannel(ctx.settings(ChattySettings))


class ChattyChannel(Channel):
    name = "chatty"
    capabilities = ChannelCapabilities(buttons=True)

    def __init__(self, settings: ChattySettings) -> None:
        self._settings = settings
        self._writer: asyncio.StreamWriter | None = None
        self._taken: dict[str, asyncio.Future[None]] = {}

    async def start(self, inbox: Inbox) -> None:
        try:
            reader, self._writer = await asyncio.open_unix_connection(self._settings.path)
        except OSError as error:
            raise ChannelError(f"its platform is away: {error}") from error
        self.account = "@chatty"
        inbox.alive()
        async with asyncio.TaskGroup() as group:
            while line := await reader.readline():
                offered = json.loads(line)
                if "taken" in offered:
                    self._taken.pop(offered["taken"]).set_result(None)
                else:
                    group.create_task(self._take(inbox, offered))
            for waiting in self._taken.values():
                waiting.cancel()
        raise ChannelError("its platform hung up")

    async def _take(self, inbox: Inbox, offered: dict[str, str]) -> None:
        message = InboundMessage(
            channel="chatty",
            sender_id=offered["sender"],
            chat_id=offered["chat"],
            content=offered["text"],
            dedupe_key=offered["key"],
        )
        await inbox.publish(message)
        await self._tell({"stored": offered["key"]})

    async def stop(self) -> None:
        if self._settings.hangs_in_stop:
            await asyncio.Event().wait()
        if self._writer is not None:
            self._writer.close()

    async def send(self, message: OutboundMessage) -> None:
        number = uuid4().hex
        taken = self._taken[number] = asyncio.get_running_loop().create_future()
        await self._tell(
            {
                "number": number,
                "chat": message.chat_id,
                "text": message.content,
                "kind": message.kind,
                "key": message.idempotency_key,
                "buttons": [button.value for row in message.buttons for button in row],
            }
        )
        await taken

    async def _tell(self, content: object) -> None:
        if self._writer is None:
            raise ChannelError("not connected")
        self._writer.write(json.dumps(content).encode() + b"\n")
        await self._writer.drain()


def make_provider(ctx: PluginContext, spec: ProviderSpec, settings: object) -> LLMProvider:
    return ChattyProvider()


class ChattyProvider(LLMProvider):
    name = "chatty"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        new = list(itertools.takewhile(lambda one: one.role == "user", reversed(request.messages)))
        reports = "".join(one.text for one in new if "The subagent '" in one.text)
        if found := sorted(set(REPORTED.findall(reports))):
            closing = reports.splitlines()[-1].partition(" ")[2]
            yield Completed(LLMResponse(content=f"Reported: {', '.join(found)}. {closing}"))
            return
        if spending := _spending(request):
            yield spending
            return
        results = []
        for message in reversed(request.messages):
            if message.role != "tool":
                break
            results.append(message.text)
        if results:
            text = " | ".join(reversed(results))
            yield Completed(LLMResponse(content=f"The tool said: {text}"))
            return
        verb, _, rest = request.messages[-1].text.strip().splitlines()[-1].partition(" ")
        if verb == "fail":
            raise AuthenticationFailed("chatty", "the key is not accepted")
        if verb == "call":
            yield Completed(LLMResponse(tool_calls=_calls(rest), finish_reason="tool_calls"))
            return
        if verb in {"hang", "stream"}:
            while verb == "stream":
                yield TextDelta("and so on, ")
                await asyncio.sleep(0.02)
            await asyncio.Event().wait()
        yield TextDelta(rest)
        yield Completed(LLMResponse(content=rest))


def _spending(request: ChatRequest) -> Completed | None:
    """Return the next call of an endless task, as long as there are tools to call."""
    wishes = [message.text for message in request.messages if message.role == "user"]
    if not wishes[-1].strip().endswith("spend") or not request.tools:
        return None
    calls = _calls(f'wait_beside {{"seconds": {len(request.messages) / 1_000}}}')
    usage = Usage(prompt_tokens=1_000)
    return Completed(LLMResponse(tool_calls=calls, finish_reason="tool_calls", usage=usage))


def _calls(text: str) -> tuple[ToolCall, ...]:
    calls = []
    for number, one in enumerate(text.split(";;")):
        name, _, arguments = one.strip().partition(" ")
        calls.append(ToolCall(f"call-{number}", name, json.loads(arguments or "{}")))
    return tuple(calls)


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    yield note
    yield wait_long
    yield wait_beside
    yield ignore_stop


@tool
async def note(context: ToolContext, word: str) -> str:
    """Write a word down.

    Args:
        word: any word.
    """
    with _notes(context).open("a") as file:
        file.write(f"{word}\n")
    return f"noted {word}"


@tool
async def wait_long(context: ToolContext, word: str) -> str:
    """Write a word down and never end.

    Args:
        word: any word.
    """
    with _notes(context).open("a") as file:
        file.write(f"{word}\n")
    await asyncio.Event().wait()
    return ""


@tool(read_only=True)
async def wait_beside(seconds: float) -> str:
    """Wait, also beside others.

    Args:
        seconds: how long.
    """
    await asyncio.sleep(seconds)
    return f"waited {seconds:g}"


@tool
async def ignore_stop(seconds: float) -> str:
    """Wait without heed of being stopped.

    Args:
        seconds: how long.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return "output of what was stopped"


def _notes(context: ToolContext) -> Path:
    return context.workspace / "notes.txt"


def make_service(ctx: PluginContext) -> Service:
    return Idler(hangs=ctx.settings(ChattySettings).service == "hang")


class Idler(Service):
    """Does nothing."""

    def __init__(self, *, hangs: bool) -> None:
        self._hangs = hangs

    async def run(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._hangs:
                    raise
