"""Confirmations: shows people at once that their message, command or press has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.chat import CallFailed, Cause, Recent

if TYPE_CHECKING:
    from nanobot_core import Clock, InboundMessage
    from nanobot_core.chat import Upload
    from nanobot_discord.client import Client, Payload
    from nanobot_discord.mapping import Place
    from nanobot_discord.wire import Interaction

Settled: TypeAlias = Callable[[bool], Awaitable[None]]
"""Called when a message is stored or refused, with whether it was admitted."""

_COMMAND = 2
_ANSWER_LATER, _CONFIRM = 5, 6
"""Kinds of responses: a message follows, or nothing."""
_TOKEN_S = 14 * 60.0
"""Discord accepts the answer to a command for 15 minutes."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A command whose answer replaces the line "thinking …"."""

    application_id: str
    token: str
    confirmed: asyncio.Task[bool]
    until_s: float


class Confirmations:
    """Confirms interactions, which must happen within three seconds, and messages by a reaction.

    It remembers the commands whose answers are due.

    Args:
        emoji: the reaction; empty for no reaction.
    """

    def __init__(self, client: Client, clock: Clock, emoji: str) -> None:
        self._client = client
        self._clock = clock
        self._emoji = emoji
        self._pending: Recent[str, _Pending] = Recent()
        self._marked: Recent[str, Place] = Recent()

    def of_message(self, message_id: str, place: Place) -> Settled | None:
        """Return what to call when a message is stored or refused."""
        if not self._emoji:
            return None

        async def settled(is_admitted: bool) -> None:
            if is_admitted:
                self._marked.put(message_id, place)
                await self._client.react(place.channel_id, message_id, self._emoji, remove=False)

        return settled

    async def remove_mark(self, message_id: str) -> None:
        """Remove the reaction to a message, if there is one."""
        place = self._marked.get(message_id)
        if place is not None:
            self._marked.drop(message_id)
            with suppress(CallFailed):
                await self._client.react(place.channel_id, message_id, self._emoji, remove=True)

    def of_interaction(
        self, interaction: Interaction, message: InboundMessage, group: asyncio.TaskGroup
    ) -> Settled:
        """Confirm an interaction, and return what to call when its message is stored or refused.

        Args:
            group: owner of the call.
        """
        key = message.dedupe_key or ""
        is_command = interaction.type == _COMMAND
        kind = _ANSWER_LATER if is_command else _CONFIRM
        confirmed = group.create_task(self._confirm(interaction, kind), name="discord confirms")
        application_id, token = interaction.application_id, interaction.token
        if is_command:
            until_s = self._clock.monotonic_s() + _TOKEN_S
            self._pending.put(key, _Pending(application_id, token, confirmed, until_s))
        # Others may press the buttons of a group, but only the owner's press runs a command.
        is_final = not (message.is_group and message.content.startswith("/"))

        async def settled(is_admitted: bool) -> None:
            is_first = await confirmed
            if is_command and not is_admitted:
                is_due = self._pending.get(key) is not None
                self._pending.drop(key)
                # A repeated command was answered before, and a refusal may have been sent.
                if is_first and is_due:
                    await self._client.delete_response(application_id, token)
            elif not is_command and is_admitted and is_final:
                await self._client.edit_response(application_id, token, {"components": []})

        return settled

    async def answer(
        self, key: str | None, payload: Payload, files: Sequence[Upload]
    ) -> str | None:
        """Send the answer to a command, and return the id of its message.

        Returns:
            ``None`` if it must be sent as another message, because `key` is not of a command whose
            answer is due.
        """
        pending = self._pending.get(key) if key is not None else None
        if key is None or pending is None:
            return None
        self._pending.drop(key)
        if self._clock.monotonic_s() > pending.until_s:
            return None
        await asyncio.wait({pending.confirmed})
        try:
            return await self._client.edit_response(
                pending.application_id, pending.token, payload, files
            )
        except CallFailed as error:
            if error.cause in {Cause.UNREACHABLE, Cause.BUSY}:
                self._pending.put(key, pending)
                raise
            return None

    async def _confirm(self, interaction: Interaction, kind: int) -> bool:
        """Send the first response; False if it is too late, or was sent before."""
        # Then the person may see an error, but the message is processed.
        try:
            await self._client.respond(interaction, kind)
        except CallFailed:
            return False
        return True
