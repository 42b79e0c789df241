"""Waiting: people see that their message is being worked on, from its receipt to its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from nanobot_core.errors import BusError, NanobotError
from nanobot_core.messages import OutboundMessage

if TYPE_CHECKING:
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.channel import Channel
    from nanobot_core.messages import InboundMessage
    from nanobot_core.tasks import Spawn

TYPING_LIMIT_S = 600.0
"""Nobody believes a sign of typing for longer."""
STILL_WAITING = "I have your message; others come first, so the answer will take a while."


class Waiting:
    """Repeats the sign of typing, and tells whoever has to wait long.

    Args:
        channel: returns the running channel of a name, or ``None``.
        outbox: takes the note to whoever waits.
        spawn: starts tasks that the application owns.
        clock: source of time.
        patience_s: seconds after which a message that nobody works on is excused.
    """

    def __init__(
        self,
        channel: Callable[[str], Channel | None],
        outbox: Outbox,
        *,
        spawn: Spawn,
        clock: Clock,
        patience_s: float,
    ) -> None:
        self._channel = channel
        self._outbox = outbox
        self._spawn = spawn
        self._clock = clock
        self._patience_s = patience_s
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def expect(self, message: InboundMessage) -> None:
        """A message is stored; somebody waits for its reply."""
        channel = self._channel(message.channel)
        if channel is None or message.id in self._tasks:
            return
        tasks = [self._spawn(self._excuse(message), name=f"patience:{message.id}")]
        if channel.capabilities.typing_interval_s is not None:
            tasks.append(self._spawn(self._type(message), name=f"typing:{message.id}"))
        self._tasks[message.id] = tasks

    def begun(self, message: InboundMessage) -> None:
        """A turn works on the message: it waits no longer for its turn."""
        if tasks := self._tasks.get(message.id):
            tasks[0].cancel()

    def done(self, message: InboundMessage) -> None:
        """The reply is on its way, or there will be none."""
        for task in self._tasks.pop(message.id, ()):
            task.cancel()

    async def _type(self, message: InboundMessage) -> None:
        started = self._clock.monotonic_s()
        while self._clock.monotonic_s() - started < TYPING_LIMIT_S:
            channel = self._channel(message.channel)
            interval_s = channel.capabilities.typing_interval_s if channel else None
            if channel is None or interval_s is None:
                return
            try:
                async with asyncio.timeout(interval_s):
                    await channel.show_typing(message.chat_id)
            except (NanobotError, TimeoutError):
                pass  # a sign that did not arrive is not worth a word
            except Exception as error:  # noqa: BLE001 - isolation point: a channel's code
                from loguru import logger

                reason = f"{type(error).__name__}: {error}"
                logger.warning("{}: no sign of typing: {}", message.channel, reason)
                return
            await self._clock.sleep(interval_s)

    async def _excuse(self, message: InboundMessage) -> None:
        await self._clock.sleep(self._patience_s)
        note = OutboundMessage(
            channel=message.channel,
            chat_id=message.chat_id,
            content=STILL_WAITING,
            kind="notice",
            idempotency_key=f"{message.id}:waiting",
        )
        try:
            await self._outbox.publish(note)
        except BusError as error:
            from loguru import logger

            logger.warning("{}: nobody could be told to wait: {}", message.channel, error)
