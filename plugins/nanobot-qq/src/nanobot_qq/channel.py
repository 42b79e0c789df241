"""The channel: what QQ can do, how it is connected, and how it saves calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from nanobot_core import ChannelCapabilities
from nanobot_core.chat import ChatChannel
from nanobot_qq.settings import QQSettings

if TYPE_CHECKING:
    from nanobot_core import OutboundMessage, PluginContext
    from nanobot_core.chat import ChatPlatform

_CAPABILITIES = ChannelCapabilities(
    max_message_chars=2_000,
    markdown="qq",
    # Three of QQ's heartbeats; a connection ends itself after two.
    silence_limit_s=150.0,
    buttons=True,
    media=("image", "audio", "video", "file"),
)
_PLAIN = replace(_CAPABILITIES, markdown="none", buttons=False)
_PARTS = 4
"""Most messages of one answer. With a file, it has two; QQ takes five."""
_BEGINNING_CHARS = 1_000
_NOTE = "(The whole answer is in `{name}`.)"


class QQChannel(ChatChannel):
    """A channel that keeps calls for the answer, because QQ takes five for each message."""

    def __init__(self, ctx: PluginContext) -> None:
        def connect() -> ChatPlatform:
            # It imports httpx, websockets and the parser of Markdown.
            from nanobot_qq.platform import open_platform

            return open_platform(ctx)

        is_plain = ctx.settings(QQSettings).msg_format == "plain"
        super().__init__(ctx, "qq", _PLAIN if is_plain else _CAPABILITIES, connect)
        self._context = ctx

    async def send(self, message: OutboundMessage) -> None:
        """Deliver a message; a very long one as its beginning and a file.

        Reports on the work are left out when QQ takes only one more answer.

        Raises:
            DeliveryError: a piece was not accepted.
        """
        if message.kind in {"progress", "tool_hint"} and await self._is_last_call(message.chat_id):
            return
        if not await asyncio.to_thread(_is_long, message):
            await super().send(message)
            return
        file = await asyncio.to_thread(_written, message.content)
        try:
            note = _NOTE.format(name=file.name)
            content = f"{_beginning(message.content)}\n\n{note}"
            await super().send(replace(message, content=content, media=(str(file), *message.media)))
        finally:
            await asyncio.to_thread(rmtree, file.parent, ignore_errors=True)

    async def _is_last_call(self, chat_id: str) -> bool:
        from nanobot_qq.replies import build_replies

        left = await self._context.shared(build_replies).left(chat_id)
        return left is not None and left <= 1


def build_channel(ctx: PluginContext) -> ChatChannel:
    """Return a channel that is not connected."""
    return QQChannel(ctx)


def _is_long(message: OutboundMessage) -> bool:
    """Whether the text needs too many messages; the same for the same message."""
    from nanobot_core.chat import plan_pieces
    from nanobot_qq.platform import LIMITS

    if len(message.content) <= LIMITS.text:
        return False
    pieces = plan_pieces(replace(message, media=()), LIMITS)
    return len(pieces) > _PARTS


def _beginning(markdown: str) -> str:
    """Return the first paragraphs, with no open block of code."""
    begun = markdown[:_BEGINNING_CHARS]
    begun = begun[: begun.rfind("\n\n")] if "\n\n" in begun else begun
    return f"{begun}\n```\n\n…" if begun.count("```") % 2 else f"{begun}\n\n…"


def _written(content: str) -> Path:
    """Return a file with `content`, alone in a folder that only the owner can read."""
    file = Path(mkdtemp(prefix="nanobot-qq-")) / "answer.md"
    file.write_text(content, "utf-8")
    return file
