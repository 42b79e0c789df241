"""The local Telegram as the stand-in of the suites for channels."""

from __future__ import annotations

import importlib.util
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

_KINDS = {"photo": "image", "document": "file"}
_SPANS = {"text_link": "link", "blockquote": "quote"}
_DATE = 1_790_000_000
_REFUSED = {"token": (401, "Unauthorized"), "revoked": (401, "Unauthorized")}


def _load_bot_api() -> ModuleType:
    """Import the local Bot API by its path: this folder is not a package."""
    name = "telegram_bot_api"
    if name not in sys.modules:
        file = Path(__file__).with_name("bot_api.py")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


bot_api: Any = _load_bot_api()


class LocalTelegram(StandIn):
    """A local Bot API with Anna, Bert and a group."""

    name = "telegram"
    abilities = Abilities(
        longest_text=4_096,
        formatting=frozenset(
            {"bold", "italic", "strikethrough", "code", "pre", "link", "quote"},
        ),
        edits=True,
        buttons=True,
        drafts=True,
        refusals=("token", "revoked"),
        measure=bot_api.utf16,
    )
    anna = Person("1001", "Anna")
    bert = Person("1002", "Bert")
    group = str(bot_api.GROUP["id"])

    def __init__(self) -> None:
        self.api: Any = bot_api.BotApi()
        self._said: dict[str, list[Shown]] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._keys: dict[int, str] = {}
        self._is_doubled = False

    async def __aenter__(self) -> Self:
        self.api.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.api.__exit__(kind, error, traceback)

    def section(self) -> dict[str, Any]:
        return {"token": bot_api.TOKEN, "api_base": self.api.url, "edited_messages": True}

    def private(self, person: Person) -> str:
        return person.id

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
        words = f"@{bot_api.BOT['username']} {text}" if mention else text
        fields = self._attached(files)
        if fields and words:
            fields["caption"] = words
        if quote is not None:
            fields["reply_to_message"] = self._quoted(place, quote)
        message = self.api.message(
            "" if files else words, chat=_chat(place, who), sender=_described(who), **fields
        )
        key = str(message["message_id"])
        self._messages[key] = message
        said = Shown(id=key, author=who.name, text=words, files=tuple(files), quotes=quote)
        self._said.setdefault(place, []).append(said)
        self._push({"message": message}, key)
        return key

    async def edit(self, key: str, text: str) -> None:
        message = self._messages[key] | {"text": text, "edit_date": _DATE + 100}
        chat = self._said[str(message["chat"]["id"])]
        number = next(number for number, said in enumerate(chat) if said.id == key)
        chat[number] = Shown(id=key, author=chat[number].author, text=text, edited=True)
        self._push({"edited_message": message}, key)

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        who = sender or self.anna
        for chat, messages in self.api.chats.items():
            for shown in messages:
                if str(shown.id) == message.id:
                    value = next(
                        value for row in shown.buttons for name, value in row if name == label
                    )
                    described = {"chat": _chat(str(chat), who), "from": _described(who)}
                    self.api.press(shown, value, **described)

    def _attached(self, files: Sequence[ChatFile]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for file in files:  # Telegram sends each file of an album as a message of its own
            kind = {"image": "photo", "voice": "voice"}.get(file.kind, "document")
            sent = {"file_id": self.api.upload(file.content, kind), "file_name": file.name}
            mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            fields[kind] = [sent] if kind == "photo" else sent | {"mime_type": mime}
        return fields

    def _quoted(self, chat: str, key: str) -> dict[str, Any]:
        if key in self._messages:
            return self._messages[key]
        shown = next(message for message in self.shown(chat) if message.id == key)
        described = {"chat": _chat(chat, self.anna), "from": bot_api.BOT, "date": _DATE}
        return {"message_id": int(key), "text": shown.text, **described}

    def _push(self, update: dict[str, Any], key: str) -> None:
        number = self.api.push(update)
        self._keys[number] = key
        if self._is_doubled:
            self._is_doubled = False
            self.api.push(update)

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        of_the_agent = [
            Shown(
                id=str(message.id),
                author=self.agent,
                text=message.text,
                spans=tuple((_SPANS.get(kind, kind), words) for kind, words in message.spans()),
                files=tuple(
                    ChatFile(name, content, _KINDS.get(kind, kind))
                    for kind, name, content in message.files
                ),
                buttons=tuple(label for row in message.buttons for label, _ in row),
                quotes=str(message.reply_to) if message.reply_to else None,
                edited=bool(message.edits),
            )
            for message in list(self.api.shown(int(chat)))
        ]
        return sorted([*self._said.get(chat, ()), *of_the_agent], key=lambda shown: int(shown.id))

    @property
    def acknowledged(self) -> list[str]:
        return [self._keys[number] for number in self.api.acknowledged if number in self._keys]

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        self.api.hang_up(after)

    async def come_back(self) -> None:
        self.api.come_back()

    async def go_silent(self) -> None:
        self.api.silence()

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        description = f"Too Many Requests: retry after {seconds:g}"
        self.api.fail(
            "sendMessage", code=429, description=description, times=times, retry_after=seconds
        )

    def block(self, chat: str, *, blocked: bool = True) -> None:
        if blocked:
            self.api.blocked.add(int(chat))
        else:
            self.api.blocked.discard(int(chat))

    def refuse_credentials(self, why: Refusal) -> None:
        code, description = _REFUSED[why]
        for method in ("getMe", "getUpdates", "sendMessage"):
            self.api.fail(method, code=code, description=description, times=1_000_000)


def _described(person: Person) -> dict[str, Any]:
    names = {"first_name": person.name, "username": f"{person.name.lower()}_x"}
    return {"id": int(person.id), "is_bot": False, **names}


def _chat(chat: str, person: Person) -> dict[str, Any]:
    if int(chat) < 0:
        described: dict[str, Any] = bot_api.GROUP | {"id": int(chat)}
        return described
    return {"id": int(chat), "type": "private", "first_name": person.name}
