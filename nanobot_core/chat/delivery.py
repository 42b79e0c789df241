"""Sends messages in pieces, so that a retry continues where the delivery was interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.chat.failure import CallFailed, Cause
from nanobot_core.chat.markdown import render_markdown
from nanobot_core.chat.memory import ShownDraft
from nanobot_core.chat.pieces import Piece, SendLimits, plan_pieces, simpler_pieces
from nanobot_core.chat.rich_text import RichText, split_rich
from nanobot_core.errors import DeliveryError

if TYPE_CHECKING:
    from nanobot_core.chat.memory import DeliveryMemory
    from nanobot_core.chat.platform import ChatPlatform
    from nanobot_core.contracts.channel import Draft
    from nanobot_core.messages import OutboundMessage

Spawn: TypeAlias = Callable[..., None]
"""As `PluginContext.spawn`."""


class Delivery:
    """Sends over one connection.

    Args:
        channel: its name, for errors.
        memory: what this and earlier connections have sent.
        spawn: runs work that must not be interrupted.
    """

    def __init__(
        self, channel: str, platform: ChatPlatform, memory: DeliveryMemory, spawn: Spawn
    ) -> None:
        self._channel = channel
        self._platform = platform
        self._memory = memory
        self._spawn = spawn
        self._showing: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def send(self, message: OutboundMessage) -> None:
        """Send the pieces of a message that have not been sent yet.

        Raises:
            DeliveryError: a piece was not accepted. The next call continues with it.
        """
        pieces = await asyncio.to_thread(plan_pieces, message, self._platform.limits)
        draft_key = (message.chat_id, message.draft_id or "")
        await self._settled(draft_key)
        if not pieces:
            await self.drop_draft(*draft_key)
        with self._failures():
            for index in range(await self._sent(message.idempotency_key), len(pieces)):
                draft = self._memory.drafts.get(draft_key) if index == 0 else None
                if draft is None or not await self._completed(message, draft, pieces[index]):
                    await self._send_piece(message, pieces[index], index, f"{index}")
                await self._record(message.idempotency_key, index + 1, len(pieces))
                if draft is not None:
                    await self._forget(draft_key, draft)

    async def show_draft(self, draft: Draft) -> None:
        """Show an unfinished answer as a message that is edited as the answer grows.

        Cancellation:
            The call to the platform continues in the background, and `send` waits for it: the
            draft can only be replaced when its message id is known.

        Raises:
            DeliveryError: the platform did not accept it.
        """
        beginning = await asyncio.to_thread(_beginning, draft.content, self._platform.limits)
        if beginning is None:
            return
        key = (draft.chat_id, draft.id)
        await self._settled(key)
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._show(draft, beginning, outcome), name=f"{self._channel} draft {draft.id}")
        self._showing[key] = outcome
        await asyncio.shield(outcome)

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        """Remove a draft, if it is known.

        Raises:
            DeliveryError: the platform did not remove it.
        """
        await self._settled((chat_id, draft_id))
        known = self._memory.drafts.get((chat_id, draft_id))
        if known is None:
            return
        with self._failures():
            await self._remove(chat_id, known.message_id)
        await self._forget((chat_id, draft_id), known)

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator.

        Raises:
            DeliveryError: the platform did not accept it.
        """
        with self._failures():
            await self._platform.show_typing(chat_id)

    async def settle(self, limit_s: float) -> None:
        """Wait until pending drafts are shown and recorded, for at most `limit_s` seconds.

        If such a call is cancelled, the platform may show a message whose id is unknown.
        """
        if self._showing:
            await asyncio.wait(self._showing.values(), timeout=limit_s)

    async def remove_leftovers(self) -> None:
        """Remove the drafts of a process that was killed. The answers follow as new messages.

        A draft that cannot be removed is tried again at the next start of the channel.
        """
        with suppress(OSError):
            for noted in await self._memory.leftovers.entries():
                if noted not in self._memory.own:
                    chat_id, _, message_id = noted.rpartition(" ")
                    with suppress(DeliveryError), self._failures():
                        await self._remove(chat_id, message_id)
                        await self._memory.leftovers.drop([noted])

    async def _show(self, draft: Draft, beginning: RichText, outcome: asyncio.Future[None]) -> None:
        key, piece = (draft.chat_id, draft.id), Piece(beginning, is_draft=True)
        known = self._memory.drafts.get(key)
        try:
            with self._failures():
                if known is None:
                    sent = await self._platform.send(
                        draft.chat_id, piece, reply_to=draft.reply_to, key=""
                    )
                    self._memory.drafts.put(key, ShownDraft(sent, beginning))
                    await self._note_leftover(draft.chat_id, sent)
                elif known.shown != beginning:
                    await self._edit(draft.chat_id, known, piece)
            outcome.set_result(None)
        except DeliveryError as error:
            outcome.set_exception(error)
        finally:
            if not outcome.done():
                reason = "the draft was interrupted"
                outcome.set_exception(DeliveryError(self._channel, reason, retryable=True))
            # The caller may have gone: the host does not wait for a draft whose turn has ended.
            outcome.exception()
            self._showing.pop(key, None)

    async def _settled(self, key: tuple[str, str]) -> None:
        """Wait until a pending draft has been shown or has failed."""
        showing = self._showing.get(key)
        if showing is not None:
            await asyncio.wait({showing})

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise failed calls in the block as `DeliveryError`."""
        try:
            yield
        except CallFailed as error:
            raise error.as_delivery_error(self._channel) from error

    # --- what was sent

    async def _sent(self, key: str) -> int:
        """Return how many pieces of a message were sent."""
        here = self._memory.sent.get(key) if key else 0
        if here is not None:
            return here
        before = None
        with suppress(OSError):
            before = await self._memory.begun.get(key)
        return before if isinstance(before, int) else 0

    async def _record(self, key: str, sent: int, of: int) -> None:
        if not key:
            return
        self._memory.sent.put(key, sent)
        if of > 1:
            # The outbox repeats whole messages. On a full disk, this process still knows.
            with suppress(OSError):
                await self._memory.begun.put(key, sent)

    async def _note_leftover(self, chat_id: str, message_id: str) -> None:
        noted = f"{chat_id} {message_id}"
        self._memory.own.add(noted)
        with suppress(OSError):  # it costs a stale draft, but no answer
            await self._memory.leftovers.put(noted, value=True)

    async def _forget(self, key: tuple[str, str], draft: ShownDraft) -> None:
        noted = f"{key[0]} {draft.message_id}"
        self._memory.drafts.drop(key)
        self._memory.own.discard(noted)
        with suppress(OSError):
            await self._memory.leftovers.drop([noted])

    # --- calls

    async def _send_piece(
        self, message: OutboundMessage, piece: Piece, index: int, part: str
    ) -> None:
        """Send a piece; if the platform refuses it, send a simpler form."""
        reply_to = message.reply_to if index == 0 else None
        key = f"{message.idempotency_key}:{part}" if message.idempotency_key else ""
        try:
            await self._platform.send(message.chat_id, piece, reply_to=reply_to, key=key)
        except CallFailed as error:
            simpler = simpler_pieces(piece)
            if error.cause is not Cause.REFUSED or not simpler:
                raise
            for number, form in enumerate(simpler):
                await self._send_piece(message, form, index, f"{part}.{number}")

    async def _completed(self, message: OutboundMessage, draft: ShownDraft, piece: Piece) -> bool:
        """Replace the draft by `piece`; return False if the draft had to be removed."""
        is_shown = draft.shown == piece.text and not piece.buttons
        if is_shown and not self._platform.completes_drafts:
            return True
        for form in (piece, replace(piece, text=piece.text.plain)):
            if draft.shown is None:
                # Platforms refuse an edit that changes nothing, and an edit of a deleted message,
                # in the same way. So after an edit of unknown outcome, another edit does not help.
                break
            try:
                await self._edit(message.chat_id, draft, form)
            except CallFailed as error:
                if error.cause is not Cause.REFUSED:
                    raise
            else:
                return True
        await self._remove(message.chat_id, draft.message_id)
        return False

    async def _edit(self, chat_id: str, draft: ShownDraft, piece: Piece) -> None:
        before, draft.shown = draft.shown, None
        try:
            await self._platform.edit(chat_id, draft.message_id, piece)
        except CallFailed as error:
            if error.cause is not Cause.UNREACHABLE:
                draft.shown = before
            raise
        draft.shown = piece.text

    async def _remove(self, chat_id: str, message_id: str) -> None:
        try:
            await self._platform.delete(chat_id, message_id)
        except CallFailed as error:
            if error.cause is not Cause.REFUSED:
                raise


def _beginning(markdown: str, limits: SendLimits) -> RichText | None:
    """Return as much as one message can show, or ``None`` if the text is empty."""
    # A draft does not show the rest of a long answer.
    rich = render_markdown(markdown[: 2 * limits.text], limits.schemes)
    parts = split_rich(rich, limits.text, limits.measure)
    return parts[0] if parts else None
