"""A local Parley: an HTTP server on the loopback, and the people who use it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

TOKEN = "parley-token-of-the-tests"
_MOST_CHARS = 1_000
_STEP_S = 0.05
"""How long it takes to notice that a caller who waits has gone."""
_KINDS = {"png": "image", "ogg": "voice"}


class _Refused(Exception):
    def __init__(self, status: int, *, wait_s: float = 0.0) -> None:
        super().__init__(str(status))
        self.status = status
        self.wait_s = wait_s


class _Gone(Exception):
    """The connection breaks instead of an answer."""


@dataclass
class _Session:
    offered: set[str] = field(default_factory=set)
    is_silent: bool = False


class LocalParley(StandIn):
    """Parley with Anna, Bert and a group."""

    name = "parley"
    abilities = Abilities(
        longest_text=_MOST_CHARS,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        edits=True,
        buttons=True,
        drafts=True,
        equal_keys_once=True,
    )
    anna = Person("p-anna", "Anna")
    bert = Person("p-bert", "Bert")
    group = "g-team"

    def __init__(self) -> None:
        self._chats: dict[str, list[Shown]] = {}
        self._values: dict[tuple[str, str], str] = {}
        self._by_key: dict[str, str] = {}
        self._said: dict[str, dict[str, Any]] = {}
        self._events: dict[str, dict[str, Any]] = {}
        self._done: list[str] = []
        self._keys: dict[str, str] = {}
        self._files: dict[str, ChatFile] = {}
        self._sessions: dict[str, _Session] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._budget: int | None = None
        self._busy: tuple[float, int] = (0.0, 0)
        self._blocked: set[str] = set()
        self._is_refused = False
        self._is_doubled = False

    async def __aenter__(self) -> Self:
        await self.come_back()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._break()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def section(self) -> dict[str, Any]:
        base = f"http://127.0.0.1:{self._port}"
        return {"token": TOKEN, "api_base": base, "edited_messages": True}

    def private(self, person: Person) -> str:
        return f"c-{person.id}"

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
        words = f"@{self.agent} {text}" if mention else text
        key = self._new("m")
        quoted = next((shown for shown in self.shown(place) if shown.id == quote), None)
        attached = []
        for file in files:
            number = self._new("f")
            self._files[number] = file
            attached.append({"id": number, "name": file.name, "size": len(file.content)})
        self._said[key] = {
            "id": key,
            "chat": place,
            "is_group": place == self.group,
            "author": {"id": who.id, "name": who.name, "mood": "cheerful"},
            "text": words,
            "mentions": [self.agent] if mention else [],
            "files": attached,
            "quote": {"author": quoted.author, "text": quoted.text} if quoted else None,
            "version": 1,
        }
        shown = Shown(id=key, author=who.name, text=words, files=tuple(files), quotes=quote)
        self._chats.setdefault(place, []).append(shown)
        self._offer(key, {"message": self._said[key]})
        return key

    async def edit(self, key: str, text: str) -> None:
        said = self._said[key]
        self._said[key] = {**said, "text": text, "version": said["version"] + 1}
        self._change(said["chat"], key, text=text, edited=True)
        self._offer(key, {"message": self._said[key]})

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        who = sender or self.anna
        chat, _ = self._find(message.id)
        below = {"id": message.id, "chat": chat, "is_group": chat == self.group}
        author = {"id": "p-nano", "name": self.agent, "is_bot": True}
        press = {"by": {"id": who.id}, "value": self._values[message.id, label]}
        self._offer(message.id, {"message": {**below, "author": author}, "press": press})

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return list(self._chats.get(chat, ()))

    @property
    def acknowledged(self) -> list[str]:
        return [self._keys[event] for event in self._done]

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        if after:
            self._budget = after
        else:
            self._break()

    async def come_back(self) -> None:
        self._break()
        self._budget = None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def go_silent(self) -> None:
        for session in self._sessions.values():
            session.is_silent = True

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        self._busy = (seconds, times)

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._is_refused = True

    def _break(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    # --- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, _Gone):
                while True:
                    await self._answer(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the server
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        method, target, _ = head[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        status, wait = 200, ""
        try:
            if self._is_refused or headers.get("authorization") != f"bearer {TOKEN}":
                raise _Refused(401)
            found = await self._do(method, target, body, reader)
        except _Refused as error:
            status, found = error.status, {}
            wait = f"Retry-After: {error.wait_s:g}\r\n" if error.wait_s else ""
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        head_out = f"HTTP/1.1 {status} Parley\r\n{wait}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head_out.encode() + content)
        await writer.drain()

    async def _do(
        self, method: str, target: str, body: bytes, reader: asyncio.StreamReader
    ) -> dict[str, Any] | bytes:
        address = urlsplit(target)
        query = dict(parse_qsl(address.query))
        match (method, *address.path.strip("/").split("/")):
            case ("GET", "me"):
                return {"name": self.agent}
            case ("POST", "sessions"):
                number = self._new("s")
                self._sessions[number] = _Session()
                return {"id": number}
            case ("GET", "sessions", number, "events"):
                waited = self._wait(self._sessions[number], int(query["wait"]), reader)
                return {"events": await waited}
            case ("POST", "events", number, "done"):
                self._events.pop(number, None)
                self._done.append(number)
                return {}
            case ("POST", "files"):
                number = self._new("f")
                kind = _KINDS.get(query["name"].rpartition(".")[2], "file")
                self._files[number] = ChatFile(query["name"], body, kind)  # type: ignore[arg-type]
                return {"id": number}
            case ("GET", "files", number):
                return self._files[number].content
            case ("POST", "messages"):
                return {"id": self._post(json.loads(body))}
            case ("PUT", "messages", number):
                self._put(number, json.loads(body))
                return {}
            case ("DELETE", "messages", number):
                chat, shown = self._find(number)
                self._chats[chat].remove(shown)
                return {}
        raise _Refused(404)

    async def _wait(
        self, session: _Session, seconds: int, reader: asyncio.StreamReader
    ) -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while session.is_silent or not set(self._events) - session.offered:
            if reader.at_eof():
                raise _Gone
            if loop.time() > end_s and not session.is_silent:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(_STEP_S):
                    await self._changed.wait()
            self._changed.clear()
        found = [event for event in self._events.values() if event["id"] not in session.offered]
        session.offered |= {event["id"] for event in found}
        return found

    def _post(self, sent: dict[str, Any]) -> str:
        if sent["key"] in self._by_key:
            return self._by_key[sent["key"]]
        self._check(sent)
        shown = Shown(
            id=self._new("m"),
            author=self.agent,
            files=tuple(self._files[number] for number in sent["files"]),
        )
        self._chats.setdefault(sent["chat"], []).append(shown)
        if sent["key"]:
            self._by_key[sent["key"]] = shown.id
        self._write(shown.id, sent)
        return shown.id

    def _put(self, number: str, sent: dict[str, Any]) -> None:
        chat, _ = self._find(number)
        self._check({"chat": chat, "files": (), **sent})
        self._write(number, sent)
        self._change(chat, number, edited=True)

    def _write(self, number: str, sent: dict[str, Any]) -> None:
        chat, _ = self._find(number)
        text = sent["text"]
        spans = tuple(
            (span["kind"], text[span["offset"] : span["offset"] + span["length"]])
            for span in sent["spans"]
        )
        labels = tuple(button["label"] for button in sent["buttons"])
        self._change(chat, number, text=text, spans=spans, buttons=labels)
        for button in sent["buttons"]:
            self._values[number, button["label"]] = button["value"]

    def _check(self, sent: dict[str, Any]) -> None:
        seconds, times = self._busy
        if times:
            self._busy = (seconds, times - 1)
            raise _Refused(429, wait_s=seconds)
        if sent["chat"] in self._blocked:
            raise _Refused(403)
        if sent["chat"] not in self._chats and not sent["chat"].startswith("c-"):
            raise _Refused(404)
        if len(sent["text"]) > _MOST_CHARS:
            raise _Refused(413)
        if not sent["text"].strip() and not sent["files"]:
            raise _Refused(400)
        if self._budget is not None:
            if not self._budget:
                self._break()
                raise _Gone
            self._budget -= 1

    def _offer(self, key: str, event: dict[str, Any]) -> None:
        for _ in range(1 + self._is_doubled):
            number = self._new("e")
            self._keys[number] = key
            self._events[number] = {"id": number, "weather": "fair", **event}
        self._is_doubled = False
        self._changed.set()

    def _find(self, number: str) -> tuple[str, Shown]:
        for chat, messages in self._chats.items():
            for shown in messages:
                if shown.id == number:
                    return chat, shown
        raise _Refused(404)

    def _change(self, chat: str, number: str, **fields: Any) -> None:
        messages = self._chats[chat]
        messages[:] = [replace(m, **fields) if m.id == number else m for m in messages]

    def _new(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"
