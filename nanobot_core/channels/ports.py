"""ChannelPorts: what channels need from the rest of the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.channels.pairing import PairingStore
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.tasks import Spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPorts:
    """What all channels share.

    Attributes:
        bus: the message queue.
        outbox: takes messages to chats.
        pairing: unknown senders whom the owner admits.
        hooks: returns the present call points.
        is_control: whether a text is a control command.
        open_question: whether a tool call of a session waits for an approval.
        spawn: starts tasks that the application owns.
        clock: source of time.
        stopping: set when the gateway accepts no more messages.
    """

    bus: Bus
    outbox: Outbox
    pairing: PairingStore
    hooks: Callable[[], Hooks]
    is_control: Callable[[str], bool]
    open_question: Callable[[str], bool]
    spawn: Spawn
    clock: Clock
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
