"""Passes events to the intake, in the order of each chat, and fetches what a session has missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from nanobot_core.chat import CallFailed, Cause, Recent
from nanobot_discord import wire
from nanobot_discord.mapping import Place, oldest_id
from nanobot_discord.settings import MESSAGE_CONTENT

if TYPE_CHECKING:
    from nanobot_core.chat import Intake
    from nanobot_discord.bot import Bot

Finish: TypeAlias = Callable[[], None]
_MISSED_CHATS = 100
_MISSED_MESSAGES = 100
_MISSED_AGE = timedelta(hours=24)
_UNKNOWN = frozenset({Cause.FORBIDDEN, Cause.REFUSED})


class Incoming:
    """Takes events.

    Args:
        group: owner of the tasks.
    """

    def __init__(self, bot: Bot, intake: Intake, group: asyncio.TaskGroup) -> None:
        self._bot = bot
        self._client = bot.client
        self._chats = bot.chats
        self._reader = bot.reader
        self._intake = intake
        self._group = group
        self._reads_edits = bot.settings.edited_messages
        self._held: dict[str, list[Callable[[Place], None]]] = {}
        self._texts: Recent[str, str] = Recent()
        self._takers: dict[str, tuple[type[Any], Callable[[Any, Finish], None]]] = {
            "READY": (wire.Ready, self._take_ready),
            "GUILD_CREATE": (wire.Guild, self._take_guild),
            "THREAD_LIST_SYNC": (wire.Guild, self._take_guild),
            "CHANNEL_CREATE": (wire.Channel, self._take_channel),
            "THREAD_CREATE": (wire.Channel, self._take_channel),
            "THREAD_UPDATE": (wire.Channel, self._take_channel),
            "MESSAGE_CREATE": (wire.Message, self._take_message),
            "MESSAGE_UPDATE": (wire.Message, self._take_edit),
            "INTERACTION_CREATE": (wire.Interaction, self._take_interaction),
        }

    def take(self, name: str, data: object, finish: Finish) -> None:
        """Take an event; unknown ones are finished at once."""
        known = self._takers.get(name)
        if known is None:
            finish()
            return
        model, take = known
        try:
            event = model.model_validate(data)
        except ValidationError:
            self._bot.report(f"an event of kind {name} that cannot be read")
            finish()
            return
        take(event, finish)

    # --- places

    def _take_guild(self, guild: wire.Guild, finish: Finish) -> None:
        for channel in (*guild.channels, *guild.threads):
            self._chats.learn(channel, guild.guild_id or guild.id)
        for role in guild.roles:
            if role.tags.bot_id == self._reader.user_id:
                self._reader.roles.add(role.id)
        finish()

    def _take_channel(self, channel: wire.Channel, finish: Finish) -> None:
        if channel.guild_id is not None:
            self._chats.learn(channel, channel.guild_id)
        finish()

    def _at(self, channel_id: str, guild_id: str | None, act: Callable[[Place], None]) -> None:
        """Call `act` with the place, after what is held for the same chat."""
        held = self._held.get(channel_id)
        if held is not None:
            held.append(act)
            return
        place = self._chats.place_of(channel_id, guild_id)
        if place is not None:
            act(place)
            return
        self._held[channel_id] = [act]
        self._group.create_task(self._locate(channel_id, guild_id), name="discord channel")

    async def _locate(self, channel_id: str, guild_id: str | None) -> None:
        """Ask whether an unknown channel is a thread; sessions that are resumed do not say."""
        try:
            self._chats.learn(await self._client.channel(channel_id), guild_id)
        except CallFailed as error:
            if error.cause not in _UNKNOWN:
                raise
        self._release(
            self._chats.place_of(channel_id, guild_id) or Place(channel_id, guild_id=guild_id)
        )

    def _release(self, place: Place) -> None:
        for act in self._held.pop(place.channel_id, ()):
            act(place)

    # --- messages

    def _take_message(self, message: wire.Message, finish: Finish) -> None:
        if self._reads_edits:
            self._texts.put(message.id, message.content)
        self._at(message.channel_id, message.guild_id, partial(self._offer, message, finish))

    def _take_edit(self, message: wire.Message, finish: Finish) -> None:
        # Discord reports a link preview as an edit, too.
        known = self._texts.get(message.id)
        if self._reads_edits and message.edited_timestamp and message.content != known:
            self._texts.put(message.id, message.content)
            act = partial(self._offer, message, finish, is_edit=True)
            self._at(message.channel_id, message.guild_id, act)
        else:
            finish()

    def _take_interaction(self, interaction: wire.Interaction, finish: Finish) -> None:
        place = self._place_of(interaction)
        received = self._reader.read_interaction(interaction, place)
        if received is None:
            finish()
            return
        # It must be confirmed at once, also while its chat is held.
        confirm = self._bot.confirmations.of_interaction
        whole = replace(received, settled=confirm(interaction, received.message, self._group))
        self._at(place.channel_id, place.guild_id, lambda _: self._intake.put(whole, finish))

    def _place_of(self, interaction: wire.Interaction) -> Place:
        """Return the place that an interaction describes, unlike a message."""
        channel_id, guild_id = interaction.channel_id, interaction.guild_id
        if interaction.channel is not None and guild_id is not None:
            self._chats.learn(interaction.channel, guild_id)
        known = self._chats.place_of(channel_id, guild_id)
        return known or Place(channel_id, guild_id=guild_id)

    def _offer(
        self, message: wire.Message, finish: Finish, place: Place, *, is_edit: bool = False
    ) -> None:
        received = self._reader.read_message(message, place, is_edit=is_edit)
        if received is None:
            if place.guild_id and not self._bot.settings.intents & MESSAGE_CONTENT:
                self._bot.report("messages without text; add 32768 to channels.discord.intents")
            finish()
            return

        def done() -> None:
            finish()
            self._chats.note(place, message.id)

        settled = self._bot.confirmations.of_message(message.id, place)
        self._intake.put(replace(received, settled=settled), done)

    # --- what was missed

    def _take_ready(self, _: wire.Ready, finish: Finish) -> None:
        """Fetch what was written since the watermarks, before anything newer in those chats."""
        finish()
        chats = self._chats.most_recent(_MISSED_CHATS)
        for place, _newest in chats:
            self._held.setdefault(place.channel_id, [])
        self._group.create_task(self._catch_up(chats), name="discord history")

    async def _catch_up(self, chats: list[tuple[Place, int]]) -> None:
        oldest = int(oldest_id(self._bot.clock.now() - _MISSED_AGE))
        loop, waiting = asyncio.get_running_loop(), set[asyncio.Future[None]]()
        for place, newest in chats:
            try:
                missed = await self._missed(place, max(newest, oldest))
            except CallFailed as error:
                if error.cause not in _UNKNOWN:
                    raise
                missed = []
            for message in missed:
                finished = loop.create_future()
                waiting.add(finished)
                self._offer(message, partial(finished.set_result, None), place)
            self._release(place)
        if waiting:
            # A session that is resumed does not read the history again.
            await asyncio.wait(waiting)
        self._bot.session.is_complete = True
        self._chats.must_save.set()

    async def _missed(self, place: Place, after: int) -> list[wire.Message]:
        """Return the newest messages after an id, oldest first."""
        found = await self._client.history(place.channel_id, _MISSED_MESSAGES, after=str(after))
        if len(found) == _MISSED_MESSAGES:
            found = await self._client.history(place.channel_id, _MISSED_MESSAGES)
            older = f"messages in chat {place.chat_id} before the newest {_MISSED_MESSAGES}"
            self._bot.report(older)
        messages = []
        for described in found:
            try:
                messages.append(wire.Message.model_validate(described))
            except ValidationError:
                self._bot.report("a message of the history that cannot be read")
        messages.sort(key=lambda message: int(message.id))
        return [message for message in messages if int(message.id) > after]
