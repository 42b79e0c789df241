"""A plugin in one file for these tests: tools, and a channel that writes to files.

The channel ``paper`` takes each file ``in-*`` in its folder as a message of the owner's and writes
each message that it sends to the file ``out``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path

from nanobot_core import (
    Channel,
    ChannelSettings,
    ChannelSpec,
    InboundMessage,
    Inbox,
    OutboundMessage,
    PluginContext,
    SettingsSection,
    Tool,
    ToolContext,
    on,
    tool,
)


class PaperSettings(ChannelSettings):
    """``channels.paper``."""

    folder: str = ""


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    yield SettingsSection("channels.paper", f"{__name__}:PaperSettings")


@on.contribute_channels
def contribute_channels(ctx: PluginContext) -> Iterable[ChannelSpec]:
    yield ChannelSpec(name="paper", factory=f"{__name__}:make_channel")


def make_channel(ctx: PluginContext) -> Channel:
    return PaperChannel(Path(ctx.settings(PaperSettings).folder))


class PaperChannel(Channel):
    name = "paper"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def start(self, inbox: Inbox) -> None:
        inbox.alive()
        while True:
            for file in sorted(self._folder.glob("in-*")):
                text = file.read_text()
                message = InboundMessage(
                    channel="paper", sender_id="7", chat_id="1", content=text, dedupe_key=file.name
                )
                await inbox.publish(message)
                file.unlink()
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        pass

    async def send(self, message: OutboundMessage) -> None:
        with (self._folder / "out").open("a") as file:
            file.write(json.dumps(message.content) + "\n")


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    yield note
    yield look
    yield long_text
    yield wait
    yield fail
    yield shout


@tool
async def note(context: ToolContext, word: str, times: int = 1) -> str:
    """Write a word down.

    Args:
        word: any word.
        times: how often.
    """
    with (context.workspace / "notes.txt").open("a") as file:
        file.write(f"{word}\n" * times)
    return f"noted {word}"


@tool(read_only=True)
async def look() -> str:
    """Look around."""
    return "nothing is here"


@tool
async def long_text(chars: int) -> str:
    """Return a long text.

    Args:
        chars: its length.
    """
    return "x" * chars


@tool
async def wait(context: ToolContext) -> str:
    """Wait until cancelled."""
    (context.workspace / "waiting").touch()
    try:
        await asyncio.Event().wait()
    finally:
        (context.workspace / "waiting").unlink()
    return ""


@tool
async def fail() -> str:
    """Raise an unexpected exception."""
    raise ValueError("it is broken")


@tool
async def shout() -> str:
    """Write to standard output."""
    os.write(1, b"no JSON\n")
    return "shouted"
