"""ChatChannel: a channel over a `ChatPlatform`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from nanobot_core.chat.failure import CallFailed
from nanobot_core.chat.memory import build_memory
from nanobot_core.contracts.channel import Channel, ChannelCapabilities
from nanobot_core.errors import DeliveryError

if TYPE_CHECKING:
    from nanobot_core.chat.delivery import Delivery
    from nanobot_core.chat.platform import ChatPlatform
    from nanobot_core.contracts.channel import Draft, Inbox
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.contracts.login import LoginPrompt
    from nanobot_core.messages import OutboundMessage

_SETTLE_S = 2.0
"""Seconds for pending drafts when the channel stops. The host waits for four seconds in total."""


class ChatChannel(Channel):
    """A channel over a platform: order, retries, pieces, drafts, files and clean ends.

    Args:
        name: of the channel.
        capabilities: what the platform can do.
        connect: returns a platform that is not signed in. It is called in a thread, because it may
            import an SDK; it raises `CallFailed` if a setting is missing.
    """

    def __init__(
        self,
        ctx: PluginContext,
        name: str,
        capabilities: ChannelCapabilities,
        connect: Callable[[], ChatPlatform],
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self._ctx = ctx
        self._connect = connect
        self._memory = ctx.shared(build_memory)
        self._connecting = asyncio.Lock()
        self._connected: tuple[ChatPlatform, Delivery] | None = None
        self._stopping = asyncio.Event()
        self._received = asyncio.Event()
        self._received.set()

    async def start(self, inbox: Inbox) -> None:
        """Receive messages until cancelled or until `stop` is called.

        The connection remains open for pending messages; `stop` closes it.

        Raises:
            CallFailed: the platform cannot be reached, or does not accept the credentials.
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
                platform, delivery = connected
                await delivery.settle(_SETTLE_S)
                await platform.aclose()

    async def send(self, message: OutboundMessage) -> None:
        """Deliver a message in pieces. A retry continues with the piece that failed.

        Raises:
            DeliveryError: a piece was not accepted.
        """
        await (await self._delivery()).send(message)

    async def show_draft(self, draft: Draft) -> None:
        """Show an unfinished answer as a message that is edited as the answer grows.

        Raises:
            DeliveryError: the platform did not accept it.
        """
        await (await self._delivery()).show_draft(draft)

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        """Remove a draft whose answer will not follow.

        Raises:
            DeliveryError: the platform did not remove it.
        """
        await (await self._delivery()).drop_draft(chat_id, draft_id)

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator.

        Raises:
            DeliveryError: the platform did not accept it.
        """
        await (await self._delivery()).show_typing(chat_id)

    async def login(self, prompt: LoginPrompt | None = None) -> str:
        """Sign in, or check the credentials; return who the agent is on the platform.

        Raises:
            CallFailed: the platform does not accept them, or cannot be reached.
        """
        platform, _ = await self._open()
        account = await platform.sign_in()
        if prompt is not None:
            account += await platform.link(prompt)
        return account

    async def _open(self) -> tuple[ChatPlatform, Delivery]:
        async with self._connecting:
            if self._connected is None:
                self._connected = await asyncio.to_thread(self._build)
            return self._connected

    def _build(self) -> tuple[ChatPlatform, Delivery]:
        # Imports take long, so this runs in a thread; listing channels does not need them.
        from nanobot_core.chat.delivery import Delivery

        platform = self._connect()
        return platform, Delivery(self.name, platform, self._memory, self._ctx.spawn)

    async def _delivery(self) -> Delivery:
        if self._stopping.is_set():
            raise DeliveryError(self.name, "the channel is stopping", retryable=True)
        try:
            _, delivery = await self._open()
        except CallFailed as error:
            raise error.as_delivery_error(self.name) from error
        return delivery

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(work, name=f"{self.name} receives")
                stopping = group.create_task(self._stopping.wait(), name=f"{self.name} stops")
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                stopping.cancel()
        except BaseExceptionGroup as errors:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # What fails because it is cancelled must not look like a lost connection.
                raise asyncio.CancelledError from errors
            raise _first(errors) from errors

    async def _receive(self, inbox: Inbox) -> None:
        from nanobot_core.chat.intake import Intake

        platform, delivery = await self._open()
        self.account: str = await platform.sign_in()
        inbox.alive()
        async with asyncio.TaskGroup() as group:
            if self.capabilities.edit_interval_s is not None:
                name = f"{self.name} leftovers"
                group.create_task(delivery.remove_leftovers(), name=name)
            intake = Intake(self._ctx, platform, inbox, group)
            try:
                await platform.receive(intake)
            finally:
                intake.close()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a group of tasks."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
