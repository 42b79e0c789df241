"""The input of a turn: a message with its context, and what a gateway provides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.agent.run import Send
from nanobot_core.contracts.client import EventSink, ignore_event
from nanobot_core.contracts.tool import no_chat
from nanobot_core.events import TurnSource
from nanobot_core.hooks.agent_hook import AgentHook
from nanobot_core.messages import InboundMessage
from nanobot_core.turns.assigned import Standing, standing_by_request

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.assignment import ToolRule
    from nanobot_core.turns.commands import Controls


async def _no_messages() -> Sequence[InboundMessage]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A message to answer.

    Attributes:
        message: the message.
        source: where the message comes from; work names its own source.
        on_event: receives events as they happen, the outcome last.
        hooks: hooks of this turn alone.
        model: model instead of the configured one, or ``None``.
        output: class of the object to answer with, or ``None`` for an answer in words.
        is_owner: the sender is the owner; anyone else is a guest, with fewer tools and commands.
        refusal: why the message is refused, or an empty string.
        is_queued: the message comes from the message queue, which keeps it until it is answered.
        more: returns new messages of the session; each is added to the turn.
        is_retried: whether the message queue hands the message out again if the turn is cancelled.
        tools: what limits the tools besides the configuration.
        folder: working folder instead of the workspace, absolute, or empty; not for guests.
    """

    message: InboundMessage
    source: TurnSource = "sdk"
    on_event: EventSink = ignore_event
    hooks: Sequence[AgentHook] = ()
    model: str | None = None
    output: type[BaseModel] | None = None
    is_owner: bool = False
    refusal: str = ""
    is_queued: bool = False
    more: Callable[[], Awaitable[Sequence[InboundMessage]]] = _no_messages
    is_retried: Callable[[], bool] = lambda: False
    tools: tuple[ToolRule, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPorts:
    """What a gateway provides to turns; the defaults are for a program without one.

    Attributes:
        send: takes messages to chats.
        format_hint: by channel, how it shows text; empty if there is nothing to say.
        awaits_approval: whether a call of a session waits for the owner's answer.
        standing: what the requester of work may do now.
        controls: what commands can do to the gateway.
    """

    send: Send = no_chat
    format_hint: Callable[[str], str] = lambda _channel: ""
    awaits_approval: Callable[[str, str], bool] = lambda _session_key, _call_id: False
    standing: Callable[[InboundMessage], Awaitable[Standing]] = standing_by_request
    controls: Controls | None = None
