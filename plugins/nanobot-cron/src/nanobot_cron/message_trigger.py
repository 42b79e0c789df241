"""The trigger ``message``: somebody writes a message that contains given words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from nanobot_core import NanobotError, ToolInputError, Trigger, TriggerEvent, shorten
from nanobot_cron.job import WITHOUT_CHAT, person_of
from nanobot_cron.wording import as_code

if TYPE_CHECKING:
    from nanobot_core import Fire, JsonObject, PluginContext, ToolContext, TurnInfo, TurnStarted

_MAX_SEARCHED = 20_000
_MAX_SHOWN = 4_000
ANY_CHAT = "any"


class _Stored(BaseModel):
    """Options of a job, as `MessageTrigger.check` returns them.

    Attributes:
        channel: of the messages that count; empty for all.
        chat_id: their chat; empty for all of the channel.
        sender_id: who writes them; empty for anyone.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    channel: str = ""
    chat_id: str = ""
    sender_id: str = ""

    def admits(self, turn: TurnInfo) -> bool:
        """Whether messages of this turn's sender and chat count."""
        return all(
            wanted in ("", found)
            for wanted, found in (
                (self.channel, turn.channel),
                (self.chat_id, turn.chat_id),
                (person_of(self.sender_id), person_of(turn.sender_id)),
            )
        )


class Watchers:
    """The jobs that wait for messages; get it with ``ctx.shared(Watchers)``."""

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._waiting: dict[str, tuple[_Stored, Fire]] = {}

    async def add(self, job_id: str, stored: _Stored, fire: Fire) -> None:
        """Start a job for each matching message, until cancelled."""
        entry = self._waiting[job_id] = (stored, fire)
        try:
            await asyncio.Event().wait()
        finally:
            if self._waiting.get(job_id) is entry:
                del self._waiting[job_id]

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return bool(self._waiting)

    async def see(self, event: TurnStarted) -> None:
        """Fire the jobs that wait for such a message. Only messages of people count."""
        turn = event.turn
        if turn.assignment is not None or turn.source == "plugin":
            return
        said = event.message.text[:_MAX_SEARCHED]
        for job_id, (stored, fire) in list(self._waiting.items()):
            if stored.admits(turn) and contains(said, stored.text):
                # One job that cannot be stored must not keep the others from starting.
                try:
                    await fire(_event(turn, said))
                except (NanobotError, OSError) as error:
                    self._log.error("a message does not start job {}: {}", job_id, error)


_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "text": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": (
                "Whole words that the message contains, upper or lower case. * stands for "
                "any characters: 'invoice', 'order * late', 'deliver*'."
            ),
        },
        "chat": {
            "type": "string",
            "maxLength": 300,
            "description": (
                "CHANNEL:CHAT, or 'any' for every chat; this chat by default. Only for the owner."
            ),
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}


class MessageTrigger(Trigger):
    """Waits for words in messages that the agent accepted."""

    name = "message"
    description = "somebody writes a message with certain words to the agent"
    parameters = _PARAMETERS

    def __init__(self, ctx: PluginContext) -> None:
        self._watchers = ctx.shared(Watchers)

    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        """Return the words, and the chat and the sender that count.

        Raises:
            ToolInputError: every message would match, or a guest names a chat.
        """
        text, chat = str(options["text"]), options.get("chat")
        if not any(character.isalnum() for character in text):
            msg = "text: every message would match; name a word"
            raise ToolInputError(msg)
        if not context.is_owner:
            if chat is not None:
                msg = "chat: only the owner can name a chat; leave it out for your own messages"
                raise ToolInputError(msg)
            stored = _Stored(
                text=text,
                channel=context.channel,
                chat_id=context.chat_id,
                sender_id=context.sender_id,
            )
        elif chat == ANY_CHAT or (chat is None and context.channel in WITHOUT_CHAT):
            stored = _Stored(text=text)
        elif chat is None:
            stored = _Stored(text=text, channel=context.channel, chat_id=context.chat_id)
        else:
            channel, colon, chat_id = str(chat).partition(":")
            if not (channel and colon and chat_id):
                msg = (
                    f"chat: expected CHANNEL:CHAT or '{ANY_CHAT}', found '{shorten(str(chat), 80)}'"
                )
                raise ToolInputError(msg)
            stored = _Stored(text=text, channel=channel, chat_id=chat_id)
        return stored.model_dump(mode="json")

    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        """Wait for messages; the hook ``before_turn`` brings them."""
        await self._watchers.add(job_id, _Stored.model_validate(options), fire)

    def describe(self, options: JsonObject) -> str:
        """Return the words and the chat."""
        stored = _Stored.model_validate(options)
        chat = f"{stored.channel}:{stored.chat_id}" if stored.channel else "any chat"
        who = f" by {person_of(stored.sender_id)}" if stored.sender_id else ""
        return f"a message{who} in {chat} contains {as_code(stored.text)}"


def contains(text: str, words: str) -> bool:
    """Whether `text` contains `words` as whole words; ``*`` stands for any characters.

    Takes time in proportion to the text, whatever the words are.
    """
    text, words = text.casefold(), words.strip().casefold()
    pieces = words.split("*")
    at = 0
    for number, piece in enumerate(pieces):
        at = _find(
            text,
            piece,
            at,
            begins=number == 0,
            ends=number == len(pieces) - 1,
        )
        if at < 0:
            return False
    return True


def _find(text: str, piece: str, start: int, *, begins: bool, ends: bool) -> int:
    """Return where the first `piece` from `start` on ends, or -1.

    Args:
        begins: only a piece at the beginning of a word counts.
        ends: only a piece at the end of a word counts.
    """
    if not piece:
        return start
    while (found := text.find(piece, start)) >= 0:
        end = found + len(piece)
        inside = begins and found > 0 and _joins(text[found - 1], piece[0])
        if not inside and not (ends and _joins(piece[-1], text[end : end + 1])):
            return end
        start = found + 1
    return -1


def _joins(left: str, right: str) -> bool:
    """Whether two characters, or none, are inside one word."""
    return left.isalnum() and right.isalnum()


def _event(turn: TurnInfo, said: str) -> TriggerEvent:
    text = (
        f"{turn.sender_id} wrote in {turn.channel}:{turn.chat_id}:\n\n{shorten(said, _MAX_SHOWN)}"
    )
    own_id = turn.message_id or turn.id
    return TriggerEvent(id=f"message:{turn.channel}:{turn.chat_id}:{own_id}", text=text)
