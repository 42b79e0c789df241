"""A local QQ: gateway, messages and files, as tasks of the test's event loop.

It enforces the rules that the plugin depends on: tokens, sessions, five answers to each message
within its time, one message for each number, the owner of an upload, sizes, links and permissions.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from nanobot_core import JsonObject
from nanobot_core.chat import render_markdown, utf16_length
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

APP_ID, SECRET, GROUP = "102000001", "canary-secret", "GROUP0F00D"
BEAT_MS = 1_500
_POLL_S = 0.2
_TOKEN_PATH = "/app/getAppAccessToken"
_CHARS, _CALLS, _FILE_BYTES = 2_000, 5, 20 * 1024 * 1024
_C2C_S, _GROUP_S = 3_600.0, 300.0
_CALL = re.compile(r"/v2/(users|groups)/([^/]+)/(messages|files)")
_LINK = re.compile(r"https?://|\b[a-z0-9-]+\.(?:com|org)\b")
_KINDS = {"image": "image/png", "voice": "voice", "file": "file"}
_TYPES: dict[int, Any] = {1: "image", 2: "video", 3: "voice", 4: "file"}


@dataclass
class Session:
    """A session of the gateway; its events stay until the end."""

    id: str
    events: list[dict[str, Any]] = field(default_factory=list)
    confirmed: int = 0


@dataclass
class Line:
    """A connection of the channel.

    Attributes:
        is_silent: nothing is sent on it any more.
        sent: number of the last event that was sent.
    """

    connection: ServerConnection
    session: Session | None = None
    is_silent: bool = False
    sent: int = 0


class LocalQQ(StandIn):
    """Anna, Bert, the bot and a group.

    Attributes:
        takes_active: messages that answer none are taken.
        takes_markdown: the bot has the permission for Markdown.
        takes_buttons: the bot has the permission for buttons.
        takes_links: addresses in texts are accepted.
        refuses_tokens: the gateway accepts no token.
        lost_answers: so many messages are shown, but their answer is lost.
        beat_ms: interval of heartbeats; a connection ends after two without one.
    """

    name = "qq"
    beat_ms = BEAT_MS
    abilities = Abilities(
        longest_text=_CHARS,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        quotes=False,
        buttons=True,
        equal_keys_once=True,
        refusals=("token", "permission", "revoked"),
        measure=utf16_length,
    )
    anna = Person("ANNA0A1B", "Anna")
    bert = Person("BERT0C2D", "Bert")
    group = f"group:{GROUP}"

    def __init__(self) -> None:
        self.web: Loopback = Loopback(self._answer, self._talk)
        self.lines: list[Line] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.tokens: set[str] = set()
        self.identified: int = 0
        self.intents: int = 0
        self.resumed: list[int] = []
        self.confirmed_presses: list[str] = []
        self.takes_active: bool = False
        self.takes_markdown: bool = True
        self.takes_buttons: bool = True
        self.takes_links: bool = True
        self.refuses_tokens: bool = False
        self.lost_answers: int = 0
        self.answers: list[LocalResponse] = []
        self._numbers = itertools.count(1)
        self._session: Session | None = None
        self._waiting: list[dict[str, Any]] = []
        self._chats: dict[str, list[Shown]] = {}
        self._values: dict[tuple[str, str], str] = {}
        self._said: dict[str, tuple[str, float]] = {}
        self._taken: dict[str, set[int]] = {}
        self._files: dict[str, tuple[str, ChatFile]] = {}
        self._blocked: set[str] = set()
        self._busy: tuple[float, int] = (0.0, 0)
        self._left: int | None = None
        self._refusal: Refusal | None = None
        self._is_doubled = False
        self._acknowledged: list[str] = []
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
        return {
            "app_id": APP_ID,
            "secret": SECRET,
            "msg_format": "markdown",
            "active_messages": self.takes_active,
            "api_base": self.web.http_url,
            "token_url": f"{self.web.http_url}{_TOKEN_PATH}",
        }

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
        key = f"ROBOT1.0_m{next(self._numbers)}!"
        self._show(place, Shown(id=key, author=who.name, text=text, files=tuple(files)))
        is_group = place == self.group
        if is_group and not mention:
            return key
        self._said[key] = (place, time.monotonic())
        event: dict[str, Any] = {
            "id": key,
            "content": f" {text}" if is_group else text,
            "timestamp": "2026-11-23T14:00:00+08:00",
            "author": {"id": who.id, ("member" if is_group else "user") + "_openid": who.id},
            "attachments": [self._attached(file) for file in files],
        }
        if is_group:
            event |= {"group_openid": GROUP, "group_id": GROUP}
        for _ in range(2 if self._is_doubled else 1):
            self.offer("GROUP_AT_MESSAGE_CREATE" if is_group else "C2C_MESSAGE_CREATE", event)
        self._is_doubled = False
        return key

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        who = sender or self.anna
        place = next(chat for chat, shown in self._chats.items() if message in shown)
        resolved = {"button_data": self._values[message.id, label], "button_id": "0-0"}
        event: dict[str, Any] = {
            "id": f"press-{next(self._numbers)}",
            "type": 11,
            "timestamp": "2026-11-23T14:00:00+08:00",
            "data": {"type": 11, "resolved": resolved},
        }
        if place == self.group:
            event |= {"group_openid": GROUP, "group_member_openid": who.id, "chat_type": 1}
        else:
            event |= {"user_openid": who.id, "chat_type": 2}
        self.offer("INTERACTION_CREATE", event)

    def offer(self, kind: str, content: object) -> None:
        """Add an event to the session, or to the first one if there is none."""
        event = {"op": 0, "t": kind, "d": content, "id": f"{kind}:{next(self._numbers)}"}
        if self._session is None:
            self._waiting.append(event)
        else:
            self._add(self._session, event)
        self._news.set()

    def _add(self, session: Session, event: dict[str, Any]) -> None:
        session.events.append(event | {"s": len(session.events) + 1})

    def _attached(self, file: ChatFile) -> dict[str, Any]:
        name = f"{next(self._numbers)}"
        self._files[name] = ("", file)
        return {
            "url": f"{self.web.http_url}/file/{name}",
            "content_type": _KINDS.get(file.kind, "file"),
            "filename": file.name,
            "size": len(file.content),
        }

    # --- the gateway

    async def _talk(self, connection: ServerConnection) -> None:
        line = Line(connection)
        self.lines.append(line)
        try:
            await connection.send(_frame(10, {"heartbeat_interval": self.beat_ms}))
            if not await self._greet(line, json.loads(await connection.recv())):
                return
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_all(line))
                with suppress(ConnectionClosed):
                    while True:
                        await self._beat(line, json.loads(await connection.recv()))
                sending.cancel()
        finally:
            self.lines.remove(line)

    async def _greet(self, line: Line, frame: dict[str, Any]) -> bool:
        asked, connection = frame["d"], line.connection
        is_known = asked["token"].removeprefix("QQBot ") in self.tokens
        if self.refuses_tokens or not is_known:
            await connection.close(4004)
        elif self._refusal == "permission":
            await connection.close(4014)
        elif self._refusal == "revoked":
            await connection.close(4915)
        elif frame["op"] == 2:
            assert asked["shard"] == [0, 1]
            self.intents = asked["intents"]
            self._begin(line)
            return True
        elif self._session is None or asked["session_id"] != self._session.id:
            assert frame["op"] == 6
            await connection.send(_frame(9, None))
        else:
            self._resume(line, self._session, asked["seq"])
            return True
        return False

    def _begin(self, line: Line) -> None:
        """Start a session; what the last one has not sent is lost."""
        session = Session(f"session-{next(self._numbers)}")
        self.identified += 1
        self._session = line.session = session
        user = {"id": "1", "username": self.agent, "bot": True}
        ready = {"version": 1, "session_id": session.id, "user": user, "shard": [0, 1]}
        self._add(session, {"op": 0, "t": "READY", "d": ready})
        for event in self._waiting:
            self._add(session, event)
        self._waiting.clear()

    def _resume(self, line: Line, session: Session, sequence: int) -> None:
        assert sequence <= len(session.events)
        self.resumed.append(sequence)
        for other in self.lines:
            other.is_silent = other.is_silent or other.session is session
        line.session, line.sent = session, sequence
        self._confirm(session, sequence)
        self._add(session, {"op": 0, "t": "RESUMED", "d": ""})

    async def _send_all(self, line: Line) -> None:
        assert line.session is not None
        with suppress(ConnectionClosed):
            while True:
                self._news.clear()
                while not line.is_silent and line.sent < len(line.session.events):
                    line.sent += 1
                    await line.connection.send(json.dumps(line.session.events[line.sent - 1]))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._news.wait()

    async def _beat(self, line: Line, frame: dict[str, Any]) -> None:
        assert frame["op"] == 1
        assert line.session is not None
        if frame["d"] is not None:
            assert frame["d"] <= line.sent
            self._confirm(line.session, frame["d"])
        if not line.is_silent:
            await line.connection.send(_frame(11, None))

    def _confirm(self, session: Session, sequence: int) -> None:
        for event in session.events[session.confirmed : sequence]:
            key = event["d"]["id"] if event["t"].endswith("MESSAGE_CREATE") else ""
            if key and key not in self._acknowledged:
                self._acknowledged.append(key)
        session.confirmed = max(session.confirmed, sequence)

    async def close(self, code: int) -> None:
        """Close all connections with a code; what is said from now on must be resumed."""
        for line in list(self.lines):
            line.is_silent = True
            await line.connection.close(code)

    async def order(self, operation: int) -> None:
        """Send an operation on all connections; afterwards nothing arrives on them."""
        for line in list(self.lines):
            line.is_silent = True
            await line.connection.send(_frame(operation, None))

    def end_session(self) -> None:
        """Forget the session: it can no longer be resumed."""
        self._session = None

    # --- calls

    def _answer(self, request: LocalRequest) -> LocalResponse | None:
        self.calls.append((request.path, request.json))
        if request.path == _TOKEN_PATH:
            return self._grant(request)
        if request.path.startswith("/file/"):
            assert "authorization" not in request.headers
            return LocalResponse(self._files[request.path.removeprefix("/file/")][1].content)
        if request.headers.get("authorization", "").removeprefix("QQBot ") not in self.tokens:
            return _refused(11244, 401)
        if request.path == "/gateway":
            return LocalResponse({"url": f"{self.web.ws_url}/websocket/"})
        if request.path.startswith("/interactions/"):
            assert request.json == {"code": 0}
            self.confirmed_presses.append(request.path.removeprefix("/interactions/"))
            return LocalResponse({})
        found = _CALL.fullmatch(request.path)
        assert found, request.path
        place = found[2] if found[1] == "users" else f"group:{found[2]}"
        if found[3] == "files":
            return self._upload(place, request.json)
        return self._send(place, request.json)

    def _grant(self, request: LocalRequest) -> LocalResponse:
        is_known = request.json == {"appId": APP_ID, "clientSecret": SECRET}
        if not is_known or self._refusal == "token":
            return LocalResponse({"code": 100016, "message": "invalid appid or secret"})
        token = f"canary-token-{next(self._numbers)}"
        self.tokens.add(token)
        return LocalResponse({"access_token": token, "expires_in": "7200"})

    def _upload(self, place: str, asked: dict[str, Any]) -> LocalResponse:
        content = base64.b64decode(asked["file_data"], validate=True)
        assert asked["srv_send_msg"] is False
        if len(content) > _FILE_BYTES:
            return _refused(40034004)
        name = asked.get("file_name", "")
        kind: Any = "file" if name else _TYPES[asked["file_type"]]
        info = f"info{next(self._numbers)}"
        self._files[info] = (place, ChatFile(name, content, kind))
        return LocalResponse({"file_uuid": "u", "file_info": info, "ttl": 0})

    def _send(self, place: str, asked: dict[str, Any]) -> LocalResponse | None:
        if self.answers:
            return self.answers.pop(0)
        seconds, times = self._busy
        if times:
            self._busy = (seconds, times - 1)
            return LocalResponse({}, 429, {"Retry-After": f"{seconds:g}"})
        code = self._fault(place, asked) or self._content_fault(place, asked)
        if code:
            return _refused(code)
        if self._left == 0:
            self.web.hang_up()
            return None
        if self._left is not None:
            self._left -= 1
        if "msg_id" in asked:
            self._taken.setdefault(asked["msg_id"], set()).add(asked["msg_seq"])
        key = f"ROBOT1.0_own{next(self._numbers)}!"
        self._show(place, self._shown(key, asked))
        if self.lost_answers:
            self.lost_answers -= 1
            return None
        return LocalResponse({"id": key, "timestamp": "2026-11-23T14:00:01+08:00"})

    def _fault(self, place: str, asked: dict[str, Any]) -> int:
        """Return the code for a message that may not be sent, or 0."""
        if place in self._blocked:
            return 40054013
        if "msg_id" not in asked:
            return 0 if self.takes_active else 40034102
        answered, number = asked["msg_id"], asked.get("msg_seq", 1)
        where, said_s = self._said.get(answered, ("", 0.0))
        if where != place:
            return 40034024
        taken = self._taken.get(answered, set())
        if number in taken:
            return 40054005
        limit_s = _GROUP_S if place == self.group else _C2C_S
        if time.monotonic() - said_s > limit_s:
            return 40034005
        return 22009 if len(taken) >= _CALLS else 0

    def _content_fault(self, place: str, asked: dict[str, Any]) -> int:
        """Return the code for content that is not taken, or 0."""
        if asked["msg_type"] == 7:
            owner, _ = self._files[asked["media"]["file_info"]]
            return 0 if owner == place and asked["content"] == " " else 304080
        is_markdown = asked["msg_type"] == 2
        text = asked["markdown"]["content"] if is_markdown else asked["content"]
        rows = asked["keyboard"]["content"]["rows"] if "keyboard" in asked else []
        if is_markdown and not self.takes_markdown:
            return 304036
        if rows and not (self.takes_buttons and is_markdown):
            return 304057
        if len(rows) > 5 or any(len(row["buttons"]) > 5 for row in rows):
            return 40034029
        if not self.takes_links and _LINK.search(text):
            return 304003
        return 40054007 if utf16_length(text) > _CHARS or not text.strip() else 0

    def _show(self, place: str, message: Shown) -> None:
        self._chats.setdefault(place, []).append(message)

    def _shown(self, key: str, asked: dict[str, Any]) -> Shown:
        if asked["msg_type"] == 7:
            _, file = self._files[asked["media"]["file_info"]]
            return Shown(id=key, author=self.agent, files=(file,))
        if asked["msg_type"] == 0:
            return Shown(id=key, author=self.agent, text=asked["content"])
        labels = []
        for row in asked.get("keyboard", {}).get("content", {}).get("rows", []):
            for button in row["buttons"]:
                labels.append(button["render_data"]["label"])
                self._values[key, labels[-1]] = button["action"]["data"]
        rich = render_markdown(asked["markdown"]["content"])
        spans = tuple((span.kind, rich.text[span.offset : span.end]) for span in rich.spans)
        return Shown(id=key, author=self.agent, text=rich.text, spans=spans, buttons=tuple(labels))

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return list(self._chats.get(chat, ()))

    @property
    def acknowledged(self) -> list[str]:
        return list(self._acknowledged)

    # --- faults

    def age(self, key: str, seconds: float) -> None:
        """Let a message be older."""
        place, said_s = self._said[key]
        self._said[key] = (place, said_s - seconds)

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
        self._busy = (seconds, times)

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refusal = why


def _frame(operation: int, content: object) -> str:
    return json.dumps({"op": operation, "d": content})


def _refused(code: int, status: int = 400) -> LocalResponse:
    body: JsonObject = {"message": "拒绝", "code": code, "err_code": code, "trace_id": "T"}
    return LocalResponse(body, status)
