"""The local Discord as the stand-in of the suites for channels."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from nanobot_core.chat import FileKind
from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

_LIMIT_S = 10.0


def _load(name: str) -> ModuleType:
    """Import a module of this folder by its path: it is not a package."""
    if name not in sys.modules:
        file = Path(__file__).with_name(f"{name}.py")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


discord_api: Any = _load("discord_api")
discord_markup: Any = _load("discord_markup")
_KINDS: dict[str, FileKind] = {
    ".png": "image",
    ".jpg": "image",
    ".gif": "animation",
    ".ogg": "voice",
}
_DMS = {discord_api.ANNA["id"]: discord_api.DM, discord_api.BERT["id"]: discord_api.BERT_DM}


class LocalDiscord(StandIn):
    """A local Discord with Anna, Bert and a server."""

    name = "discord"
    abilities = Abilities(
        longest_text=2_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        edits=True,
        buttons=True,
        drafts=True,
        equal_keys_once=True,
        refusals=("token", "permission", "revoked"),
        measure=discord_api.utf16,
    )
    anna = Person(discord_api.ANNA["id"], "Anna")
    bert = Person(discord_api.BERT["id"], "Bert")
    group = discord_api.CHANNEL

    def __init__(self) -> None:
        self.api: Any = discord_api.DiscordApi()
        self._is_doubled = False

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.api.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.api.__exit__, kind, error, traceback)

    def section(self) -> dict[str, Any]:
        return {"token": discord_api.TOKEN, "api_base": self.api.url, "edited_messages": True}

    def private(self, person: Person) -> str:
        return str(_DMS[person.id])

    # --- what people do

    async def say(
        self,
        text: str = "",
        *,
        sender: Person | None = None,
        chat: str = "",
        mention: bool = False,
        files: Sequence[ChatFile] = (),
        quote: str | None = None,
    ) -> str:
        who = sender or self.anna
        place = chat or self.private(who)
        words = f"<@{discord_api.BOT['id']}> {text}" if mention else text
        fields: dict[str, Any] = {}
        if files:
            fields["attachments"] = [self.api.upload(file.name, file.content) for file in files]
        if quote is not None:
            fields |= {"type": 19, "referenced_message": self.api.described(place, quote)}
        # Discord keeps nothing for a bot that has never begun a session.
        await asyncio.to_thread(self.api.wait_until, lambda: self.api.sessions > 0)
        sender_fields = _described(who)
        key = await asyncio.to_thread(
            lambda: self.api.say(words, channel=place, sender=sender_fields, **fields)
        )
        if self._is_doubled:
            self._is_doubled = False
            await asyncio.to_thread(self.api.repeat, key, place)
        return str(key)

    async def edit(self, key: str, text: str) -> None:
        channel = self.api.channel_of(key)
        await asyncio.to_thread(self.api.edit, key, text, channel)

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        who = sender or self.anna
        channel = self.api.channel_of(message.id)
        shown = next(one for one in self.api.shown(channel) if one.id == message.id)
        await asyncio.to_thread(
            lambda: self.api.press(shown, label, channel=channel, sender=_described(who))
        )

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return [self._as_seen(one) for one in self.api.all_shown(chat) if not one.is_pending]

    def _as_seen(self, one: Any) -> Shown:  # noqa: ANN401 - see `discord_api`
        # People see the markup of people, too, but the tests compare what they have typed.
        seen = discord_markup.Reading(one.text if one.is_bot else "")
        return Shown(
            id=one.id,
            author=self.agent if one.is_bot else self._name(one.author),
            text=seen.text if one.is_bot else one.text,
            spans=tuple(seen.spans),
            files=tuple(
                ChatFile(name, content, _KINDS.get(Path(name).suffix, "file"))
                for name, content in one.files
            ),
            buttons=tuple(label for row in one.buttons for label, _ in row),
            quotes=one.reply_to,
            edited=bool(one.edits),
        )

    def _name(self, username: str) -> str:
        return next(who.name for who in (self.anna, self.bert) if _username(who) == username)

    @property
    def acknowledged(self) -> list[str]:
        return list(self.api.acknowledged)

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        await asyncio.to_thread(self.api.hang_up, after)

    async def come_back(self) -> None:
        self.api.come_back()

    async def go_silent(self) -> None:
        self.api.silence()

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        self.api.retry_after_s = seconds
        self.api.fail("/messages", "limit", method="POST", times=times)

    def block(self, chat: str, *, blocked: bool = True) -> None:
        if blocked:
            error = discord_api.Refused(403, 50007, "Cannot send messages to this user")
            self.api.dead[chat] = error
        else:
            self.api.dead.pop(chat, None)

    def refuse_credentials(self, why: Refusal) -> None:
        if why == "permission":
            self.api.allows_content = False
        else:
            self.api.token = "another"
        self.api.close_sockets(4014 if why == "permission" else 4004)
        self.api.forget_sessions()


def _username(person: Person) -> str:
    return f"{person.name.lower()}_x"


def _described(person: Person) -> dict[str, Any]:
    names = {"global_name": person.name, "username": _username(person)}
    return {"id": person.id, "discriminator": "0", "avatar": None, **names}
