"""EmailPlatform: a mailbox and an SMTP server as a chat platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from nanobot_core.chat import CallFailed, Cause, ChatPlatform, Piece, SendLimits
from nanobot_email import mailbox, smtp
from nanobot_email.address import UNVERIFIED, ChatRef
from nanobot_email.mail_thread import MailThread
from nanobot_email.mailbox import Mailbox
from nanobot_email.mapping import Mail, Place, Skipped, message_id_of, read_mail
from nanobot_email.memory import Backlog, Thread
from nanobot_email.outgoing import Envelope, build_mail
from nanobot_email.settings import MAX_CHARS

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import Attachment, Intake
    from nanobot_email.memory import EmailMemory
    from nanobot_email.settings import EmailSettings

T = TypeVar("T")
_MB = 1024 * 1024
_LARGEST_MAIL = 35 * _MB
_WAITING_BYTES = 50 * _MB
_BATCH = 50
_STORE_S = 5.0
_STEP_S = 30.0
_CLOSE_S = 1.0
_LONG_LIVED_S = 60.0


class EmailPlatform(ChatPlatform):
    """One connection for reading; sending makes its own."""

    def __init__(self, ctx: PluginContext, settings: EmailSettings, memory: EmailMemory) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = settings
        self._memory = memory
        self.limits = SendLimits(
            text=MAX_CHARS,
            caption=MAX_CHARS,
            file_bytes=settings.max_attachment_size,
            kinds={},
            album_files=settings.max_attachments_per_email,
            album_bytes=max(settings.max_attachment_size, 15 * _MB),
            albums=(frozenset({"file"}),),
        )
        self._mailbox = Mailbox(settings)
        self._thread = MailThread(self._interrupt)
        self._opening = asyncio.Lock()
        self._position: tuple[int, int] | None = None
        self._contents: dict[str, bytes] = {}
        self._handled: list[int] = []
        self._skipped: list[int] = []

    async def sign_in(self) -> str:
        """Open the mailbox, log in to the SMTP server, and return the agent's address."""
        settings = self._settings
        if settings.gap:
            raise CallFailed(Cause.CREDENTIALS, settings.gap)
        if not settings.verifies:
            self._log.warning(
                "email: verify_dkim and verify_spf are off, so anyone can write in the name of "
                "the senders in allow_from"
            )
        await self._open()
        try:
            await smtp.check_login(settings)
        except CallFailed as error:
            if error.cause is Cause.CREDENTIALS:
                raise
            # Mail can be received and stored without it; answers wait.
            self._log.warning("email: {}", error)
        return settings.own_address

    async def receive(self, intake: Intake) -> None:
        """Read new mail until cancelled. Servers end old connections; a new one is made at once."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                await self._read(intake)
            except CallFailed as error:
                is_old = loop.time() - began_s > _LONG_LIVED_S
                if error.cause is not Cause.UNREACHABLE or not is_old:
                    raise
                self._log.debug("email: connecting again: {}", error)
            await self.aclose()

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a mail and return its Message-ID."""
        settings = self._settings
        if settings.gap:
            raise CallFailed(Cause.CREDENTIALS, settings.gap)
        chat = ChatRef.parse(chat_id)
        if chat is None:
            raise CallFailed(Cause.REFUSED, "the chat is not a mail address")
        if chat.thread is not None and not settings.auto_reply_enabled:
            self._log.info("email: an answer is left out, because auto_reply_enabled is false")
            return ""
        if not await self._may_write_to(chat.address):
            reason = "mail is sent only to addresses in allow_from and to people who have written"
            raise CallFailed(Cause.REFUSED, reason)
        envelope = Envelope(
            sender=settings.own_address,
            chat=chat,
            thread=await self._memory.thread(chat_id),
            answered=message_id_of(reply_to or ""),
            prefix=settings.subject_prefix,
            key=key or uuid4().hex,
            sent_at=self._ctx.clock.now(),
        )
        try:
            mail = await asyncio.to_thread(build_mail, piece, envelope)
        except (OSError, ValueError) as error:
            raise CallFailed(Cause.REFUSED, f"the mail cannot be made: {error}") from error
        message_id = str(mail["Message-ID"])
        await self._count(message_id)
        try:
            await smtp.submit(mail, chat.address, settings)
        except CallFailed as error:
            if error.cause is not Cause.UNREACHABLE:
                await self._memory.forget_sent(message_id)
            raise
        return message_id

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file, which is in memory until its mail is stored."""
        content = self._contents.get(file.ref)
        if content is None:
            raise CallFailed(Cause.REFUSED, "the file is no longer there")
        yield content

    async def aclose(self) -> None:
        """Log out and close the connection."""
        self._position = None
        with suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._call(self._mailbox.close)
        self._interrupt()
        await self._thread.close()

    # --- receiving

    async def _open(self) -> tuple[int, int]:
        """Connect, unless there is a connection; return UIDVALIDITY and the next UID."""
        async with self._opening:
            if self._position is None:
                self._mailbox = Mailbox(self._settings)
                self._position = await self._call(self._mailbox.open)
            return self._position

    async def _read(self, intake: Intake) -> None:
        validity, next_uid = await self._open()
        backlog = Backlog(await self._watermark(validity, next_uid - 1))
        saved = backlog.watermark
        while True:
            found = await self._call(partial(self._mailbox.above, backlog.taken))
            for uid in found[:_BATCH]:
                intake.alive()
                await self._take(uid, validity, backlog, intake)
                saved = await self._save(validity, backlog, saved)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STORE_S):
                    await backlog.emptied()
            saved = await self._save(validity, backlog, saved)
            await self._act()
            intake.alive()
            if len(found) <= _BATCH:
                await self._call(partial(self._mailbox.wait, self._settings.poll_interval_seconds))
                intake.alive()

    async def _take(self, uid: int, validity: int, backlog: Backlog, intake: Intake) -> None:
        """Read a mail and pass it on, when earlier mail leaves enough memory."""
        size = await self._call(partial(self._mailbox.size_of, uid)) or 0
        is_large = size > _LARGEST_MAIL
        size = 0 if is_large else size
        backlog.take(uid, size)
        while backlog.size > max(_WAITING_BYTES, size):
            try:
                async with asyncio.timeout(_STEP_S):
                    await backlog.changed()
            except TimeoutError:
                await self._call(self._mailbox.keep)
                intake.alive()
        raw = await self._call(partial(self._mailbox.read, uid, only_header=is_large))
        if raw is None:  # another program has deleted it
            backlog.finish(uid)
            return
        note = f"[the mail is larger than {_LARGEST_MAIL // _MB} MB; it was not read]"
        place = Place(validity, uid, note if is_large else "")
        now = self._ctx.clock.now()
        mail = await asyncio.to_thread(read_mail, raw, place, self._settings, now)
        if isinstance(mail, Skipped):
            self._log.info("email: mail {} is left out: {}", uid, mail.reason)
            self._skipped.append(uid)
            backlog.finish(uid)
            return
        await self._pass_on(mail, uid, backlog, intake)

    async def _pass_on(self, mail: Mail, uid: int, backlog: Backlog, intake: Intake) -> None:
        chat_id = mail.received.message.chat_id
        await self._memory.keep_thread(chat_id, Thread(mail.subject, mail.references))
        self._contents |= mail.contents

        async def settled(is_admitted: bool) -> None:
            (self._handled if is_admitted else self._skipped).append(uid)
            for ref in mail.contents:
                self._contents.pop(ref, None)
            backlog.finish(uid)

        intake.put(replace(mail.received, settled=settled), lambda: None)

    async def _watermark(self, validity: int, newest: int) -> int:
        """Return the UID above which mail is new. Mail from before the first start is old."""
        known = await self._memory.watermarks.get(self._place)
        if isinstance(known, dict) and known.get("validity") == validity:
            uid = known.get("uid")
            if isinstance(uid, int):
                return uid
        if known is not None:
            self._log.warning(
                "email: the server has numbered the mailbox again; mail from before is left out"
            )
        await self._store_watermark(validity, newest)
        return newest

    async def _save(self, validity: int, backlog: Backlog, saved: int) -> int:
        """Store the watermark if it has risen above `saved`, and return it."""
        reached = backlog.watermark  # it may rise further while this is stored
        if reached > saved:
            await self._store_watermark(validity, reached)
        return reached

    async def _store_watermark(self, validity: int, uid: int) -> None:
        try:
            await self._memory.watermarks.put(self._place, {"validity": validity, "uid": uid})
        except OSError as error:
            # The inbox recognises mail that is read again after a restart.
            self._log.warning("email: cannot store how far the mailbox is read: {}", error)

    async def _act(self) -> None:
        """Mark or move the mail that is stored."""
        settings = self._settings
        handled, self._handled = self._handled, []
        skipped, self._skipped = self._skipped, []
        if settings.mark_seen and handled:
            await self._call(partial(self._mailbox.mark_seen, handled))
        moved = handled if settings.post_action_ignore_skipped else sorted(handled + skipped)
        folder = settings.post_action_move_mailbox
        if settings.post_action == "delete" and moved:
            await self._call(partial(self._mailbox.remove, moved))
        elif settings.post_action == "move" and moved and folder:
            await self._call(partial(self._mailbox.move, moved, folder))

    @property
    def _place(self) -> str:
        settings = self._settings
        return f"{settings.imap_username}@{settings.imap_host}/{settings.imap_mailbox}"

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await self._thread.run(work)
        except mailbox.FAILURES as error:
            raise mailbox.failure_of(error) from error

    def _interrupt(self) -> None:
        self._mailbox.interrupt()

    # --- sending

    async def _may_write_to(self, address: str) -> bool:
        allowed = self._settings.allow_from
        is_listed = {"*", address, f"{UNVERIFIED}{address}"} & set(allowed)
        return bool(is_listed) or await self._memory.is_known(address)

    async def _count(self, message_id: str) -> None:
        """Count a mail before it is sent; a repetition counts once.

        Raises:
            CallFailed: the limit of the day is reached.
        """
        now = self._ctx.clock.now().astimezone(self._ctx.timezone)
        limit = self._settings.daily_limit
        if not await self._memory.count_sent(message_id, now.date().isoformat(), limit):
            midnight = datetime.combine(now.date() + timedelta(days=1), time(), now.tzinfo)
            reason = (
                f"{limit} mails were sent today, the most that daily_limit of channels.email allows"
            )
            wait_s = (midnight - now).total_seconds()
            raise CallFailed(Cause.BUSY, reason, retry_after_s=max(wait_s, 1.0))
