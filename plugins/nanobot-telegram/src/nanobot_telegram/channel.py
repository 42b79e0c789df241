"""The channel: connects, receives, sends and stops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nanobot_core import Channel, ChannelCapabilities, DeliveryError, shorten
from nanobot_telegram.call import CHANNEL, CallFailed, TimeLimits
from nanobot_telegram.memory import build_memory
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.webhook import build_route

if TYPE_CHECKING:
    from nanobot_core import Draft, Inbox, OutboundMessage, PluginContext
    from nanobot_telegram.client import Client
    from nanobot_telegram.delivery import Delivery
    from nanobot_telegram.intake import Intake

_WEBHOOK_CHECK_S = 45.0
_SETTLE_S = 2.0
"""Seconds for pending drafts when the channel stops. The host waits for four seconds in total."""
_MENU_NAME = re.compile(r"[a-z0-9_]{1,32}")
_MENU_COMMANDS = 100
_SUMMARY_CHARS = 256
"""Names that ``setMyCommands`` accepts."""


class TelegramChannel(Channel):
    """A Telegram bot."""

    name = CHANNEL
    capabilities = ChannelCapabilities(
        max_message_chars=4_000,
        markdown="telegram",
        # Telegram allows a bot about one message or edit per second in a chat.
        edit_interval_s=1.5,
        # Telegram shows the indicator for five seconds.
        typing_interval_s=4.0,
        silence_limit_s=90.0,
        threads=True,
        buttons=True,
        media=("image", "audio", "video", "file"),
    )

    def __init__(self, ctx: PluginContext, limits: TimeLimits | None = None) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._limits = limits or TimeLimits()
        self._settings = ctx.settings(TelegramSettings)
        self._memory = ctx.shared(build_memory)
        self._connecting = asyncio.Lock()
        self._connected: tuple[Client, Delivery] | None = None
        self._stopping = asyncio.Event()
        self._received = asyncio.Event()
        self._received.set()

    async def start(self, inbox: Inbox) -> None:
        """Receive messages until cancelled or until `stop` is called.

        The connection remains open for pending messages; `stop` closes it.

        Raises:
            CallFailed: Telegram cannot be reached, or does not allow this program to receive.
        """
        self._received.clear()
        try:
            await self._until_stopped(self._receive(inbox))
        finally:
            self._received.set()

    async def stop(self) -> None:
        """End `start` and close the connection. Can be called again."""
        self._stopping.set()
        await self._received.wait()
        async with self._connecting:
            connected, self._connected = self._connected, None
            if connected is not None:
                client, delivery = connected
                await delivery.settle(_SETTLE_S)
                await client.aclose()

    async def send(self, message: OutboundMessage) -> None:
        """Deliver a message in pieces. A retry continues with the piece that failed.

        Raises:
            DeliveryError: a piece was not accepted.
        """
        await (await self._delivery()).send(message)

    async def show_draft(self, draft: Draft) -> None:
        """Show an unfinished answer as a message that is edited as the answer grows.

        Raises:
            DeliveryError: Telegram did not accept it.
        """
        await (await self._delivery()).show_draft(draft)

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        """Remove a draft whose answer will not follow.

        Raises:
            DeliveryError: Telegram did not remove it.
        """
        await (await self._delivery()).drop_draft(chat_id, draft_id)

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator for five seconds.

        Raises:
            DeliveryError: Telegram did not accept it.
        """
        await (await self._delivery()).show_typing(chat_id)

    async def login(self) -> str:
        """Check the token and return the bot's name.

        Raises:
            CallFailed: Telegram does not accept the token, or cannot be reached.
        """
        client, _ = await self._connect()
        me = await client.get_me()
        return f"@{me.username} ({me.first_name}, id {me.id})"

    # --- connection

    async def _connect(self) -> tuple[Client, Delivery]:
        async with self._connecting:
            if self._connected is None:
                self._connected = await asyncio.to_thread(self._open)
            return self._connected

    def _open(self) -> tuple[Client, Delivery]:
        # Importing the SDK takes a quarter of a second, so this runs in a thread.
        from nanobot_telegram.client import open_client
        from nanobot_telegram.delivery import Delivery

        client = open_client(self._settings, self._limits)
        quotes = self._settings.reply_to_message
        spawn = self._ctx.spawn
        return client, Delivery(client.writer, self._memory, spawn, quotes_question=quotes)

    async def _delivery(self) -> Delivery:
        if self._stopping.is_set():
            raise DeliveryError(CHANNEL, "the channel is stopping", retryable=True)
        try:
            _, delivery = await self._connect()
        except CallFailed as error:
            raise error.as_delivery_error from error
        return delivery

    # --- receiving

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(work, name="telegram receives")
                stopping = group.create_task(self._stopping.wait(), name="telegram stops")
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                stopping.cancel()
        except BaseExceptionGroup as errors:
            raise _first(errors) from errors

    async def _receive(self, inbox: Inbox) -> None:
        # Listing channels does not need the modules that read updates.
        await asyncio.to_thread(import_module, "nanobot_telegram.intake")
        from nanobot_telegram.intake import Intake
        from nanobot_telegram.polling import Poller

        client, delivery = await self._connect()
        bot = await client.get_me()
        inbox.alive()
        drop_pending = self._settings.drop_pending_updates and not self._memory.has_begun
        kinds = ["message", "callback_query"]
        if self._settings.edited_messages:
            kinds.append("edited_message")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offer_commands(client), name="telegram menu")
            group.create_task(delivery.remove_leftovers(), name="telegram leftovers")
            intake = Intake(self._ctx, client, inbox, bot, group)
            if self._settings.webhook.url:
                await self._serve(client, inbox, intake, kinds, drop_pending=drop_pending)
            else:
                await client.begin_polling(drop_pending=drop_pending)
                self._memory.has_begun = True
                await Poller(self._ctx, client, inbox, intake, kinds).run()

    async def _serve(
        self, client: Client, inbox: Inbox, intake: Intake, kinds: list[str], *, drop_pending: bool
    ) -> None:
        """Receive updates from the webhook, and regularly check that Telegram responds."""
        answers: set[asyncio.Future[bool]] = set()

        async def take(update: object) -> bool:
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            answers.add(answer)
            try:
                intake.put(update, lambda: None if answer.done() else answer.set_result(True))
                return await answer
            finally:
                answers.discard(answer)

        webhook = self._settings.webhook
        route = self._ctx.shared(build_route)
        route.handler = take
        try:
            await client.set_webhook(
                webhook.url, webhook.secret.get_secret_value(), kinds, drop_pending=drop_pending
            )
            self._memory.has_begun = True
            while True:
                inbox.alive()
                await self._ctx.clock.sleep(_WEBHOOK_CHECK_S)
                await client.get_me()
        finally:
            route.handler = None
            for answer in answers:
                if not answer.done():
                    answer.set_result(False)

    async def _offer_commands(self, client: Client) -> None:
        """Show the gateway's commands in the menu. If that fails, users can still type them."""
        gateway = self._ctx.gateway
        offered = dict(gateway.commands()) if gateway is not None else {}
        menu = {
            name: shorten(summary or name, _SUMMARY_CHARS)
            for name, summary in offered.items()
            if _MENU_NAME.fullmatch(name)
        }
        try:
            await client.set_commands(dict(list(menu.items())[:_MENU_COMMANDS]))
        except CallFailed as error:
            self._log.info("the menu of commands cannot be set: {}", error)


def build_channel(ctx: PluginContext) -> TelegramChannel:
    """Return a channel that is not connected."""
    return TelegramChannel(ctx)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a group of tasks."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
