"""A local Feishu: the long connection, messages, cards and files, as tasks of the test's loop.

It enforces the rules that the plugin depends on: tokens, acknowledgements with their headers,
sequences of cards, their streaming mode and sizes, and ids. Its frames are written by hand, not
with the plugin's codec.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from nanobot_core.chat import render_markdown
from nanobot_core.testing import (
    Abilities,
    ChatFile,
    LocalRequest,
    LocalResponse,
    Loopback,
    Person,
    Refusal,
    Shown,
    StandIn,
)

APP_ID, APP_SECRET, BOT, SERVICE = "cli_local", "canary-secret", "ou_nano", 33554678
PING_S = 2.0
_CARD_BYTES = 30_000
_FILE_TYPES = {"opus": "voice", "mp4": "video"}
_MIME = {"image": "image", "voice": "audio", "file": "file"}
_API = "/open-apis/im/v1/"
_CARDS = "/open-apis/cardkit/v1/cards"


def number(value: int) -> bytes:
    """Return a number as in protobuf."""
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def block(field_number: int, value: bytes) -> bytes:
    """Return a field of bytes as in protobuf."""
    return number(field_number * 8 + 2) + number(len(value)) + value


def written(method: int, headers: Mapping[str, str], payload: bytes = b"") -> bytes:
    """Return a frame."""
    out = b"\x08\x01\x10" + number(2**63 + 7) + b"\x18" + number(SERVICE) + b"\x20" + number(method)
    for name, value in headers.items():
        out += block(5, block(1, name.encode()) + block(2, value.encode()))
    return out + block(8, payload)


def read(data: bytes) -> tuple[dict[int, int], dict[str, str], bytes]:
    """Return the numbers, headers and payload of a frame."""
    numbers: dict[int, int] = {}
    headers: dict[str, str] = {}
    payload = b""
    for key, value in _fields(data):
        if isinstance(value, int):
            numbers[key] = value
        elif key == 5:
            parts = {one: part for one, part in _fields(value) if isinstance(part, bytes)}
            headers[parts[1].decode()] = parts[2].decode()
        elif key == 8:
            payload = value
    return numbers, headers, payload


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    found: list[tuple[int, int | bytes]] = []
    place = 0

    def take() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        key = take()
        value = take()
        if key % 8 == 0:
            found.append((key // 8, value))
        else:
            assert key % 8 == 2
            found.append((key // 8, data[place : place + value]))
            place += value
    return found


@dataclass
class Line:
    """A connection of the channel."""

    connection: ServerConnection
    is_silent: bool = False
    offered: set[str] = field(default_factory=set)


@dataclass
class Card:
    """A card of CardKit."""

    content: dict[str, Any]
    sequence: int = 0
    message: str = ""

    @property
    def is_streaming(self) -> bool:
        """Whether its text can be written."""
        return bool(self.content["config"]["streaming_mode"])


class LocalFeishu(StandIn):
    """An organisation with Anna, Bert, the bot and a group."""

    name = "feishu"
    abilities = Abilities(
        longest_text=6_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        buttons=True,
        drafts=True,
        refusals=("token", "permission", "revoked"),
    )
    anna = Person("ou_anna", "Anna")
    bert = Person("ou_bert", "Bert")
    group = "oc_group"

    def __init__(self) -> None:
        self.web: Loopback = Loopback(self._answer, self._talk, self._admit)
        self.lines: list[Line] = []
        self.calls: list[str] = []
        self.cards: dict[str, Card] = {}
        self.tokens: set[str] = set()
        self.reactions: list[tuple[str, str]] = []
        self.answers: dict[str, list[LocalResponse]] = {}
        self.answered: dict[str, dict[str, Any]] = {}
        self.client_config: dict[str, Any] = {"PingInterval": PING_S}
        self.parts: int = 1
        self.pong: bytes = b""
        self.pings: int = 0
        self.keys: set[str] = set()
        self._numbers = itertools.count(1)
        self._chats: dict[str, list[Shown]] = {}
        self._places: dict[str, str] = {}
        self._values: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._offers: dict[str, tuple[str, dict[str, Any]]] = {}
        self._files: dict[str, tuple[str, bytes, str]] = {}
        self._acknowledged: list[str] = []
        self._blocked: set[str] = set()
        self._busy: list[LocalResponse] = []
        self._left: int | None = None
        self._refusal: Refusal | None = None
        self._is_doubled = False
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._news = asyncio.Event()
        await self.web.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.web.__aexit__(kind, error, traceback)

    def section(self) -> dict[str, Any]:
        return {"app_id": APP_ID, "app_secret": APP_SECRET, "api_base": self.web.http_url}

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
        key = f"om_{next(self._numbers)}"
        said = Shown(id=key, author=who.name, text=text, files=tuple(files), quotes=quote)
        self._chats.setdefault(place, []).append(said)
        self._places[key] = place
        kind, content = self._content(text, files, mention=mention)
        message: dict[str, Any] = {
            "message_id": key,
            "chat_id": place if place == self.group else f"oc_p2p_{who.id}",
            "chat_type": "group" if place == self.group else "p2p",
            "message_type": kind,
            "content": json.dumps(content),
            "create_time": str(int(time.time() * 1000)),
            "root_id": quote,
            "parent_id": quote,
            "mentions": [{"key": "@_user_1", "id": {"open_id": BOT}, "name": self.agent}]
            if mention
            else None,
        }
        if place != self.group or mention:
            sent_by = {"sender_id": {"open_id": who.id, "user_id": None}, "sender_type": "user"}
            self.offer("im.message.receive_v1", {"sender": sent_by, "message": message}, key)
        return key

    def _content(
        self, text: str, files: Sequence[ChatFile], *, mention: bool
    ) -> tuple[str, dict[str, Any]]:
        words = f"@_user_1 {text}" if mention else text
        if not files:
            return "text", {"text": words}
        keys = [self._stored(file.name, file.content, "") for file in files]
        if text:
            row = [{"tag": "img", "image_key": key} for key in keys]
            return "post", {"title": None, "content": [[{"tag": "text", "text": words}], row]}
        kind = _MIME.get(files[0].kind, "file")
        name = "image_key" if kind == "image" else "file_key"
        return kind, {name: keys[0], "file_name": files[0].name}

    def offer(self, kind: str, event: dict[str, Any], key: str) -> None:
        """Offer an event until it is acknowledged."""
        header = {"event_id": f"ev-{key}", "event_type": kind, "app_id": APP_ID}
        for copy in range(2 if self._is_doubled else 1):
            body = {"schema": "2.0", "header": header, "event": event}
            self._offers[f"{key}#{copy}"] = (key, body)
        self._is_doubled = False
        self._news.set()

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        who = sender or self.anna
        value = dict(self._values[message.id])[label]
        event = {
            "operator": {"open_id": who.id, "user_id": None},
            "token": f"c-{next(self._numbers)}",
            "action": {"tag": "button", "value": value},
            "context": {"open_message_id": message.id, "open_chat_id": "oc_any"},
        }
        self.offer("card.action.trigger", event, f"press{next(self._numbers)}")

    # --- the long connection

    def _admit(self, path: str, query: Mapping[str, str]) -> int | None:
        return None if query.get("device_id") == "d1" else 403

    async def _talk(self, connection: ServerConnection) -> None:
        line = Line(connection)
        self.lines.append(line)
        self._news.set()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._offer_all(line))
            with suppress(ConnectionClosed):
                while True:
                    data = await connection.recv()
                    assert isinstance(data, bytes)
                    await self._take(line, data)
            self.lines.remove(line)
            sending.cancel()

    async def _take(self, line: Line, data: bytes) -> None:
        numbers, headers, payload = read(data)
        assert {1, 2, 3, 4} <= numbers.keys()
        assert numbers[3] == SERVICE
        if numbers[4] == 0:
            assert headers == {"type": "ping"}
            self.pings += 1
            if not line.is_silent:
                await line.connection.send(written(0, {"type": "pong"}, self.pong))
            return
        assert numbers[2] == 2**63 + 7
        assert headers["biz_rt"].isdecimal()
        answer = json.loads(payload)
        assert answer["code"] == 200
        found = self._offers.pop(headers["message_id"], None)
        if found is not None:
            key = found[0]
            self.answered[key] = json.loads(base64.b64decode(answer.get("data", "e30=")))
            if key.startswith("om_") and key not in self._acknowledged:
                self._acknowledged.append(key)

    async def _offer_all(self, line: Line) -> None:
        with suppress(ConnectionClosed):
            while True:
                self._news.clear()
                for key in [key for key in self._offers if key not in line.offered]:
                    if not line.is_silent and key in self._offers:
                        line.offered.add(key)
                        for frame in self._frames(key, self._offers[key][1]):
                            await line.connection.send(frame)
                await self._news.wait()

    def _frames(self, key: str, event: dict[str, Any]) -> list[bytes]:
        """Return an event in parts, the last one first."""
        body = json.dumps(event, ensure_ascii=False).encode()
        size = -(-len(body) // self.parts)
        frames = []
        for index in range(self.parts):
            headers = {"type": "event", "message_id": key, "trace_id": "t"}
            headers |= {"sum": str(self.parts), "seq": str(index)}
            frames.append(written(1, headers, body[index * size : (index + 1) * size]))
        return frames[::-1]

    # --- calls

    def _answer(self, request: LocalRequest) -> LocalResponse | None:
        path = request.path
        self.calls.append(f"{request.method} {path}")
        if scripted := self.answers.get(path):
            return scripted.pop(0)
        if path == "/open-apis/auth/v3/tenant_access_token/internal":
            return self._grant(request)
        if path == "/callback/ws/endpoint":
            return self._open(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _refused(99991663, 400)
        if path == "/open-apis/bot/v3/info":
            return LocalResponse(
                {"code": 0, "bot": {"open_id": BOT, "app_name": self.agent, "avatar_url": None}}
            )
        if self._refusal == "permission":
            return _refused(99991672, 400)
        if path.startswith(_CARDS):
            return self._card(request, path.removeprefix(_CARDS).strip("/").split("/"))
        return self._message(request, path.removeprefix(_API).split("/"))

    def _grant(self, request: LocalRequest) -> LocalResponse:
        is_known = request.json == {"app_id": APP_ID, "app_secret": APP_SECRET}
        if not is_known or self._refusal in {"token", "revoked"}:
            return _refused(10014 if self._refusal != "revoked" else 10003)
        token = f"canary-token-{next(self._numbers)}"
        self.tokens.add(token)
        return LocalResponse({"code": 0, "tenant_access_token": token, "expire": 7200})

    def _open(self, request: LocalRequest) -> LocalResponse:
        if request.json != {"AppID": APP_ID, "AppSecret": APP_SECRET}:
            return _refused(514)
        if self._refusal in {"token", "revoked"}:
            return _refused(514)
        url = f"{self.web.ws_url}/ws/v2?device_id=d1&service_id={SERVICE}&ticket=canary"
        return LocalResponse({"code": 0, "data": {"URL": url, "ClientConfig": self.client_config}})

    def _message(self, request: LocalRequest, parts: list[str]) -> LocalResponse | None:
        match (request.method, *parts):
            case ("POST", "messages"):
                kind = request.query["receive_id_type"]
                place = request.json["receive_id"]
                assert kind == ("open_id" if place.startswith("ou_") else "chat_id")
                return self._show(place, request.json, None)
            case ("POST", "messages", key, "reply"):
                if key not in self._places:
                    return _refused(230001)
                quotes = None if request.json["reply_in_thread"] else key
                return self._show(self._places[key], request.json, quotes)
            case ("POST", "messages", key, "reactions"):
                self.reactions.append((key, request.json["reaction_type"]["emoji_type"]))
                return LocalResponse({"code": 0})
            case ("DELETE", "messages", key):
                chat = self._chats[self._places[key]]
                chat[:] = [shown for shown in chat if shown.id != key]
                return LocalResponse({"code": 0})
            case ("GET", "messages", key):
                return self._found(key)
            case ("GET", "messages", _, "resources", key):
                assert request.query["type"] in {"image", "file"}
                return LocalResponse(self._files[key][1])
            case ("POST", "images"):
                name, content = request.form()["image"]
                key = self._stored(name, content, "image")
                return LocalResponse({"code": 0, "data": {"image_key": key}})
            case ("POST", "files"):
                form = request.form()
                file_type = form["file_type"][1].decode()
                name = form["file_name"][1].decode()
                key = self._stored(name, form["file"][1], _FILE_TYPES.get(file_type, "file"))
                return LocalResponse({"code": 0, "data": {"file_key": key}})
        return _refused(230001, 404)

    def _found(self, key: str) -> LocalResponse:
        chat = self._chats[self._places[key]]
        shown = next(message for message in chat if message.id == key)
        sender = {"id": APP_ID, "sender_type": "app"}
        if shown.author != self.agent:
            sender = {"id": "ou_x", "sender_type": "user"}
        body = {"content": json.dumps({"text": shown.text})}
        item: dict[str, Any] = {"msg_type": "text", "sender": sender, "body": body}
        return LocalResponse({"code": 0, "data": {"items": [item]}})

    def _show(self, place: str, body: dict[str, Any], quotes: str | None) -> LocalResponse | None:
        if self._left == 0:
            self.web.hang_up()
            return None
        if self._busy:
            return self._busy.pop()
        if place in self._blocked:
            return _refused(230053, 400)
        unique = body.get("uuid", "")
        assert len(unique) <= 50
        if unique and unique in self.keys:
            return LocalResponse({"code": 0, "data": {"message_id": "om_repeated"}})
        content = json.loads(body["content"])
        key = f"om_{next(self._numbers)}"
        if body["msg_type"] == "interactive" and content.get("type") == "card":
            card = self.cards[content["data"]["card_id"]]
            card.message = key
            shown = self._shown(key, card.content)
        elif body["msg_type"] == "interactive":
            if len(body["content"].encode()) > _CARD_BYTES:
                return _refused(230025, 400)
            shown = self._shown(key, content)
        else:
            media = content.get("image_key") or content["file_key"]
            name, data, kind = self._files[media]
            file = ChatFile(name, data, kind)  # type: ignore[arg-type]
            shown = Shown(id=key, author=self.agent, files=(file,))
        self.keys |= {unique} - {""}
        if self._left is not None:
            self._left -= 1
        self._places[key] = place
        self._chats.setdefault(place, []).append(replace(shown, quotes=quotes))
        return LocalResponse({"code": 0, "data": {"message_id": key}})

    def _shown(self, key: str, card: dict[str, Any]) -> Shown:
        assert card["schema"] == "2.0"
        first, *rows = card["body"]["elements"]
        buttons = [
            (one["text"]["content"], one["behaviors"][0]["value"])
            for row in rows
            for column in row["columns"]
            for one in column["elements"]
        ]
        self._values[key] = buttons
        labels = tuple(label for label, _ in buttons)
        if first["tag"] == "div":
            text = first["text"]["content"]
            return Shown(id=key, author=self.agent, text=text, buttons=labels)
        rich = render_markdown(first["content"])
        spans = tuple((span.kind, rich.text[span.offset : span.end]) for span in rich.spans)
        return Shown(id=key, author=self.agent, text=rich.text, spans=spans, buttons=labels)

    def _card(self, request: LocalRequest, parts: list[str]) -> LocalResponse:
        body = request.json
        if parts == [""]:
            key = f"card{next(self._numbers)}"
            self.cards[key] = Card(json.loads(body["data"]))
            return LocalResponse({"code": 0, "data": {"card_id": key}})
        card = self.cards[parts[0]]
        if body["sequence"] <= card.sequence:
            return _refused(300317, 400)
        card.sequence = body["sequence"]
        element = card.content["body"]["elements"][0]
        match (request.method, *parts[1:]):
            case ("PUT",):
                if card.is_streaming:
                    return _refused(300305, 400)
                card.content = json.loads(body["card"]["data"])
            case ("PATCH", "settings"):
                card.content["config"] |= json.loads(body["settings"])["config"]
            case ("PUT", "elements", element_id, "content"):
                assert element["element_id"] == element_id
                if not card.is_streaming:
                    return _refused(300309, 400)
                element["content"] = body["content"]
        if card.message:
            chat = self._chats[self._places[card.message]]
            index = [shown.id for shown in chat].index(card.message)
            chat[index] = replace(self._shown(card.message, card.content), edited=True)
        return LocalResponse({"code": 0})

    def _stored(self, name: str, content: bytes, kind: str) -> str:
        key = f"file_v3_{next(self._numbers)}"
        self._files[key] = (name, content, kind)
        return key

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return list(self._chats.get(chat.partition(":")[0], ()))

    @property
    def acknowledged(self) -> list[str]:
        return list(self._acknowledged)

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        self._left = after
        if not after:
            self.web.hang_up()

    async def come_back(self) -> None:
        self._left = None
        self.web.come_back()

    async def go_silent(self) -> None:
        for line in self.lines:
            line.is_silent = True

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        wait = {"x-ogw-ratelimit-reset": f"{seconds:g}"}
        answer = LocalResponse({"code": 99991400, "msg": "too many"}, 400, wait)
        self._busy = [answer] * times

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refusal = why


def _refused(code: int, status: int = 200) -> LocalResponse:
    return LocalResponse({"code": code, "msg": "refused"}, status)
