"""A single-file plugin: a channel of files, two slow tools, and a model that calls both.

The channel reads ``in.jsonl`` of its folder, one message a line, and keeps the place up to which
the gateway has accepted them in ``offset``, as a platform does. What it sends it appends to
``out.jsonl``. Every write is on the disk when it returns. The tool `stamp` has an effect, a line in
``effects.jsonl``; `look` only reads, and leaves a line in ``looks.jsonl`` for the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from nanobot_core import (
    Channel,
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
    SettingsSection,
    StreamEvent,
    Tool,
    ToolCall,
    ToolContext,
    on,
    tool,
)

POLL_S = 0.02
WORK_S = 0.15
_WISH = re.compile(r"do (\S+)")


class MailboxSettings(ChannelSettings):
    """The section ``channels.mailbox``."""

    folder: str = "."


def append(file: Path, record: dict[str, str]) -> None:
    """Add one line; it is on the disk afterwards."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(record) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def read_offset(folder: Path) -> int:
    """Return how many bytes of the input were accepted."""
    file = folder / "offset"
    return int(file.read_text("ascii")) if file.exists() else 0


def write_offset(folder: Path, offset: int) -> None:
    """Say that the input was accepted up to `offset`."""
    aside = folder / "offset.new"
    with aside.open("w", encoding="ascii") as opened:
        opened.write(str(offset))
        opened.flush()
        os.fsync(opened.fileno())
    aside.replace(folder / "offset")


class MailboxChannel(Channel):
    """See the module."""

    name = "mailbox"

    def __init__(self, ctx: PluginContext) -> None:
        self._folder = Path(ctx.settings(MailboxSettings).folder)
        self._writing = asyncio.Lock()
        self._ended = asyncio.Event()

    async def start(self, inbox: Inbox) -> None:
        inbox.alive()
        offset = read_offset(self._folder)
        while not self._ended.is_set():
            for line in self._lines(offset):
                record = json.loads(line)
                message = InboundMessage(
                    channel=self.name,
                    sender_id="tester",
                    chat_id=record["chat"],
                    content=record["text"],
                    dedupe_key=record["id"],
                )
                await inbox.publish(message)
                offset += len(line)
                await asyncio.to_thread(write_offset, self._folder, offset)
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        self._ended.set()

    async def send(self, message: OutboundMessage) -> None:
        record = {
            "key": message.idempotency_key,
            "chat": message.chat_id,
            "kind": message.kind,
            "text": message.content,
        }
        async with self._writing:
            await asyncio.to_thread(append, self._folder / "out.jsonl", record)

    def _lines(self, offset: int) -> list[bytes]:
        """Return whole lines from `offset` on."""
        with (self._folder / "in.jsonl").open("rb") as opened:
            opened.seek(offset)
            return [line for line in opened if line.endswith(b"\n")]


class MailboxProvider(LLMProvider):
    """Answers ``do ID`` by calling both tools, then says what they gave."""

    name = "mailbox"

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        start = max(i for i, message in enumerate(request.messages) if message.role == "user")
        wishes = _WISH.findall(request.messages[start].text)
        results = [message for message in request.messages[start:] if message.role == "tool"]
        if not results:
            calls = tuple(
                ToolCall(f"{name}-{wishes[-1]}", name, {"what": wishes[-1]})
                for name in ("look", "stamp")
            )
            yield Completed(LLMResponse(tool_calls=calls, finish_reason="tool_calls"))
            return
        told = " ".join(f"{result.name}=<{result.text}>" for result in results)
        yield Completed(LLMResponse(content=f"done {wishes[-1]} {told}"))


def create_provider(ctx: PluginContext, spec: ProviderSpec, settings: object) -> MailboxProvider:
    return MailboxProvider()


def create_tools(folder: Path) -> tuple[Tool, ...]:
    """Return the tools for a folder."""

    @tool(name="look", read_only=True)
    async def look(context: ToolContext, what: str) -> str:
        """Look at something."""
        await asyncio.sleep(WORK_S)
        await asyncio.to_thread(append, folder / "looks.jsonl", {"id": what})
        return "seen"

    @tool(name="stamp")
    async def stamp(context: ToolContext, what: str) -> str:
        """Put a stamp on something."""
        await asyncio.sleep(WORK_S)
        await asyncio.to_thread(append, folder / "effects.jsonl", {"id": what})
        await asyncio.sleep(WORK_S)
        return "stamped"

    return (look, stamp)


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    yield SettingsSection("channels.mailbox", f"{__name__}:MailboxSettings")


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    yield ChannelSpec(name="mailbox", factory=f"{__name__}:MailboxChannel")


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(
        name="mailbox", factory=f"{__name__}:create_provider", needs_key=False, default_base="mail:"
    )


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    return create_tools(Path(ctx.settings(MailboxSettings).folder))
