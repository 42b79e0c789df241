"""A local WhatsApp: its Graph API, and the signed calls with which it delivers messages."""

from __future__ import annotations

import asyncio
import email
import email.policy
import hashlib
import hmac
import itertools
import json
import runpy
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx

from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

read_markup: Callable[[str], tuple[str, tuple[tuple[str, str], ...]]] = runpy.run_path(
    str(Path(__file__).with_name("whatsapp_markup.py"))
)["read_markup"]
TOKEN = "EAAG-local-token"
SECRET = "app-secret-0815"
VERIFY = "verify-0815"
NUMBER_ID = "106540352242922"
NUMBER = "15550783881"
WINDOW_S = 24 * 3600.0
_PAUSE_S = 0.02
_STATUSES = "statuses"
_MEDIA_TYPES = {
    "image": {"image/jpeg", "image/png"},
    "audio": {"audio/ogg; codecs=opus", "audio/mpeg", "audio/mp4", "audio/aac", "audio/amr"},
    "video": {"video/mp4", "video/3gpp"},
}
_MEDIA_BYTES = {"image": 5 << 20, "audio": 16 << 20, "video": 16 << 20, "document": 100 << 20}
_KINDS: dict[str, Any] = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "document": "file",
}


@dataclass(kw_only=True)
class Upload:
    """A file on the platform."""

    name: str
    mime_type: str
    content: bytes


@dataclass(kw_only=True)
class Entry:
    """A message on the platform."""

    shown: Shown
    body: dict[str, Any] = field(default_factory=dict)


class Refused(Exception):
    """The platform answers with an error."""

    def __init__(
        self, code: int, status: int = 400, headers: dict[str, str] | None = None, **fields: Any
    ) -> None:
        self.code = code
        self.status = status
        self.headers = headers or {}
        self.fields = fields
        super().__init__(code)


class LocalWhatsApp(StandIn):
    """A business number, Anna and Bert.

    Attributes:
        app: the application that receives calls; without it, they go to the port of `config`.
        sent: bodies of all accepted messages.
        calls: method and path of all requests to the Graph API.
        answers: status codes of the answers to delivered calls.
        faults: answers to the next messages of the agent.
        late_faults: codes that are reported in a status after the message was accepted.
        uploads: files by their id.
        read: ids of messages that are marked as read.
    """

    name: ClassVar[str] = "whatsapp"
    abilities: ClassVar[Abilities] = Abilities(
        longest_text=4_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "quote"}),
        groups=False,
        buttons=True,
        refusals=("token", "permission", "revoked"),
    )
    anna: ClassVar[Person] = Person("4915100000001", "Anna")
    bert: ClassVar[Person] = Person("4915100000002", "Bert")
    plugins: ClassVar[tuple[str, ...]] = ("http",)

    def __init__(self) -> None:
        self.app: Any = None
        self.sent: list[dict[str, Any]] = []
        self.calls: list[tuple[str, str]] = []
        self.answers: list[int] = []
        self.faults: list[Refused] = []
        self.late_faults: list[int] = []
        self.uploads: dict[str, Upload] = {}
        self.read: list[str] = []
        self._numbers = itertools.count(1)
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._heard: dict[str, float] = {}
        self._acknowledged: list[str] = []
        self._queues: dict[str, asyncio.Queue[tuple[str, dict[str, Any]]]] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self._accepts: int | None = None
        self._repeats = False
        self._blocked: set[str] = set()
        self._credentials: Refusal | None = None
        self._port = 0
        self._hook_port = _free_port()

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient(trust_env=False, timeout=30)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        self._queues = {chat: asyncio.Queue() for chat in (self.anna.id, self.bert.id, _STATUSES)}
        self._workers = [asyncio.create_task(self._work(each)) for each in self._queues.values()]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._client.aclose()
        self._server.close()
        self._break()
        await self._server.wait_closed()

    # --- configuration

    @property
    def url(self) -> str:
        """Address of the Graph API."""
        return f"http://127.0.0.1:{self._port}"

    def section(self) -> dict[str, Any]:
        return {
            "access_token": TOKEN,
            "phone_number_id": NUMBER_ID,
            "app_secret": SECRET,
            "verify_token": VERIFY,
            "api_base": self.url,
        }

    def config(self) -> dict[str, Any]:
        # The section replaces that of the tests.
        return {"gateway": {"port": self._hook_port, "grace_s": 0.5}}

    # --- what people do

    def private(self, person: Person) -> str:
        return person.id

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
        person = sender or self.anna
        content: dict[str, Any] = {"type": "text", "text": {"body": text}}
        if files:
            content = self._media_of(files[0], text)
        if quote is not None:
            content["context"] = {"from": NUMBER, "id": quote}
        key = self.deliver(content, sender=person)
        shown = Shown(id=key, author=person.name, text=text, files=tuple(files), quotes=quote)
        self._entries[person.id].append(Entry(shown=shown))
        return key

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        person = sender or self.anna
        entry = next(each for each in self._entries[person.id] if each.shown.id == message.id)
        action = entry.body["interactive"]["action"]
        choices = [button["reply"] for button in action.get("buttons", ())]
        choices += [row for part in action.get("sections", ()) for row in part["rows"]]
        chosen = next(each for each in choices if label in {each["title"], each.get("description")})
        kind = "button_reply" if "buttons" in action else "list_reply"
        reply = {"id": chosen["id"], "title": chosen["title"]}
        pressed = {"type": "interactive", "interactive": {"type": kind, kind: reply}}
        self.deliver({**pressed, "context": {"from": NUMBER, "id": message.id}}, sender=person)

    def deliver(self, content: dict[str, Any], *, sender: Person | None = None) -> str:
        """Offer a message of any type until it is acknowledged, and return its id."""
        person, key, now = sender or self.anna, self._new_id(), time.time()
        self._heard[person.id] = now
        message = {"from": person.id, "id": key, "timestamp": str(int(now)), **content}
        for _ in range(1 + self._repeats):
            self._offer(person.id, key, self.body([message], [person]))
        self._repeats = False
        return key

    def body(
        self, messages: Sequence[Any], people: Sequence[Person] = (), statuses: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Return the body of a call."""
        contacts = [
            {"profile": {"name": person.name}, "wa_id": person.id, "user_id": user_id(person)}
            for person in people
        ]
        value = {
            "messaging_product": "whatsapp",
            "metadata": {"display_phone_number": NUMBER, "phone_number_id": NUMBER_ID},
            "contacts": contacts,
            "messages": list(messages),
            "statuses": list(statuses),
        }
        change = {"field": "messages", "value": {k: v for k, v in value.items() if v}}
        return {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}

    async def call(self, body: object, secret: str = SECRET, **headers: str) -> httpx.Response:
        """Send one signed call, and return the answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
        sent = {"x-hub-signature-256": f"sha256={digest}", **headers}
        return await self.request("POST", content=content, headers=sent)

    async def request(self, method: str, **content: Any) -> httpx.Response:
        """Call the route of the channel."""
        if self.app is None:
            url = f"http://127.0.0.1:{self._hook_port}/whatsapp"
            return await self._client.request(method, url, **content)
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, "http://gateway/whatsapp", **content)

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return [entry.shown for entry in self._entries[chat]]

    @property
    def acknowledged(self) -> list[str]:
        return list(self._acknowledged)

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        if after:
            self._accepts = after
        else:
            self._hang_up()

    async def come_back(self) -> None:
        self._is_down, self._accepts = False, None

    async def go_silent(self) -> None:
        """Do nothing: each message is a call of its own, so that no connection can be silent."""

    def duplicate_next(self) -> None:
        self._repeats = True

    def busy(self, seconds: float, times: int = 1) -> None:
        headers = {"retry-after": f"{seconds:g}"}
        self.faults += [Refused(131056, headers=headers) for _ in range(times)]

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._credentials = why

    def close_window(self, chat: str) -> None:
        """Let 25 hours pass since the person's last message."""
        self._heard[chat] = time.time() - WINDOW_S - 3600

    def report(self, key: str, code: int) -> None:
        """Report in a status that a message was not delivered."""
        self._offer(_STATUSES, "", self.body([], statuses=[failed(key, code)]))

    def _hang_up(self) -> None:
        self._is_down = True
        self._break()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    # --- deliveries

    def _offer(self, chat: str, key: str, body: dict[str, Any]) -> None:
        self._queues[chat].put_nowait((key, body))

    async def _work(self, queue: asyncio.Queue[tuple[str, dict[str, Any]]]) -> None:
        while True:
            key, body = await queue.get()
            while not await self._is_accepted(body):  # noqa: ASYNC110 - it is offered again
                await asyncio.sleep(_PAUSE_S)
            if key and key not in self._acknowledged:
                self._acknowledged.append(key)

    async def _is_accepted(self, body: dict[str, Any]) -> bool:
        if self._is_down:
            return False
        try:
            answer = await self.call(body)
        except httpx.HTTPError:
            return False
        self.answers.append(answer.status_code)
        return answer.status_code == 200

    # --- Graph API

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while not self._is_down and await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        path = target.partition("?")[0]
        self.calls.append((method, path))
        status, extra = 200, dict[str, str]()
        try:
            found = await self._respond(method, path, headers, content)
        except Refused as error:
            status, extra = error.status, error.headers
            found = {"error": {"code": error.code, "message": f"(#{error.code})", **error.fields}}
        if self._is_down:
            return False
        answer = found if isinstance(found, bytes) else json.dumps(found).encode()
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(answer)}"]
        lines += [f"{name}: {value}" for name, value in extra.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + answer)
        await writer.drain()
        return True

    async def _respond(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> bytes | dict[str, Any]:
        if headers.get("authorization") != f"Bearer {TOKEN}" or self._credentials == "token":
            raise Refused(190, 401)
        if self._credentials is not None:
            raise Refused({"permission": 10, "revoked": 190}[self._credentials], 403)
        match method, path.removeprefix("/v25.0/").split("/"):
            case "GET", ["bytes", media_id]:
                return self.uploads[media_id].content
            case "GET", [number] if number == NUMBER_ID:
                return {"display_phone_number": f"+{NUMBER}", "verified_name": "Nano"}
            case "POST", [number, "messages"] if number == NUMBER_ID:
                return self._message(json.loads(content))
            case "POST", [number, "media"] if number == NUMBER_ID:
                return self._upload(headers["content-type"], content)
            case "GET", [media_id] if media_id in self.uploads:
                url = f"{self.url}/v25.0/bytes/{media_id}"
                return {"url": url, "mime_type": self.uploads[media_id].mime_type}
        raise Refused(100, error_subcode=33)

    def _upload(self, content_type: str, content: bytes) -> dict[str, str]:
        raw = f"content-type: {content_type}\r\n\r\n".encode() + content
        form: Any = email.message_from_bytes(raw, policy=email.policy.HTTP)
        fields = {
            part.get_param("name", header="content-disposition"): part for part in form.iter_parts()
        }
        if fields["messaging_product"].get_payload().strip() != "whatsapp":
            raise Refused(100)
        media_id = f"9{next(self._numbers)}"
        self.uploads[media_id] = Upload(
            name=fields["file"].get_filename() or "",
            mime_type=fields["type"].get_payload().strip(),
            content=fields["file"].get_payload(decode=True),
        )
        return {"id": media_id}

    def _message(self, body: dict[str, Any]) -> dict[str, Any]:
        _demand(body["messaging_product"] == "whatsapp")
        if body.get("status") == "read":
            self.read.append(body["message_id"])
            return {"success": True}
        if self.faults:
            raise self.faults.pop(0)
        if self._accepts == 0:
            self._hang_up()
            return {}
        if self._accepts is not None:
            self._accepts -= 1
        to, key = self._recipient(body), self._new_id()
        late = self._check(to, body) or (self.late_faults.pop(0) if self.late_faults else 0)
        self.sent.append(body)
        if late:
            self.report(key, late)
        elif to:
            self._entries[to].append(Entry(shown=self._shown(key, body), body=body))
        return {"messages": [{"id": key}], "contacts": [{"input": to}]}

    def _recipient(self, body: dict[str, Any]) -> str:
        """Return the phone number; empty if WhatsApp drops the message without an error."""
        if "recipient" in body:
            people = (self.anna, self.bert)
            return next(each.id for each in people if user_id(each) == body["recipient"])
        to = str(body["to"])
        return to if to.isdecimal() else ""

    def _check(self, to: str, body: dict[str, Any]) -> int:
        """Refuse what WhatsApp refuses, and return a code that it reports later."""
        kind = body["type"]
        content = body[kind]
        if to in self._blocked:
            raise Refused(131026)
        if kind != "template" and time.time() - self._heard.get(to, time.time()) > WINDOW_S:
            raise Refused(131047)
        quoted = body.get("context", {}).get("message_id")
        _demand(quoted is None or quoted in {entry.shown.id for entry in self._entries[to]})
        if kind == "text":
            _demand(0 < len(content["body"]) <= 4_096)
        elif kind == "interactive":
            _check_interactive(content)
        elif kind in _KINDS:
            return self._check_media(kind, content)
        return 0

    def _check_media(self, kind: str, content: dict[str, Any]) -> int:
        upload = self.uploads[content["id"]]
        _demand(0 < len(upload.content) <= _MEDIA_BYTES[kind])
        _demand(len(content.get("caption", "")) <= 1_024)
        _demand(kind != "audio" or "caption" not in content)
        is_known = kind == "document" or upload.mime_type in _MEDIA_TYPES[kind]
        # A voice message whose type or name is wrong is accepted, and never arrives.
        is_named = "ogg" not in upload.mime_type or upload.name.endswith(".ogg")
        return 0 if is_known and is_named else 131053

    def _shown(self, key: str, body: dict[str, Any]) -> Shown:
        kind = body["type"]
        content = body[kind]
        text, files, buttons = "", tuple[ChatFile, ...](), tuple[str, ...]()
        if kind == "text":
            text = content["body"]
        elif kind == "interactive":
            text = content["body"]["text"]
            action = content["action"]
            rows = [row for part in action.get("sections", ()) for row in part["rows"]]
            titles = [button["reply"]["title"] for button in action.get("buttons", ())]
            buttons = (*titles, *(row.get("description", row["title"]) for row in rows))
        elif kind == "template":
            parts = content.get("components", ())
            said = [each["text"] for part in parts for each in part["parameters"]]
            text = " ".join([f"<{content['name']}>", *said])
        else:
            upload = self.uploads[content["id"]]
            name = content.get("filename", upload.name)
            text = content.get("caption", "")
            shown_as: Any = "voice" if content.get("voice") else _KINDS[kind]
            files = (ChatFile(name, upload.content, shown_as),)
        seen, spans = read_markup(text)
        return Shown(
            id=key,
            author=self.agent,
            text=seen,
            spans=spans,
            files=files,
            buttons=buttons,
            quotes=body.get("context", {}).get("message_id"),
        )

    def _media_of(self, file: ChatFile, caption: str) -> dict[str, Any]:
        kind = {"voice": "audio", "image": "image"}.get(file.kind, "document")
        types = {"audio": "audio/ogg; codecs=opus", "image": "image/png"}
        mime_type = types.get(kind, "application/octet-stream")
        media_id = f"9{next(self._numbers)}"
        self.uploads[media_id] = Upload(name=file.name, mime_type=mime_type, content=file.content)
        content = {"id": media_id, "mime_type": mime_type}
        if kind == "document":
            content["filename"] = file.name
        if caption:
            content["caption"] = caption
        return {"type": kind, kind: content}

    def _new_id(self) -> str:
        return f"wamid.{next(self._numbers):08}"


def user_id(person: Person) -> str:
    """Return the id of a person that hides the phone number."""
    return f"DE.{person.name}{person.id[::-1]}"


def failed(key: str, code: int) -> dict[str, Any]:
    """Return a status for a message that was not delivered."""
    faults = [{"code": code, "title": f"fault {code}"}]
    return {"id": key, "status": "failed", "timestamp": "1700000000", "errors": faults}


def _check_interactive(content: dict[str, Any]) -> None:
    _demand(0 < len(content["body"]["text"]) <= 1_024)
    action = content["action"]
    if content["type"] == "button":
        replies = [button["reply"] for button in action["buttons"]]
        _demand(0 < len(replies) <= 3)
        _demand(all(0 < len(each["title"]) <= 20 for each in replies))
        _demand(all(0 < len(each["id"]) <= 256 for each in replies))
        _demand(len({each["title"] for each in replies}) == len(replies))
        return
    rows = [row for part in action["sections"] for row in part["rows"]]
    _demand(0 < len(rows) <= 10 and len(action["button"]) <= 20)
    _demand(all(0 < len(row["title"]) <= 24 and 0 < len(row["id"]) <= 200 for row in rows))
    _demand(all(len(row.get("description", "")) <= 72 for row in rows))
    _demand(len({row["id"] for row in rows}) == len(rows))


def _demand(condition: bool) -> None:
    if not condition:
        raise Refused(131009)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
