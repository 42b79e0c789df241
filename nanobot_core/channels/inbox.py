"""ChannelInbox: from a channel to the message queue."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nanobot_core.channels.access import Verdict, decide, fault_of, first_part, with_names
from nanobot_core.errors import BusError, HookError
from nanobot_core.events import MessageReceived
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, OutboundMessage

if TYPE_CHECKING:
    from nanobot_core.channels.live import WaitIndicator
    from nanobot_core.channels.pairing import PairingStore
    from nanobot_core.channels.ports import ChannelPorts
    from nanobot_core.config.models import ChannelSettings
    from nanobot_core.contracts.channel import Complete

_T = TypeVar("_T")
RATE_WINDOW_S = 60.0
RATED_SENDERS = 1_000
TOO_FAST = "You have sent too many messages. I left out some; please wait a minute."


class ChannelInbox:
    """The `Inbox` of one channel.

    Args:
        settings: of the channel.
        ports: what all channels share.
        indicator: shows people that their message is being worked on.
        on_alive: called when the platform has answered.
        on_received: called when a message is stored.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        ports: ChannelPorts,
        indicator: WaitIndicator,
        *,
        on_alive: Callable[[], None],
        on_received: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._indicator = indicator
        self._on_alive = on_alive
        self._on_received = on_received
        self._recent: OrderedDict[str, deque[float]] = OrderedDict()

    def alive(self) -> None:
        """Note that the platform has just answered."""
        self._on_alive()

    async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
        """Admit and store a message; see `Inbox.publish`."""
        if self._ports.stopping.is_set():
            msg = "the gateway is stopping and accepts no more messages"
            raise BusError(msg)
        self._on_alive()
        if fault := fault_of(message):
            from loguru import logger

            logger.warning("{}: refused a message: {}", message.channel, fault)
            return False
        # A platform's message has the rights of its sender, and no others.
        message = replace(with_names(message), assignment=None)
        if not await self._is_known(message):
            return False
        times = self._times_of(message)
        if not await self._within_rate(message, times) or not await self._is_allowed(message):
            return False
        is_stored = False
        try:
            is_stored = await self._store(message, complete)
        finally:
            if not is_stored and times:
                # A message that a platform retries must not count against its sender each time.
                times.pop()
        return is_stored

    async def _store(self, message: InboundMessage, complete: Complete | None) -> bool:
        if complete is not None:
            message = _of_same_origin(await complete(message), message)
        message = await self._completed(message)
        if not await self._ports.bus.publish_inbound(message):
            return False
        self._on_received()
        if not message.is_control:
            self._indicator.expect(message)
        return True

    async def _is_known(self, message: InboundMessage) -> bool:
        """Whether the access lists admit the sender; an unknown one may get a pairing code."""
        from loguru import logger

        verdict = await verdict_on(message, self._settings, self._ports.pairing)
        if verdict == "unknown":
            bound = logger.bind(session=message.session_key)
            sender = message.sender_id
            bound.info("{}: refused a message of {}: not in allow_from", message.channel, sender)
            await self._offer_pairing(message)
        return verdict == "admitted"

    async def _is_allowed(self, message: InboundMessage) -> bool:
        """Whether the plugins admit the message."""
        from loguru import logger

        hooks = self._ports.hooks()
        if not hooks.admit_message:
            return True
        refusal = await hooks.admit_message(MessageReceived(message=message))
        if refusal is not None:
            bound = logger.bind(session=message.session_key)
            bound.info("{}: refused a message: {}", message.channel, refusal.reason)
            if refusal.reply:
                key = f"refused:{message.channel}:{message.chat_id}:{self._minute()}"
                await self._notify(message, refusal.reply, key)
        return refusal is None

    async def _offer_pairing(self, message: InboundMessage) -> None:
        """Send an unknown sender a code, except in groups."""
        if message.is_group or not self._settings.pairing:
            return
        asked = await _ask_pairing(partial(self._ports.pairing.request, message))
        if asked is not None:
            text = (
                f"I do not know you yet. To write to me, ask my owner to run "
                f"`nanobot pairing approve {asked.code}` within an hour."
            )
            await self._notify(message, text, f"pairing:{asked.code}")

    def _times_of(self, message: InboundMessage) -> deque[float]:
        """Return the times of the sender's last messages, oldest first."""
        sender = first_part(message.sender_id)
        times = self._recent.setdefault(sender, deque(maxlen=self._settings.rate_limit))
        self._recent.move_to_end(sender)
        if len(self._recent) > RATED_SENDERS:
            self._recent.popitem(last=False)
        return times

    async def _within_rate(self, message: InboundMessage, times: deque[float]) -> bool:
        now = self._ports.clock.monotonic_s()
        if len(times) < self._settings.rate_limit or now - times[0] >= RATE_WINDOW_S:
            times.append(now)
            return True
        sender = first_part(message.sender_id)
        await self._notify(message, TOO_FAST, f"rate:{message.channel}:{sender}:{self._minute()}")
        return False

    def _minute(self) -> int:
        """Return the number of the current minute, for notices that are sent once in each."""
        return int(self._ports.clock.now().timestamp() // RATE_WINDOW_S)

    async def _completed(self, message: InboundMessage) -> InboundMessage:
        message = replace(
            message,
            id=message.id or new_id(),
            timestamp=message.timestamp or self._ports.clock.now(),
        )
        hooks, changed = self._ports.hooks(), message
        try:
            if hooks.rewrite_inbound:
                changed = await hooks.rewrite_inbound(MessageReceived(message=message))
        except HookError as error:
            # The unchanged message must not pass, and the platform retries it.
            msg = f"a plugin failed to process the message: {error}"
            raise BusError(msg) from error
        return replace(
            _of_same_origin(changed, message), is_control=self._ports.is_control(changed.content)
        )

    async def _notify(self, message: InboundMessage, text: str, key: str) -> None:
        await self._ports.outbox.publish(
            OutboundMessage(
                channel=message.channel,
                chat_id=message.chat_id,
                content=text,
                kind="notice",
                idempotency_key=key,
            )
        )


async def verdict_on(
    message: InboundMessage, settings: ChannelSettings, pairing: PairingStore
) -> Verdict:
    """Return whether a message is admitted by the lists of its channel, or by pairing.

    Raises:
        BusError: the list of approved senders cannot be read.
    """
    verdict = decide(message, settings, ())
    if verdict == "unknown":
        approved = await _ask_pairing(partial(pairing.approved, message.channel))
        verdict = decide(message, settings, approved)
    return verdict


async def _ask_pairing(question: Callable[[], _T]) -> _T:
    try:
        return await asyncio.to_thread(question)
    except OSError as error:
        msg = f"cannot use the list of approved senders: {error}"
        raise BusError(msg) from error


def _of_same_origin(changed: InboundMessage, admitted: InboundMessage) -> InboundMessage:
    """Return `changed` with the origin of `admitted`, for which access was granted."""
    return replace(
        changed,
        channel=admitted.channel,
        chat_id=admitted.chat_id,
        sender_id=admitted.sender_id,
        sender_names=(),
        id=admitted.id,
        dedupe_key=admitted.dedupe_key,
        assignment=None,
    )
