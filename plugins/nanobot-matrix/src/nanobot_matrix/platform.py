"""MatrixPlatform: an account on a homeserver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.chat import (
    CallFailed,
    Cause,
    ChatPlatform,
    RichText,
    SendLimits,
)
from nanobot_matrix.attachment import SealedFile, open_file, seal_file
from nanobot_matrix.cipher import Cipher, NoCipher, Notice
from nanobot_matrix.content import (
    SENT_BYTES,
    edit_content,
    file_content,
    media_type,
    relation_of,
    sent_bytes,
    text_content,
    transaction_of,
)
from nanobot_matrix.homeserver import Homeserver
from nanobot_matrix.known import Known
from nanobot_matrix.mapping import Reader
from nanobot_matrix.places import RoomRef
from nanobot_matrix.settings import MatrixSettings
from nanobot_matrix.syncing import Syncing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Upload

BeginCipher: TypeAlias = Callable[
    ["PluginContext", Homeserver, MatrixSettings, Known, Notice], Awaitable[Cipher]
]
_TYPING_MS = 20_000
_MISSING = "it is encrypted, and reading it needs the extra nanobot-matrix[e2e]"


def open_platform(ctx: PluginContext) -> MatrixPlatform:
    """Return a connection that is not signed in. Call it in a thread.

    Raises:
        CallFailed: the credentials are missing.
    """
    settings = ctx.settings(MatrixSettings)
    has_password = bool(settings.password.get_secret_value() and settings.user_id)
    if not (settings.access_token.get_secret_value() or has_password):
        reason = (
            "channels.matrix.access_token is missing; Element shows it in All settings, Help & "
            "About (or set channels.matrix.user_id and channels.matrix.password)"
        )
        raise CallFailed(Cause.CREDENTIALS, reason)
    begin: BeginCipher | None = None
    if settings.e2ee_enabled:
        try:
            from nanobot_matrix.encryption import Encryption
        except ImportError:
            if "e2ee_enabled" in settings.model_fields_set or settings.encrypted_only:
                ctx.logger.warning(
                    "reading encrypted rooms needs an extra: python3 -m pip install "
                    "'nanobot-matrix[e2e]'"
                )
        else:
            begin = Encryption.begin
    return MatrixPlatform(ctx, Homeserver(ctx, settings), settings, begin)


class MatrixPlatform(ChatPlatform):
    """An account on a homeserver.

    Args:
        begin: begins the encryption; ``None`` without it.
    """

    def __init__(
        self,
        ctx: PluginContext,
        server: Homeserver,
        settings: MatrixSettings,
        begin: BeginCipher | None,
    ) -> None:
        self._begin = begin
        self._cipher: Cipher | None = None
        self._beginning = asyncio.Lock()
        self._ctx = ctx
        self._log = ctx.logger
        self._server = server
        self._settings = settings
        self._known = ctx.shared(Known)
        self._typing: set[str] = set()
        self.limits = SendLimits(
            text=SENT_BYTES, measure=sent_bytes, file_bytes=settings.max_media_bytes
        )

    async def sign_in(self) -> str:
        """Check the session, and ask for the largest file."""
        account = await self._server.account(is_new=True)
        largest = await self._server.largest_upload()
        if largest is not None:
            file_bytes = min(self._settings.max_media_bytes, largest)
            self.limits = replace(self.limits, file_bytes=file_bytes)
        device = (await self._open_cipher()).device
        return f"{account.user_id} ({device})" if device else account.user_id

    async def _open_cipher(self) -> Cipher:
        async with self._beginning:
            if self._cipher is None:
                made = (self._ctx, self._server, self._settings, self._known, self._explain)
                self._cipher = await self._begin(*made) if self._begin else NoCipher(*made)
            return self._cipher

    async def aclose(self) -> None:
        """Close all connections, and the file with the keys."""
        async with self._beginning:
            if self._cipher is not None:
                await self._cipher.aclose()
        await self._server.aclose()

    async def receive(self, intake: Intake) -> None:
        """Receive by sync until cancelled."""
        account, settings = await self._server.account(), self._settings
        reader = Reader(
            user_id=account.user_id,
            name=await self._own_name(account.user_id),
            allow_bots=settings.allow_bots,
            room_mentions=settings.allow_room_mentions,
            edits=settings.edited_messages,
        )
        cipher = await self._open_cipher()
        try:
            await Syncing(self._ctx, self._server, settings, reader, intake, cipher).run()
        finally:
            self._known.report()

    async def _own_name(self, user_id: str) -> str:
        try:
            found = await self._server.call("GET", "profile", user_id, "displayname")
        except CallFailed as error:
            if error.cause not in {Cause.REFUSED, Cause.FORBIDDEN}:
                raise
            return ""
        name = found.get("displayname")
        return name.strip() if isinstance(name, str) else ""

    async def _explain(self, room: str, text: str) -> None:
        """Tell a room why a message of it is not read; without encryption, as it is."""
        content, kind = text_content(RichText(text)), "m.room.message"
        if self._begin is not None:
            kind, content = await (await self._open_cipher()).write(room, content)
        await self._server.put_event(room, kind, transaction_of(RoomRef(room), text), content)

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text or a file, once for each key."""
        place, cipher = _place(chat_id), await self._open_cipher()
        if piece.files:
            (file,) = piece.files
            content = file_content(file, await self._upload(file, place.room, cipher))
        else:
            content = text_content(piece.text)
        answered = (reply_to or "").partition(" ")[0]
        is_reply = self._settings.reply_to_message and answered.startswith("$")
        relation = relation_of(place, answered if is_reply else None)
        content |= {"m.relates_to": relation} if relation else {}
        kind, written = await cipher.write(place.room, content)
        transaction = transaction_of(place, key)
        sent = await self._server.put_event(place.room, kind, transaction, written)
        if not piece.is_draft:
            await self._end_typing(place.room)
        return sent

    async def _upload(self, file: Upload, room: str, cipher: Cipher) -> JsonObject:
        """Upload a file, and return where it is as a message names it."""
        data = await asyncio.to_thread(file.path.read_bytes)
        if not await cipher.encrypts(room):
            return {"url": await self._server.upload(data, media_type(file), file.path.name)}
        # Before the upload, so that nothing is uploaded that cannot be encrypted.
        sealed, key = await asyncio.to_thread(seal_file, data)
        url = await self._server.upload(sealed, "application/octet-stream", None)
        return {"file": replace(key, url=url).as_json()}

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text of a message by another event."""
        place, cipher = _place(chat_id), await self._open_cipher()
        is_short = await cipher.encrypts(place.room)
        content = edit_content(piece.text, message_id, is_short=is_short)
        kind, written = await cipher.write(place.room, content)
        await self._server.put_event(place.room, kind, transaction_of(place, ""), written)
        if not piece.is_draft:
            await self._end_typing(place.room)

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message."""
        place = _place(chat_id)
        key = transaction_of(place, f"redact {message_id}")
        await self._server.call("PUT", "rooms", place.room, "redact", message_id, key, body={})

    async def show_typing(self, chat_id: str) -> None:
        """Show the typing indicator for a while."""
        room = _place(chat_id).room
        await self._set_typing(room, {"typing": True, "timeout": _TYPING_MS})
        self._typing.add(room)

    async def _end_typing(self, room: str) -> None:
        if room in self._typing:
            self._typing.discard(room)
            try:
                await self._set_typing(room, {"typing": False})
            except CallFailed as error:
                # The message is sent, and the indicator ends by itself.
                self._log.debug("the typing indicator is not ended: {}", error)

    async def _set_typing(self, room: str, state: JsonObject) -> None:
        account = await self._server.account()
        await self._server.call("PUT", "rooms", room, "typing", account.user_id, body=state)

    # --- files

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        sealed = SealedFile.parse(file.ref)
        if sealed is None:
            content = self._download(file.ref)
        elif self._begin is None:
            raise CallFailed(Cause.REFUSED, _MISSING)
        else:
            content = open_file(sealed, self._download(sealed.url))
        async for part in content:
            yield part

    async def _download(self, url: str) -> AsyncIterator[bytes]:
        size, limit = 0, self._settings.max_media_bytes
        async for part in self._server.download(url):
            size += len(part)
            if size > limit:
                raise CallFailed(Cause.REFUSED, f"it is larger than {limit} bytes")
            yield part


def _place(chat_id: str) -> RoomRef:
    place = RoomRef.parse(chat_id)
    if place is None:
        reason = f"'{chat_id}' is not a room of Matrix; its id begins with '!'"
        raise CallFailed(Cause.FORBIDDEN, reason)
    return place
