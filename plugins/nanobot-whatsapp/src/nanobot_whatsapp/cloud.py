"""CloudPlatform: a phone number of the Cloud API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_core.chat import CallFailed, Cause, ChatPlatform
from nanobot_whatsapp import outgoing, wire
from nanobot_whatsapp.codes import BAD_VALUE, WINDOW_CLOSED, meaning_of
from nanobot_whatsapp.envelope import Change, changes, parsed
from nanobot_whatsapp.graph import GraphApi, GraphFailed
from nanobot_whatsapp.mapping import Sender, person_of, read_message
from nanobot_whatsapp.memory import build_memory
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.webhook import build_route
from nanobot_whatsapp.window import ReplyWindow

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Attachment, Intake, Piece, Received
    from nanobot_whatsapp.timing import TimeLimits

_SHOWN_CHARS = 80
_NEEDED = {
    "access_token": "create a token of a system user at business.facebook.com > Settings > System "
    "users, with the permission whatsapp_business_messaging",
    "phone_number_id": "copy it at developers.facebook.com > the app > WhatsApp > API Setup",
    "app_secret": "copy it at developers.facebook.com > the app > App settings > Basic; without "
    "it, no call of WhatsApp can be verified",
    "verify_token": "invent one, and enter the same at developers.facebook.com > the app > "
    "WhatsApp > Configuration > Webhook",
}
"""Settings that have to be set, and where their values are found."""
_NEXT_STEPS = """\
Now enter the address of the gateway at developers.facebook.com > the app > WhatsApp > Configuration
> Webhook, while the gateway runs with nanobot-http behind an https address:
  Callback URL   https://YOUR-ADDRESS/whatsapp
  Verify token   the value of channels.whatsapp.verify_token
and subscribe to the field "messages"."""


def open_cloud(ctx: PluginContext, limits: TimeLimits) -> CloudPlatform:
    """Return a number that is not signed in. Call it in a thread, because it reads certificates.

    Raises:
        CallFailed: a setting is missing.
    """
    settings = ctx.settings(WhatsAppSettings)
    values = {
        "access_token": settings.access_token.get_secret_value(),
        "phone_number_id": settings.phone_number_id,
        "app_secret": settings.app_secret.get_secret_value(),
        "verify_token": settings.verify_token.get_secret_value(),
    }
    missing = [
        f"channels.whatsapp.{name} is missing: {where}"
        for name, where in _NEEDED.items()
        if not values[name]
    ]
    if missing:
        # In a terminal, each is on a line of its own.
        between = "; " if ctx.gateway is not None else "\n"
        raise CallFailed(Cause.CREDENTIALS, between.join(missing))
    return CloudPlatform(ctx, GraphApi(settings, limits), settings, limits)


class CloudPlatform(ChatPlatform):
    """A phone number; its chats are named by the person's phone number or user id."""

    limits = outgoing.LIMITS

    def __init__(
        self, ctx: PluginContext, api: GraphApi, settings: WhatsAppSettings, limits: TimeLimits
    ) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._api = api
        self._settings = settings
        self._check_s = limits.check_s
        self._memory = ctx.shared(build_memory)
        self._window = ReplyWindow(ctx, api, settings.template, self._memory)
        self._reading = asyncio.Lock()

    async def sign_in(self) -> str:
        """Return the agent's name and number; in a terminal, also what to enter at WhatsApp."""
        number = await self._api.describe_number()
        account = f"{number.get('display_phone_number')} ({number.get('verified_name')})"
        # Only `nanobot channels login` signs in outside a gateway.
        return account if self._ctx.gateway is not None else f"{account}\n{_NEXT_STEPS}"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    # --- sending

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text, a file or buttons; WhatsApp has no key against repetitions."""
        to = outgoing.recipient(chat_id)
        if to is None:
            reason = f"'{chat_id}' is not a chat; use a phone number with its country code"
            raise CallFailed(Cause.FORBIDDEN, reason)
        if await self._window.is_closed(chat_id):
            return await self._window.send_template(to, chat_id, piece)
        quoted = reply_to if self._settings.reply_to_message else None
        try:
            sent = await self._send_piece(to, piece, quoted, key)
        except GraphFailed as error:
            if error.code != WINDOW_CLOSED:
                raise
            return await self._window.send_template(to, chat_id, piece)
        names = ", ".join(upload.path.name for upload in piece.files)
        await self._note_sent(sent, piece.text.text or f"[{names}]")
        return sent

    async def show_typing(self, chat_id: str) -> None:
        """Mark the person's newest message as read, and show a typing indicator for 25 seconds."""
        newest = self._memory.latest.get(chat_id)
        if newest is not None:
            typing: JsonObject = {"type": "text"}
            body: JsonObject = {"status": "read", "message_id": newest, "typing_indicator": typing}
            await self._api.post(body)

    async def _send_piece(self, to: JsonObject, piece: Piece, quoted: str | None, key: str) -> str:
        body, text = await self._body_of(piece)
        if text:
            # This part cannot be in one message with the file or the buttons.
            half = f"{key} text"
            if not (key and self._memory.halves.get(half)):
                sent = await self._send_quoting(to, outgoing.text_body(text), quoted)
                self._memory.halves.put(half, value=True)
                await self._note_sent(sent, piece.text.text)
            quoted = None
        return await self._send_quoting(to, body, quoted)

    async def _body_of(self, piece: Piece) -> tuple[JsonObject, str]:
        """Return a message, and the text that has to be sent before it."""
        text = outgoing.markup(piece.text)
        if piece.files:
            upload = piece.files[0]
            try:
                kind, mime_type = await asyncio.to_thread(outgoing.file_type_of, upload)
                name = outgoing.file_name_of(upload.path, kind)
                media_id = await self._api.upload(upload.path, name, mime_type)
            except OSError as error:
                reason = f"'{upload.path.name}' cannot be read: {error.strerror}"
                raise CallFailed(Cause.REFUSED, reason) from error
            caption = text if outgoing.takes_caption(kind) else ""
            return outgoing.media_body(kind, media_id, caption, name), "" if caption else text
        if not piece.buttons:
            return outgoing.text_body(text), ""
        buttons = [button for row in piece.buttons for button in row]
        fits = len(text) <= outgoing.CHOICE_CHARS
        choice = outgoing.choice_body(text if fits else "", buttons)
        if choice is not None:
            return choice, "" if fits else text
        words = outgoing.words(buttons)
        whole = f"{text}\n\n{words}"
        if len(whole) <= outgoing.LIMITS.text:
            return outgoing.text_body(whole), ""
        return outgoing.text_body(shorten(words, outgoing.LIMITS.text)), text

    async def _send_quoting(self, to: JsonObject, body: JsonObject, quoted: str | None) -> str:
        if quoted is None:
            return await self._api.send({**to, **body})
        try:
            return await self._api.send({**to, "context": {"message_id": quoted}, **body})
        except GraphFailed as error:
            # Messages of more than 30 days cannot be quoted.
            if error.code != BAD_VALUE:
                raise
            return await self._api.send({**to, **body})

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Receive calls of WhatsApp, and regularly check that it responds."""
        route = self._ctx.shared(build_route)
        handler = partial(self._take, intake)
        route.take = handler
        try:
            while True:
                intake.alive()
                await self._check()
        finally:
            if route.take is handler:
                route.take = None

    async def _check(self) -> None:
        """Wait until WhatsApp has responded again; messages arrive even while it does not."""
        while True:
            await self._ctx.clock.sleep(self._check_s)
            try:
                await self._api.describe_number()
            except CallFailed as error:
                if error.cause not in {Cause.UNREACHABLE, Cause.BUSY}:
                    raise
                self._log.warning("a check of WhatsApp failed: {}", error)
            else:
                return

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        return self._api.download(file.ref)

    async def _take(self, intake: Intake, body: object) -> bool:
        """Store everything in the body of a call; return False if it has to be sent again."""
        received: list[Received] = []
        intake.alive()
        # Lookups must not change the order of calls.
        async with asyncio.TaskGroup() as group, self._reading:
            for change in changes(body):
                if change.phone_number_id == self._settings.phone_number_id:
                    received += await self._read_messages(intake, change)
                    await self._read_statuses(change)
            taking = [group.create_task(intake.take(each)) for each in received]
            # The tasks begin in order, and each puts its message into its queue at once.
            await asyncio.sleep(0)
        return all(task.result() for task in taking)

    async def _read_messages(self, intake: Intake, change: Change) -> list[Received]:
        contacts = list(parsed(wire.Person, change.contacts, self._log.warning))
        for fault in parsed(wire.Fault, change.errors, self._log.warning):
            self._log.warning("WhatsApp reports: {} (error {})", fault.title, fault.code)
        found = []
        for message in parsed(wire.Message, change.messages, self._log.warning):
            sender = await self._sender_of(message, contacts)
            if sender is None:
                self._log.warning("a message of WhatsApp without a sender is dropped")
                continue
            refers_to = message.reaction.message_id if message.reaction else message.context.id
            quoted = await self._memory.quoted(refers_to)
            received = intake.parsed(partial(read_message, message, sender, quoted))
            if received is not None:
                found.append(replace(received, settled=partial(self._settled, sender, received)))
        return found

    async def _sender_of(
        self, message: wire.Message, contacts: Iterable[wire.Person]
    ) -> Sender | None:
        """Return who wrote; the same person has one id, whichever WhatsApp shows."""
        person = person_of(message, contacts)
        if person is None:
            return None
        phone, user_id = person.wa_id, person.user_id
        if user_id and not phone:
            phone = await self._memory.phone_of(user_id)
        sender_id = phone or user_id
        if sender_id is None:
            return None
        return Sender(id=sender_id, user_id=user_id, name=person.profile.name)

    async def _settled(self, sender: Sender, received: Received, is_admitted: bool) -> None:
        """Remember what an admitted message shows."""
        message = received.message
        if not is_admitted:
            return
        message_id = message.dedupe_key or ""
        self._memory.latest.put(message.chat_id, message_id)
        if sender.user_id is not None and sender.user_id != sender.id:
            await self._memory.learn_person(sender.user_id, sender.id)
        if message.timestamp is not None:
            await self._memory.heard(message.chat_id, message.timestamp.timestamp())
        await self._memory.note_said(message_id, "the user", received.said)

    async def _read_statuses(self, change: Change) -> None:
        """Report messages of the agent that WhatsApp accepted and then did not deliver."""
        for status in parsed(wire.Status, change.statuses, self._log.warning):
            if status.status != "failed":
                continue
            fault = status.errors[0] if status.errors else wire.Fault()
            self._log.warning(
                "WhatsApp did not deliver {}: {} (error {}: {})",
                *(status.id, meaning_of(fault.code)[1], fault.code, fault.title),
            )
            self._memory.undelivered.put(status.id, fault.code)
            await self._report_undelivered(status.id)

    async def _note_sent(self, message_id: str, text: str) -> None:
        """Remember a message, for quotes and for statuses, which contain only its id."""
        await self._memory.note_said(message_id, "the agent", text)
        await self._report_undelivered(message_id)

    async def _report_undelivered(self, message_id: str) -> None:
        """Notify the owner of an answer that was not delivered.

        It is called when the answer is known, and when the status arrives, which may be earlier.
        """
        code = self._memory.undelivered.get(message_id)
        answer = await self._memory.quoted(message_id) if code is not None else None
        if code is None or answer is None or self._ctx.gateway is None:
            return
        text = f"WhatsApp did not deliver an answer: {meaning_of(code)[1]}"
        if code == WINDOW_CLOSED and self._settings.template.name:
            text += f". The template '{self._settings.template.name}' can still be sent"
        began = shorten(answer.text, _SHOWN_CHARS)
        await self._ctx.gateway.notify_owner(f"{text}. It began: {began}", f"whatsapp:{message_id}")
