"""Passes what Slack sends to the intake, and acknowledges it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from nanobot_slack import wire
from nanobot_slack.history import Watermarks, place_of
from nanobot_slack.mapping import Reader

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import Intake, Received
    from nanobot_slack.reactions import WorkSigns

Release: TypeAlias = Callable[[wire.Press, bool], Awaitable[None]]
"""Called when a press is stored or refused, with whether it was admitted."""


class Feed:
    """Connects a socket, or a history, with the intake."""

    def __init__(
        self,
        intake: Intake,
        reader: Reader,
        marks: Watermarks,
        signs: WorkSigns,
        ctx: PluginContext,
        release: Release,
    ) -> None:
        self._intake = intake
        self._reader = reader
        self._marks = marks
        self._signs = signs
        self._ctx = ctx
        self._release = release

    def take(self, envelope: wire.Envelope, acknowledge: Callable[[], None]) -> None:
        """Accept an envelope; acknowledge it when its message is stored, or if it has none."""
        read = {
            "events_api": self._reader.event,
            "interactive": self._press,
            "slash_commands": self._command,
        }.get(envelope.type)
        received = None
        if read is not None:
            received = self._intake.parsed(partial(read, envelope.payload))
        if received is None:
            acknowledge()
        else:
            self._pass_on(received, acknowledge)

    def take_missed(self, message: dict[str, object], channel: str) -> None:
        """Accept a message of a history."""

        def read() -> Received | None:
            return self._reader.message(wire.Message.model_validate(message), channel)

        received = self._intake.parsed(read)
        if received is not None:
            self._pass_on(received, lambda: None)

    def _press(self, payload: dict[str, object]) -> Received | None:
        press = wire.Press.model_validate(payload)
        received = self._reader.press(press)
        if received is None:
            return None
        return replace(received, settled=partial(self._release, press))

    def _command(self, payload: dict[str, object]) -> Received | None:
        return self._reader.command(wire.Command.model_validate(payload))

    def _pass_on(self, received: Received, acknowledge: Callable[[], None]) -> None:
        message = received.message
        ts, thread_ts = message.metadata.get("message_id"), message.metadata.get("thread")
        is_plain = not {"button", "command", "edited"} & message.metadata.keys()
        if not isinstance(ts, str) or not is_plain:
            self._intake.put(received, acknowledge)
            return
        channel = message.chat_id.partition(":")[0]
        place = place_of(channel, str(thread_ts or ""))
        self._marks.begin(place, ts)

        def done() -> None:
            acknowledge()
            self._ctx.spawn(self._marks.end(place, ts), name="slack watermark")

        async def settled(is_admitted: bool) -> None:
            if is_admitted:
                self._signs.expect(message.chat_id, ts, message.sender_id)

        self._intake.put(replace(received, settled=settled), done)
