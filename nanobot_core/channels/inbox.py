"""ChannelInbox: the way in, from a channel to the message queue."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.channels.access import decide, fault_of, first_part, with_names
from nanobot_core.errors import BusError, HookError
from nanobot_core.events import MessageReceived
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, OutboundMessage

if TYPE_CHECKING:
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.channels.pairing import PairingStore
    from nanobot_core.channels.waiting import Waiting
    from nanobot_core.clock import Clock
    from nanobot_core.config.models import ChannelSettings
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.contracts.channel import Complete
    from nanobot_core.hooks.caller import Hooks

RATE_WINDOW_S = 60.0
RATED_SENDERS = 1_000
TOO_FAST = "You write faster than I can read; messages of the last minute were left out."


class Reception:
    """What the inboxes of all channels share.

    Args:
        bus: the message queue.
        outbox: answers to strangers.
        pairing: strangers whom the owner lets in.
        waiting: shows people that their message is being worked on.
        hooks: the present call points.
        is_control: whether a text is a command that must not wait.
        clock: source of time.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        outbox: Outbox,
        pairing: PairingStore,
        waiting: Waiting,
        hooks: Callable[[], Hooks],
        is_control: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self.bus = bus
        self.outbox = outbox
        self.pairing = pairing
        self.waiting = waiting
        self.hooks = hooks
        self.is_control = is_control
        self.clock = clock
        self.is_open: bool = True
        """Whether messages are taken in; false while the gateway ends."""


class ChannelInbox:
    """The `Inbox` of one channel.

    Args:
        settings: of the channel.
        reception: what all inboxes share.
        on_alive: told that the platform has answered.
    """

    def __init__(
        self, settings: ChannelSettings, reception: Reception, on_alive: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._reception = reception
        self._on_alive = on_alive
        self._recent: OrderedDict[str, deque[float]] = OrderedDict()

    def alive(self) -> None:
        """Say that the platform has just answered."""
        self._on_alive()

    async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
        """Admit and store a message; see `Inbox.publish`."""
        reception = self._reception
        if not reception.is_open:
            msg = "the gateway is about to end and takes no more messages"
            raise BusError(msg)
        self._on_alive()
        if fault := fault_of(message):
            from loguru import logger

            logger.warning("{}: a message was refused: {}", message.channel, fault)
            return False
        message = with_names(message)
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
                # What a platform offers again and again must not use up its sender's share.
                times.pop()
        return is_stored

    async def _store(self, message: InboundMessage, complete: Complete | None) -> bool:
        if complete is not None:
            message = _of_same_origin(await complete(message), message)
        message = await self._completed(message)
        if not await self._reception.bus.publish_inbound(message):
            return False
        if not message.is_control:
            self._reception.waiting.expect(message)
        return True

    async def _is_known(self, message: InboundMessage) -> bool:
        """Whether the access lists let the sender in; a stranger is told how to be let in."""
        from loguru import logger

        verdict = decide(message, self._settings, ())
        if verdict == "stranger":
            verdict = decide(message, self._settings, await self._approved(message.channel))
        if verdict == "stranger":
            bound = logger.bind(session=message.session_key)
            sender = message.sender_id
            bound.info("{}: message of {} refused, not on the list", message.channel, sender)
            await self._offer_pairing(message)
        return verdict == "admitted"

    async def _approved(self, channel: str) -> frozenset[str]:
        try:
            return await asyncio.to_thread(self._reception.pairing.approved, channel)
        except OSError as error:
            msg = f"who may write cannot be looked up: {error}"
            raise BusError(msg) from error

    async def _is_allowed(self, message: InboundMessage) -> bool:
        """Whether no policy of a plugin refuses the message."""
        from loguru import logger

        hooks = self._reception.hooks()
        if not hooks.admit_message:
            return True
        refusal = await hooks.admit_message(MessageReceived(message=message))
        if refusal is not None:
            bound = logger.bind(session=message.session_key)
            bound.info("{}: message refused: {}", message.channel, refusal.reason)
        return refusal is None

    async def _offer_pairing(self, message: InboundMessage) -> None:
        """Give a stranger a code; in groups nobody asked for one."""
        if message.is_group or not self._settings.pairing:
            return
        try:
            asked = await asyncio.to_thread(self._reception.pairing.request, message)
        except OSError as error:
            msg = f"a pairing code cannot be stored: {error}"
            raise BusError(msg) from error
        if asked is not None:
            text = (
                f"I do not know you yet. If you know my owner, have them run "
                f"`nanobot pairing approve {asked.code}` within an hour."
            )
            await self._notify(message, text, f"pairing:{asked.code}")

    def _times_of(self, message: InboundMessage) -> deque[float]:
        """Return when the sender's last messages came, oldest first."""
        sender = first_part(message.sender_id)
        times = self._recent.setdefault(sender, deque(maxlen=self._settings.rate_limit))
        self._recent.move_to_end(sender)
        if len(self._recent) > RATED_SENDERS:
            self._recent.popitem(last=False)
        return times

    async def _within_rate(self, message: InboundMessage, times: deque[float]) -> bool:
        now = self._reception.clock.monotonic_s()
        if len(times) < self._settings.rate_limit or now - times[0] >= RATE_WINDOW_S:
            times.append(now)
            return True
        minute = int(self._reception.clock.now().timestamp() // RATE_WINDOW_S)
        sender = first_part(message.sender_id)
        await self._notify(message, TOO_FAST, f"rate:{message.channel}:{sender}:{minute}")
        return False

    async def _completed(self, message: InboundMessage) -> InboundMessage:
        reception = self._reception
        message = replace(
            message,
            id=message.id or new_id(),
            timestamp=message.timestamp or reception.clock.now(),
        )
        hooks, changed = reception.hooks(), message
        try:
            if hooks.rewrite_inbound:
                changed = await hooks.rewrite_inbound(MessageReceived(message=message))
        except HookError as error:
            # What must not pass unchanged has no other form, and the platform offers it again.
            msg = f"a plugin could not prepare the message: {error}"
            raise BusError(msg) from error
        return replace(
            _of_same_origin(changed, message), is_control=reception.is_control(changed.content)
        )

    async def _notify(self, message: InboundMessage, text: str, key: str) -> None:
        await self._reception.outbox.publish(
            OutboundMessage(
                channel=message.channel,
                chat_id=message.chat_id,
                content=text,
                kind="notice",
                idempotency_key=key,
            )
        )


def _of_same_origin(changed: InboundMessage, admitted: InboundMessage) -> InboundMessage:
    """Return `changed` as from where `admitted` came: access was decided for that."""
    return replace(
        changed,
        channel=admitted.channel,
        chat_id=admitted.chat_id,
        sender_id=admitted.sender_id,
        sender_names=(),
        id=admitted.id,
        dedupe_key=admitted.dedupe_key,
    )
