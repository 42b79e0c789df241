"""A local DingTalk: Stream mode, replies, pushes and files, as tasks of the test's event loop.

It enforces the rules that the plugin depends on: single tickets, acknowledgements, tokens, the life
of a webhook, sizes, and that nothing arrives on a connection after ``disconnect``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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

CLIENT_ID, CLIENT_SECRET, ROBOT = "dinglocalapp", "canary-secret", "dinglocalrobot"
GROUP = "cidGROUP+/=="
MESSAGES = "/v1.0/im/bot/messages/get"
PING_S = 0.5
_WEBHOOK_BYTES, _PARAM_BYTES = 20_000, 15_000
_KINDS = {"image": "picture", "voice": "audio"}


@dataclass
class Line:
    """A connection of the channel.

    Attributes:
        is_silent: nothing is sent on it any more.
    """

    connection: ServerConnection
    is_silent: bool = False
    offered: set[str] = field(default_factory=set)


class LocalDingTalk(StandIn):
    """An organisation with Anna, Bert, the robot and a group."""

    name = "dingtalk"
    abilities = Abilities(
        longest_text=3_500,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        resends=False,
        asks_to_wait=False,
        refusals=("token", "permission", "revoked"),
    )
    anna = Person("anna01", "Anna")
    bert = Person("bert02", "Bert")
    group = f"group:{GROUP}"

    def __init__(self) -> None:
        self.web: Loopback = Loopback(self._answer, self._talk, self._admit)
        self.lines: list[Line] = []
        self.calls: list[str] = []
        self.webhook_life_s: float = 5_400.0
        self.answers: dict[str, list[LocalResponse]] = {}
        self.names_staff: bool = True
        self.tokens: set[str] = set()
        self._numbers = itertools.count(1)
        self._tickets: set[str] = set()
        self._chats: dict[str, list[Shown]] = {}
        self._offers: dict[str, dict[str, Any]] = {}
        self._sessions: dict[str, tuple[str, float]] = {}
        self._files: dict[str, tuple[str, bytes]] = {}
        self._acknowledged: list[str] = []
        self._blocked: set[str] = set()
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
        return {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "api_base": self.web.http_url,
            "media_base": self.web.http_url,
            "silence_s": 8 * PING_S,
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
        key = f"msg{next(self._numbers)}=="
        said = Shown(id=key, author=who.name, text=text, files=tuple(files), quotes=quote)
        self._chats.setdefault(place, []).append(said)
        if place != self.group or mention:  # a robot gets nothing else of a group
            self.offer(self._message(key, who, place) | self._body(text, files, place, quote))
        return key

    def offer(self, message: dict[str, Any]) -> None:
        """Offer a message to the channel until it is acknowledged."""
        for copy in range(2 if self._is_doubled else 1):
            self._offers[f"{message['msgId']}#{copy}"] = message
        self._is_doubled = False
        self._wake()

    def _message(self, key: str, who: Person, place: str) -> dict[str, Any]:
        session, expires_s = f"s{key}", time.time() + self.webhook_life_s
        self._sessions[session] = (place, expires_s)
        is_group = place == self.group
        return {
            "msgId": key,
            "conversationId": GROUP if is_group else f"cid{who.id}",
            "conversationType": "2" if is_group else "1",
            "senderId": f"$:LWCP_v1:${who.id}",
            **({"senderStaffId": who.id} if self.names_staff else {}),
            "senderNick": who.name,
            "chatbotUserId": "$:LWCP_v1:$robot",
            "robotCode": ROBOT,
            "isInAtList": is_group,
            "createAt": 1_790_000_000_000,
            "sessionWebhook": f"{self.web.http_url}/robot/sendBySession?session={session}",
            "sessionWebhookExpiredTime": int(expires_s * 1000),
            "senderPlatform": "Mac",
        }

    def _body(
        self, text: str, files: Sequence[ChatFile], place: str, quote: str | None
    ) -> dict[str, Any]:
        if not files:
            words: dict[str, Any] = {"content": f" {text}" if place == self.group else text}
            if quote is not None:
                quoted = next(one for one in self._chats[place] if one.id == quote)
                words["isReplyMsg"] = True
                words["repliedMsg"] = {"msgType": "text", "content": {"text": quoted.text}}
            return {"msgtype": "text", "text": words}
        codes = [self._stored(file) for file in files]
        if text or len(files) > 1:
            items = [{"text": text}, *({"type": "picture", "downloadCode": code} for code in codes)]
            return {"msgtype": "richText", "content": {"richText": items}}
        kind = _KINDS.get(files[0].kind, "file")
        return {"msgtype": kind, "content": {"downloadCode": codes[0], "fileName": files[0].name}}

    def _stored(self, file: ChatFile) -> str:
        code = f"code:{next(self._numbers)}"
        self._files[code] = (file.name, file.content)
        return code

    # --- the stream

    def _admit(self, path: str, query: Mapping[str, str]) -> int | None:
        ticket = query.get("ticket", "")
        if ticket not in self._tickets:
            return 401
        self._tickets.discard(ticket)
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        line = Line(connection)
        self.lines.append(line)
        self._wake()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._offer_all(line))
            with suppress(ConnectionClosed):
                while True:
                    self._acknowledge(json.loads(await connection.recv()))
            self.lines.remove(line)
            sending.cancel()

    async def _offer_all(self, line: Line) -> None:
        with suppress(ConnectionClosed):
            while True:
                if not line.is_silent:
                    await line.connection.send(frame("SYSTEM", "ping", {"opaque": "x"}, "ping"))
                self._news.clear()
                for key in [key for key in self._offers if key not in line.offered]:
                    if not line.is_silent and key in self._offers:
                        line.offered.add(key)
                        message = self._offers[key]
                        await line.connection.send(frame("CALLBACK", MESSAGES, message, key))
                with suppress(TimeoutError):
                    async with asyncio.timeout(PING_S):
                        await self._news.wait()

    def _acknowledge(self, answer: dict[str, Any]) -> None:
        assert answer["code"] == 200
        assert isinstance(answer["data"], str)
        key = answer["headers"]["messageId"]
        if key == "ping":
            assert json.loads(answer["data"]) == {"opaque": "x"}
        elif self._offers.pop(key, None) is not None:
            message = key.partition("#")[0]
            if message not in self._acknowledged:
                self._acknowledged.append(message)

    def _wake(self) -> None:
        self._news.set()

    async def disconnect(self) -> None:
        """Announce the end of all connections; afterwards nothing arrives on them."""
        for line in list(self.lines):
            line.is_silent = True
            await line.connection.send(frame("SYSTEM", "disconnect", {"reason": "planned"}, "bye"))

    # --- calls

    def _answer(self, request: LocalRequest) -> LocalResponse | None:
        self.calls.append(request.path)
        scripted = self.answers.get(request.path)
        if scripted:
            return scripted.pop(0)
        routes = {
            "/v1.0/oauth2/accessToken": self._grant,
            "/v1.0/gateway/connections/open": self._open,
            "/robot/sendBySession": self._reply,
            "/v1.0/robot/oToMessages/batchSend": self._push,
            "/v1.0/robot/groupMessages/send": self._push,
            "/v1.0/robot/messageFiles/download": self._find,
            "/media/upload": self._upload,
        }
        if request.path in routes:
            return routes[request.path](request)
        _, content = self._files[request.path.removeprefix("/file/")]
        assert not any("token" in name for name in request.headers)
        return LocalResponse(content)

    def _grant(self, request: LocalRequest) -> LocalResponse:
        is_known = request.json == {"appKey": CLIENT_ID, "appSecret": CLIENT_SECRET}
        if not is_known or self._refusal in {"token", "revoked"}:
            return _refused(400, "invalidClientIdOrSecret")
        token = f"canary-token-{next(self._numbers)}"
        self.tokens.add(token)
        return LocalResponse({"accessToken": token, "expireIn": 7200})

    def _open(self, request: LocalRequest) -> LocalResponse:
        asked = request.json
        is_known = (asked["clientId"], asked["clientSecret"]) == (CLIENT_ID, CLIENT_SECRET)
        if not is_known or self._refusal in {"token", "revoked"}:
            return _refused(401, "authFailed")
        if asked["subscriptions"] != [{"type": "CALLBACK", "topic": MESSAGES}]:
            return _refused(400, "invalidParameter")
        ticket = f"canary+ticket/{next(self._numbers)}"
        self._tickets.add(ticket)
        return LocalResponse({"endpoint": f"{self.web.ws_url}/connect", "ticket": ticket})

    def _reply(self, request: LocalRequest) -> LocalResponse | None:
        place, expires_s = self._sessions.get(request.query.get("session", ""), ("", 0.0))
        if time.time() >= expires_s or place in self._blocked:
            return LocalResponse({"errcode": 300001, "errmsg": "session 不存在"})
        if len(request.body) > _WEBHOOK_BYTES:
            return LocalResponse({"errcode": 460101, "errmsg": "message too long"})
        body = request.json
        if not self._show(place, body["msgtype"], body[body["msgtype"]]):
            return None
        return LocalResponse({"errcode": 0, "errmsg": "ok"})

    def _push(self, request: LocalRequest) -> LocalResponse | None:
        refused = self._unauthorized(request)
        if refused is not None:
            return refused
        body = request.json
        if body["robotCode"] not in {ROBOT, CLIENT_ID}:
            return _refused(400, "invalidParameter.robotCode.notExsit")
        if len(body["msgParam"].encode()) > _PARAM_BYTES:
            return _refused(400, "invalidParameter.msgParam.invalid")
        people = body.get("userIds", [])
        place = people[0] if people else f"group:{body['openConversationId']}"
        known = {self.private(self.anna), self.private(self.bert), self.group} - self._blocked
        answer: dict[str, Any] = {"processQueryKey": f"key{next(self._numbers)}"}
        if place not in known:
            if not people:
                return _refused(400, "invalid.openConversationId")
            return LocalResponse(answer | {"invalidStaffIdList": people})
        kind = body["msgKey"].removeprefix("sample")
        if not self._show(place, kind[0].lower() + kind[1:], json.loads(body["msgParam"])):
            return None
        return LocalResponse(answer)

    def _find(self, request: LocalRequest) -> LocalResponse:
        refused = self._unauthorized(request)
        code = request.json["downloadCode"]
        if refused is None and code not in self._files:
            refused = _refused(400, "unknownError")
        url = f"{self.web.http_url}/file/{code}"
        return refused or LocalResponse({"downloadUrl": url})

    def _upload(self, request: LocalRequest) -> LocalResponse:
        if request.query.get("access_token") not in self.tokens:
            return LocalResponse({"errcode": 40014, "errmsg": "不合法的access_token"})
        name, content = request.form()["media"]
        if name.endswith((".html", ".htm")):
            return LocalResponse({"errcode": 40004, "errmsg": "unsupported"})
        media_id = f"@media{next(self._numbers)}"
        self._files[media_id] = (name, content)
        return LocalResponse({"errcode": 0, "media_id": media_id, "type": request.query["type"]})

    def _unauthorized(self, request: LocalRequest) -> LocalResponse | None:
        if request.headers.get("x-acs-dingtalk-access-token") not in self.tokens:
            return _refused(401, "InvalidAuthentication")
        if self._refusal == "permission":
            return _refused(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied")
        return None

    def _show(self, place: str, kind: str, content: dict[str, Any]) -> bool:
        if self._left == 0:
            self.web.hang_up()
            return False
        if self._left is not None:
            self._left -= 1
        key = f"own{next(self._numbers)}"
        self._chats.setdefault(place, []).append(self._shown(key, kind, content))
        return True

    def _shown(self, key: str, kind: str, content: dict[str, Any]) -> Shown:
        if kind == "markdown":
            assert content["title"]
            rich = render_markdown(content["text"])
            spans = tuple((span.kind, rich.text[span.offset : span.end]) for span in rich.spans)
            return Shown(id=key, author=self.agent, text=rich.text, spans=spans)
        if kind == "text":
            return Shown(id=key, author=self.agent, text=content["content"])
        media = content["photoURL"] if kind == "imageMsg" else content["mediaId"]
        name, data = self._files[media]
        file = ChatFile(name, data, "image" if kind == "imageMsg" else "file")
        return Shown(id=key, author=self.agent, files=(file,))

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return list(self._chats.get(chat, ()))

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

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refusal = why

    def sessions(self) -> Iterator[str]:
        """Yield the webhooks of all messages."""
        yield from (f"{self.web.http_url}/robot/sendBySession?session={s}" for s in self._sessions)


def frame(kind: str, topic: str, data: object, message_id: str) -> str:
    """Return a frame of the stream."""
    headers = {
        "topic": topic,
        "messageId": message_id,
        "contentType": "application/json",
        "time": "1790000000000",
    }
    data = json.dumps(data)
    return json.dumps({"specVersion": "1.0", "type": kind, "headers": headers, "data": data})


def _refused(status: int, code: str) -> LocalResponse:
    return LocalResponse({"requestid": "R", "code": code, "message": "拒绝"}, status)
