"""Sends messages in pieces, so that a retry continues where the delivery was interrupted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core import DeliveryError, Draft, OutboundMessage
from nanobot_core.chat import RichText, render_markdown, split_rich
from nanobot_telegram.call import CHANNEL, CallFailed, Cause
from nanobot_telegram.mapping import ChatRef
from nanobot_telegram.memory import Memory, ShownDraft
from nanobot_telegram.outgoing import PART_UNITS, SCHEMES, Piece, plan_pieces

if TYPE_CHECKING:
    from nanobot_telegram.client import Writer

Spawn: TypeAlias = Callable[..., None]
"""As `PluginContext.spawn`."""
_DRAFT_CHARS = 2 * PART_UNITS
"""Enough Markdown for one message. A draft does not show the rest of a long answer."""
_MESSAGE_ID = re.compile(r"(?:-?[0-9]{1,19}:)?([0-9]{1,19})(?::[0-9]{1,19})?", re.ASCII)
"""The id of a message, or its dedupe key: chat, id and, if it was edited, the time of the edit."""


class Delivery:
    """Sends over one connection.

    Args:
        memory: what this and earlier connections have sent.
        spawn: runs work that must not be interrupted.
        quotes_question: replies quote the message that they answer.
    """

    def __init__(
        self, writer: Writer, memory: Memory, spawn: Spawn, *, quotes_question: bool
    ) -> None:
        self._writer = writer
        self._memory = memory
        self._spawn = spawn
        self._quotes_question = quotes_question
        self._showing: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def send(self, message: OutboundMessage) -> None:
        """Send the pieces of a message that have not been sent yet.

        Raises:
            DeliveryError: a piece was not accepted. The next call continues with it.
        """
        pieces = await asyncio.to_thread(plan_pieces, message)
        await self._settled((message.chat_id, message.draft_id or ""))
        key = message.idempotency_key
        draft_key = (message.chat_id, message.draft_id or "")
        if not pieces:
            await self.drop_draft(*draft_key)
        with self._placed(message.chat_id) as to:
            for index in range(self._memory.sent.get(key) or 0, len(pieces)):
                draft = self._memory.drafts.get(draft_key) if index == 0 else None
                if draft is None or not await self._completed(to, draft, pieces[index]):
                    reply_to = self._reply_to(message.reply_to) if index == 0 else None
                    await self._send_piece(to, pieces[index], reply_to)
                if key:
                    self._memory.sent.put(key, index + 1)
                if draft is not None:
                    await self._forget(draft_key, draft)

    async def show_draft(self, draft: Draft) -> None:
        """Show an unfinished answer as a message that is edited as the answer grows.

        Cancellation:
            The call to Telegram continues in the background, and `send` waits for it: the draft
            can only be replaced when its message id is known.

        Raises:
            DeliveryError: Telegram did not accept it.
        """
        beginning = await asyncio.to_thread(_beginning, draft.content)
        if beginning is None:
            return
        key = (draft.chat_id, draft.id)
        await self._settled(key)
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._show(draft, beginning, outcome), name=f"telegram draft {draft.id}")
        self._showing[key] = outcome
        await asyncio.shield(outcome)

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        """Remove a draft, if it is known.

        Raises:
            DeliveryError: Telegram did not remove it.
        """
        await self._settled((chat_id, draft_id))
        known = self._memory.drafts.get((chat_id, draft_id))
        if known is None:
            return
        with self._placed(chat_id) as to:
            await self._remove(to, known.message_id)
        await self._forget((chat_id, draft_id), known)

    async def settle(self, limit_s: float) -> None:
        """Wait until pending drafts are shown and recorded, for at most `limit_s` seconds.

        If such a call is cancelled, Telegram may show a message whose id is unknown.
        """
        if self._showing:
            await asyncio.wait(self._showing.values(), timeout=limit_s)

    async def remove_leftovers(self) -> None:
        """Remove the drafts of a process that was killed. The answers follow as new messages.

        A draft that cannot be removed is tried again at the next start of the channel.
        """
        for chat_id, message_id in await self._memory.leftovers.before():
            with suppress(DeliveryError), self._placed(chat_id) as to:
                await self._remove(to, message_id)
                await self._memory.leftovers.remove(chat_id, message_id)

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator.

        Raises:
            DeliveryError: Telegram did not accept it.
        """
        with self._placed(chat_id) as to:
            await self._writer.show_typing(to)

    async def _show(self, draft: Draft, beginning: RichText, outcome: asyncio.Future[None]) -> None:
        key = (draft.chat_id, draft.id)
        known = self._memory.drafts.get(key)
        try:
            with self._placed(draft.chat_id) as to:
                if known is None:
                    reply_to = self._reply_to(draft.reply_to)
                    sent = await self._writer.send_piece(to, Piece(beginning), reply_to)
                    self._memory.drafts.put(key, ShownDraft(sent, beginning))
                    await self._memory.leftovers.add(draft.chat_id, sent)
                elif known.shown != beginning:
                    await self._edit(to, known, Piece(beginning))
            outcome.set_result(None)
        except DeliveryError as error:
            outcome.set_exception(error)
        finally:
            if not outcome.done():
                reason = "the draft was interrupted"
                outcome.set_exception(DeliveryError(CHANNEL, reason, retryable=True))
            # The caller may have gone: the host does not wait for a draft whose turn has ended.
            outcome.exception()
            self._showing.pop(key, None)

    async def _settled(self, key: tuple[str, str]) -> None:
        """Wait until a pending draft has been shown or has failed."""
        showing = self._showing.get(key)
        if showing is not None:
            await asyncio.wait({showing})

    @contextmanager
    def _placed(self, chat_id: str) -> Iterator[ChatRef]:
        """Yield the chat that `chat_id` names; raise failures in the block as `DeliveryError`."""
        to = ChatRef.parse(chat_id)
        if to is None:
            reason = f"'{chat_id}' is not a chat; use an id, or an id and a topic as 'ID:TOPIC'"
            raise DeliveryError(CHANNEL, reason, retryable=False)
        moved_to = self._memory.moved.get(to.chat)
        if moved_to is not None:
            to = replace(to, chat=moved_to)
        try:
            yield to
        except CallFailed as error:
            if error.moved_to is None:
                raise error.as_delivery_error from error
            self._memory.moved.put(to.chat, error.moved_to)
            raise DeliveryError(CHANNEL, error.reason, retryable=True) from error

    async def _forget(self, key: tuple[str, str], draft: ShownDraft) -> None:
        self._memory.drafts.drop(key)
        await self._memory.leftovers.remove(key[0], draft.message_id)

    def _reply_to(self, platform_id: str | None) -> int | None:
        if platform_id is None or not self._quotes_question:
            return None
        found = _MESSAGE_ID.fullmatch(platform_id)
        return int(found[1]) if found else None

    async def _send_piece(self, to: ChatRef, piece: Piece, reply_to: int | None) -> None:
        """Send a piece; if Telegram refuses it, send a simpler form."""
        try:
            await self._writer.send_piece(to, piece, reply_to)
        except CallFailed as error:
            simpler = _simpler(piece)
            if error.cause is not Cause.REFUSED or not simpler:
                raise
            for part in simpler:
                await self._send_piece(to, part, reply_to)

    async def _completed(self, to: ChatRef, draft: ShownDraft, piece: Piece) -> bool:
        """Replace the draft by `piece`; return False if the draft had to be removed."""
        if draft.shown == piece.text and not piece.buttons:
            return True
        for form in (piece, replace(piece, text=piece.text.plain)):
            if draft.shown is None:
                # Telegram refuses an edit that changes nothing, and an edit of a deleted message,
                # in the same way. So after an edit of unknown outcome, another edit does not help.
                break
            try:
                await self._edit(to, draft, form)
            except CallFailed as error:
                if error.cause is not Cause.REFUSED:
                    raise
            else:
                return True
        await self._remove(to, draft.message_id)
        return False

    async def _edit(self, to: ChatRef, draft: ShownDraft, piece: Piece) -> None:
        before, draft.shown = draft.shown, None
        try:
            await self._writer.edit_text(to, draft.message_id, piece)
        except CallFailed as error:
            if error.cause is not Cause.UNREACHABLE:
                draft.shown = before
            raise
        draft.shown = piece.text

    async def _remove(self, to: ChatRef, message_id: int) -> None:
        try:
            await self._writer.delete(to, message_id)
        except CallFailed as error:
            if error.cause is not Cause.REFUSED:
                raise


def _beginning(markdown: str) -> RichText | None:
    """Return as much as one message can show, or ``None`` if the text is empty."""
    parts = split_rich(render_markdown(markdown[:_DRAFT_CHARS], SCHEMES), PART_UNITS)
    return parts[0] if parts else None


def _simpler(piece: Piece) -> list[Piece]:
    """Return pieces with the same content in a simpler form; empty if there is none."""
    if len(piece.files) > 1:
        return [
            Piece(piece.text if index == 0 else RichText(""), (file,))
            for index, file in enumerate(piece.files)
        ]
    if piece.files and piece.files[0].kind != "document":
        document = replace(piece.files[0], kind="document")
        return [replace(piece, files=(document,))]
    return [replace(piece, text=piece.text.plain)] if piece.text.spans else []
