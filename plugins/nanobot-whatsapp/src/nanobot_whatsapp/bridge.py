"""BridgePlatform: a phone that a bridge process is linked to."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause, ChatPlatform
from nanobot_whatsapp import outgoing
from nanobot_whatsapp.bridge_frames import (
    Frame,
    Identity,
    MessageFrame,
    identity_of,
    parse_jid,
    read_frame,
)
from nanobot_whatsapp.bridge_line import BridgeLine, link_phone
from nanobot_whatsapp.envelope import parsed
from nanobot_whatsapp.memory import build_memory
from nanobot_whatsapp.settings import WhatsAppSettings

if TYPE_CHECKING:
    from nanobot_core import JsonObject, LoginPrompt, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Upload
    from nanobot_whatsapp.timing import TimeLimits

_WAITING = 1_000
_STEP_BYTES = 64 * 1024
_UNLINKED = (
    "the WhatsApp bridge is not linked to a phone; run `nanobot channels login whatsapp` and scan "
    "the code with WhatsApp > Settings > Linked devices"
)
_CAPTIONED = frozenset({"image", "video"})
"""Types of files with which the bridge shows a text."""


def open_bridge(ctx: PluginContext, limits: TimeLimits) -> BridgePlatform:
    """Return a bridge that is not connected.

    Raises:
        CallFailed: a library or a setting is missing.
    """
    settings = ctx.settings(WhatsAppSettings)
    if importlib.util.find_spec("websockets") is None:
        reason = "mode bridge needs websockets; run `pip install 'nanobot-whatsapp[bridge]'`"
        raise CallFailed(Cause.CREDENTIALS, reason)
    if not settings.bridge_token.get_secret_value():
        reason = (
            "channels.whatsapp.bridge_token is missing: set it to the BRIDGE_TOKEN with which the "
            "bridge was started (or set access_token for the Cloud API)"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    return BridgePlatform(ctx, settings, limits)


class BridgePlatform(ChatPlatform):
    """A bridge; its chats are named by their addresses on WhatsApp."""

    limits = outgoing.LIMITS

    def __init__(self, ctx: PluginContext, settings: WhatsAppSettings, limits: TimeLimits) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = settings
        self._time = limits
        self._memory = ctx.shared(build_memory)
        self._line = BridgeLine(settings, limits)
        # The bridge needs no confirmation of messages, so that nothing else bounds them.
        self._room = asyncio.Semaphore(_WAITING)

    async def sign_in(self) -> str:
        """Connect with the token."""
        await self._line.connect()
        return f"the bridge at {self._settings.bridge_url}"

    async def link(self, prompt: LoginPrompt) -> str:
        """Show the code that links a phone."""
        return await link_phone(self._line, prompt, self._time)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._line.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text or a file; the bridge reports no ids of messages."""
        to = parse_jid(chat_id.removeprefix("+"))
        if to is None or not to.is_chat:
            reason = f"'{chat_id}' is not a chat; use a phone number or an address of WhatsApp"
            raise CallFailed(Cause.FORBIDDEN, reason)
        text = outgoing.markup(piece.text)
        buttons = [button for row in piece.buttons for button in row]
        if buttons:
            text = f"{text}\n\n{outgoing.words(buttons)}"
        if not piece.files:
            await self._line.command({"type": "send", "to": str(to), "text": text})
            return ""
        kind, content = await self._file_of(piece.files[0])
        if text and kind in _CAPTIONED:
            content["caption"] = text
        elif text and not (key and self._memory.halves.get(key)):
            await self._line.command({"type": "send", "to": str(to), "text": text})
            self._memory.halves.put(key, value=True)
        await self._line.command({"type": "send_media", "to": str(to), **content})
        return ""

    async def _file_of(self, upload: Upload) -> tuple[str, JsonObject]:
        """Return how a file is sent, and the fields of the command that name it."""
        try:
            kind, mime_type = await asyncio.to_thread(outgoing.file_type_of, upload)
            path = await asyncio.to_thread(upload.path.resolve)
        except OSError as error:
            reason = f"'{upload.path.name}' cannot be read: {error.strerror}"
            raise CallFailed(Cause.REFUSED, reason) from error
        name = outgoing.file_name_of(upload.path, kind)
        return kind, {"filePath": str(path), "mimetype": mime_type, "fileName": name}

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive frames until the connection is lost."""
        async for content in self._line.frames(intake.alive):
            frame = next(parsed(Frame, [content], self._log.warning), Frame())
            match frame.type:
                case "message":
                    for message in parsed(MessageFrame, [content], self._log.warning):
                        await self._put(intake, message)
                case "qr":
                    raise CallFailed(Cause.CREDENTIALS, _UNLINKED)
                case "status":
                    self._log.info("the WhatsApp bridge reports: {}", frame.status)
                case "error":
                    self._log.warning("the WhatsApp bridge reports an error: {}", frame.error)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file that the bridge has saved."""
        path = await asyncio.to_thread(self._checked_path, file)
        try:
            with await asyncio.to_thread(path.open, "rb") as opened:
                while part := await asyncio.to_thread(opened.read, _STEP_BYTES):
                    yield part
        except OSError as error:
            raise CallFailed(Cause.REFUSED, f"it cannot be read: {error.strerror}") from error

    def _checked_path(self, file: Attachment) -> Path:
        folder = self._settings.bridge_media_dir
        if folder is None:
            reason = (
                "channels.whatsapp.bridge_media_dir is missing; set it to the folder in which the "
                "bridge saves files"
            )
            raise CallFailed(Cause.REFUSED, reason)
        path = Path(file.ref).resolve()
        if not path.is_relative_to(folder.expanduser().resolve()) or not path.is_file():
            reason = "it is not a file in channels.whatsapp.bridge_media_dir"
            raise CallFailed(Cause.REFUSED, reason)
        return path

    async def _put(self, intake: Intake, frame: MessageFrame) -> None:
        author = identity_of(frame)
        phone = author.phone or await self._memory.phone_of(author.hidden) or ""
        received = intake.parsed(partial(read_frame, frame, author.sender_id(phone)))
        if received is not None:
            await self._room.acquire()
            settled = partial(self._settled, author)
            intake.put(replace(received, settled=settled), self._room.release)

    async def _settled(self, author: Identity, is_admitted: bool) -> None:
        """Remember the phone number of an admitted person."""
        if is_admitted and author.phone and author.hidden:
            await self._memory.learn_person(author.hidden, author.phone)
