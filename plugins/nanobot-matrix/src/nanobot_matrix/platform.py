"""MatrixPlatform: an account on a homeserver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.chat import (
    CallFailed,
    Cause,
    ChatPlatform,
    RichText,
    SendLimits,
)
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
    from nanobot_core.chat import Attachment, Intake, Piece

_TYPING_MS = 20_000
ENCRYPTED = (
    "This room is encrypted, and I cannot read encrypted messages; please write to me in a room "
    "without encryption."
)


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
    return MatrixPlatform(ctx, Homeserver(ctx, settings), settings)


class MatrixPlatform(ChatPlatform):
    """An account on a homeserver."""

    def __init__(self, ctx: PluginContext, server: Homeserver, settings: MatrixSettings) -> None:
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
        return account.user_id

    async def aclose(self) -> None:
        """Close all connections."""
        await self._server.aclose()

    async def receive(self, intake: Intake) -> None:
        """Receive by sync until cancelled."""
        account, settings = await self._server.account(), self._settings
        if settings.e2ee_enabled:
            self._log.warning(
                "channels.matrix.e2ee_enabled has no effect: encrypted rooms cannot be read"
            )
        reader = Reader(
            user_id=account.user_id,
            name=await self._own_name(account.user_id),
            allow_bots=settings.allow_bots,
            room_mentions=settings.allow_room_mentions,
            edits=settings.edited_messages,
        )
        syncing = Syncing(self._ctx, self._server, settings, reader, intake, self._explain)
        try:
            await syncing.run()
        finally:
            syncing.report()

    async def _own_name(self, user_id: str) -> str:
        try:
            found = await self._server.call("GET", "profile", user_id, "displayname")
        except CallFailed as error:
            if error.cause not in {Cause.REFUSED, Cause.FORBIDDEN}:
                raise
            return ""
        name = found.get("displayname")
        return name.strip() if isinstance(name, str) else ""

    async def _explain(self, room: str) -> None:
        key = transaction_of(RoomRef(room), "encrypted")
        await self._server.put_event(room, key, text_content(RichText(ENCRYPTED)))

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text or a file, once for each key."""
        place = await self._open_place(chat_id)
        if piece.files:
            (file,) = piece.files
            url = await self._server.upload(file, media_type(file))
            content = file_content(file, url)
        else:
            content = text_content(piece.text)
        answered = (reply_to or "").partition(" ")[0]
        is_reply = self._settings.reply_to_message and answered.startswith("$")
        relation = relation_of(place, answered if is_reply else None)
        content |= {"m.relates_to": relation} if relation else {}
        sent = await self._server.put_event(place.room, transaction_of(place, key), content)
        if not piece.is_draft:
            await self._end_typing(place.room)
        return sent

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text of a message by another event."""
        place = await self._open_place(chat_id)
        content = edit_content(piece.text, message_id)
        await self._server.put_event(place.room, transaction_of(place, ""), content)
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

    async def _open_place(self, chat_id: str) -> RoomRef:
        """Return a place that is not encrypted: what is written there would be readable."""
        place = _place(chat_id)
        is_encrypted = self._known.encrypted.get(place.room)
        if is_encrypted is None:
            is_encrypted = await self._is_encrypted(place.room)
            self._known.encrypted.put(place.room, is_encrypted)
        if is_encrypted:
            reason = f"room {place.room} is encrypted, and the agent cannot encrypt messages"
            raise CallFailed(Cause.FORBIDDEN, reason)
        return place

    async def _is_encrypted(self, room: str) -> bool:
        try:
            await self._server.call("GET", "rooms", room, "state", "m.room.encryption")
        except CallFailed as error:
            if error.cause is not Cause.REFUSED:
                raise
            return False
        return True

    # --- files

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        size, limit = 0, self._settings.max_media_bytes
        async for part in self._server.download(file.ref):
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
