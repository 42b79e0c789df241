"""A local homeserver with rooms, as the suites for channels use it."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from html.parser import HTMLParser
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from nanobot_core import JsonObject
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

TOKEN = "syt_token_2c1e"
PASSWORD = "open sesame"
AGENT = "@nano:example.org"
GROUP = "!group:example.org"
ANNA = "@anna:example.org"
BERT = "@bert:example.org"
_ENCRYPTION = {"algorithm": "m.megolm.v1.aes-sha2"}
_EVENT_BYTES = 65_536
_HOLD_S = 0.5
_STYLES = {
    "b": "bold",
    "i": "italic",
    "s": "strikethrough",
    "code": "code",
    "pre": "pre",
    "a": "link",
    "blockquote": "quote",
    "h3": "heading",
}
_KINDS = {"image": "m.image", "voice": "m.audio", "file": "m.file"}


class LocalMatrix(StandIn):
    """A homeserver with Anna, Bert and a room for all.

    Attributes:
        server: answers the agent's calls.
        calls: method and path of each call, in order.
        timeline: most events of a room in one sync.
        is_old: it knows no authenticated media.
        event_gate: while it is not set, single events are not answered.
        is_lost: it does not know the token of the next sync.
        busy_syncs: number of syncs to refuse for a moment.
    """

    name = "matrix"
    abilities = Abilities(
        longest_text=12_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        edits=True,
        drafts=True,
        acknowledges=False,
        equal_keys_once=True,
        refusals=("token", "revoked"),
        measure=lambda text: len(text.encode()),
    )
    anna = Person(ANNA, "Anna")
    bert = Person(BERT, "Bert")
    agent = "Nano"
    group = "!group%3Aexample.org"

    def __init__(self) -> None:
        self.server: Loopback = Loopback(self._answer)
        self.calls: list[tuple[str, str]] = []
        self.typing: list[bool] = []
        self.timeline: int = 50
        self.is_old: bool = False
        self.event_gate: asyncio.Event = asyncio.Event()
        self.event_gate.set()
        self.is_lost: bool = False
        self.busy_syncs: int = 0
        self.receipts: list[str] = []
        self.redacted: set[str] = set()
        self.joins: list[int] = []
        self.sessions: list[str] = [TOKEN]
        self.devices: list[str] = []
        self._numbers = itertools.count(1)
        self._stream: list[tuple[str, dict[str, Any]]] = []
        self._members: dict[str, set[str]] = {GROUP: {ANNA, BERT, AGENT}}
        self._invites: dict[str, str] = {}
        self._offered: set[str] = set()
        self._encrypted: set[str] = set()
        self.media: dict[str, bytes] = {}
        self._sent: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._synced = asyncio.Event()
        self._over = asyncio.Event()
        self._is_doubled = False
        self._silences = 0
        self._blocked: set[str] = set()
        self._busy = (0.0, 0)
        self._refused: Refusal | None = None
        self._remaining: int | None = None
        for person in (self.anna, self.bert):
            self._members[_room(self.private(person))] = {person.id, AGENT}

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._changed.set()
        await self.server.__aexit__(kind, error, traceback)

    def section(self) -> dict[str, Any]:
        return {
            "homeserver": self.server.http_url,
            "access_token": TOKEN,
            "user_id": AGENT,
            "edited_messages": True,
            "e2ee_enabled": False,
        }

    def private(self, person: Person) -> str:
        return f"!{person.name.lower()}%3Aexample.org"

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
        room = _room(chat or self.private(who))
        async with asyncio.timeout(10):
            # What was written before the first sync is not answered.
            await self._synced.wait()
        content: dict[str, Any] = {"msgtype": "m.text", "body": text, "m.mentions": {}}
        if mention:
            link = f'<a href="https://matrix.to/#/{AGENT}">Nano</a>'
            content |= {
                "body": f"Nano: {text}",
                "formatted_body": f"{link}: {text}",
                "m.mentions": {"user_ids": [AGENT]},
            }
        if quote is not None:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": quote}}
        for file in files:
            content |= {"msgtype": _KINDS[file.kind], "filename": file.name}
            content |= self.attach(file.content)
            content |= {"body": text or file.name, "info": {"size": len(file.content)}}
        return self.write(room, who.id, content)

    def attach(self, content: bytes) -> dict[str, Any]:
        """Upload a file of a person, and return where it is as a message names it."""
        return {"url": self.keep(content)}

    def write(self, room: str, sender: str, content: dict[str, Any]) -> str:
        """Let a person send a message, and return the id of its event."""
        return self.push(room, sender, content)

    def push(self, room: str, sender: str, content: dict[str, Any], **fields: Any) -> str:
        """Add an event to a room."""
        event = {
            "type": "m.room.message",
            "event_id": f"$event{next(self._numbers)}",
            "sender": sender,
            "origin_server_ts": int(time.time() * 1_000),
            "content": content,
            **fields,
        }
        for _ in range(2 if self._is_doubled and sender != AGENT else 1):
            self._stream.append((room, event))
        self._is_doubled = self._is_doubled and sender == AGENT
        self._changed.set()
        return str(event["event_id"])

    async def edit(self, key: str, text: str) -> None:
        room, event = next(each for each in self._stream if each[1]["event_id"] == key)
        content: dict[str, Any] = {"msgtype": "m.text", "body": f"* {text}"}
        content["m.new_content"] = {"msgtype": "m.text", "body": text}
        content["m.relates_to"] = {"rel_type": "m.replace", "event_id": key}
        self.write(room, event["sender"], content)

    def invite(self, room: str, inviter: str) -> None:
        """Let someone with a room of their own invite the agent; it is offered once."""
        self._members[room] = {inviter}
        self._invites[room] = inviter
        own = {"type": "m.room.member", "state_key": AGENT}
        self.push(room, inviter, {"membership": "invite"}, **own)

    def encrypt(self, room: str) -> None:
        """Encrypt a room from now on."""
        self._encrypted.add(room)
        state = {"type": "m.room.encryption", "state_key": ""}
        self.push(room, ANNA, dict(_ENCRYPTION), **state)

    # --- what people see

    def shown(self, chat: str) -> list[Shown]:
        room, found = _room(chat), {}
        for event in self.sent(room):
            key, content = event["event_id"], event["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                key, content = relation["event_id"], content["m.new_content"]
            if key not in self.redacted:
                is_edit = key in found
                found[key] = self._seen(key, event["sender"], content, is_edit=is_edit)
        return list(found.values())

    def sent(self, room: str) -> list[dict[str, Any]]:
        """Return the messages of a room as people read them."""
        return [event for event in self.events(room) if event["type"] == "m.room.message"]

    def events(self, room: str) -> list[dict[str, Any]]:
        """Return the messages of a room as they are on the wire."""
        events = {
            event["event_id"]: event
            for place, event in self._stream
            if place == room and event["type"] in {"m.room.message", "m.room.encrypted"}
        }
        return list(events.values())

    def _seen(self, key: str, sender: str, content: dict[str, Any], *, is_edit: bool) -> Shown:
        page = _Page()
        page.feed(content.get("formatted_body", ""))
        text = page.text if "formatted_body" in content else content["body"]
        files: tuple[ChatFile, ...] = ()
        if "filename" in content:
            files, text = (ChatFile(content["filename"], self.file_of(content)),), ""
        relation = content.get("m.relates_to", {})
        quotes = relation.get("m.in_reply_to", {}).get("event_id")
        author = {ANNA: "Anna", BERT: "Bert", AGENT: self.agent}.get(sender, sender)
        return Shown(
            id=key,
            author=author,
            text=text,
            spans=tuple(page.spans),
            files=files,
            quotes=quotes,
            edited=is_edit,
        )

    def file_of(self, content: dict[str, Any]) -> bytes:
        """Return the file of a message, as people see it."""
        return self.media[content["url"]]

    @property
    def acknowledged(self) -> list[str]:
        return []

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        if after:
            self._remaining = after
        else:
            self.server.hang_up()

    async def come_back(self) -> None:
        self._remaining = None
        self.server.come_back()

    async def go_silent(self) -> None:
        self._silences += 1

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        self._busy = (seconds, times)

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(_room(chat))

    def refuse_credentials(self, why: Refusal) -> None:
        self._refused = why

    # --- the homeserver

    async def _answer(self, request: LocalRequest) -> LocalResponse | None:
        path = [unquote(part) for part in request.path.split("/")[2:]]
        self.calls.append((request.method, request.path))
        if path[-1] == "login":
            return self._log_in(request.json)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._refused or token not in self.sessions:
            return _error(401, "M_UNKNOWN_TOKEN")
        match path:
            case ["client", "v3", "account", "whoami"]:
                return LocalResponse({"user_id": AGENT, "device_id": "NANO"})
            case ["client", "v3", "profile", _, "displayname"]:
                return LocalResponse({"displayname": self.agent})
            case ["client", "v3", "sync"]:
                return await self._sync(request)
            case ["client", "v3", "rooms", room, *rest]:
                if rest[0] == "event":
                    await self.event_gate.wait()
                return self._of_room(request, room, rest)
            case ["client" | "media", "v1" | "v3", *rest] if "download" in rest or "upload" in rest:
                return self._files(request, path)
            case ["client", "v1", "media", "config"] if not self.is_old:
                return LocalResponse({"m.upload.size": 1_000_000})
            case ["media", "v3", "config"]:
                return LocalResponse({})
        return _error(404, "M_UNRECOGNIZED")

    def _log_in(self, body: dict[str, Any]) -> LocalResponse:
        if body["password"] != PASSWORD or body["identifier"]["user"] != AGENT:
            return _error(403, "M_FORBIDDEN")
        self.devices.append(body.get("device_id", ""))
        self.sessions.append(f"token-{len(self.sessions)}")
        device_id = self.devices[-1] or "DEVICE"
        session: JsonObject = {"access_token": self.sessions[-1], "device_id": device_id}
        return LocalResponse({"user_id": AGENT, **session})

    def _files(self, request: LocalRequest, path: list[str]) -> LocalResponse:
        if path[-1] == "upload":
            return LocalResponse({"content_uri": self.keep(request.body)})
        if self.is_old and path[0] == "client":
            return _error(404, "M_UNRECOGNIZED")
        return LocalResponse(self.media[f"mxc://{path[-2]}/{path[-1]}"])

    def keep(self, content: bytes) -> str:
        """Store a file, and return its address."""
        url = f"mxc://example.org/file{next(self._numbers)}"
        self.media[url] = content
        return url

    async def _sync(self, request: LocalRequest) -> LocalResponse | None:
        since, silences = request.query.get("since"), self._silences
        if self.busy_syncs:
            self.busy_syncs -= 1
            body: JsonObject = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 10}
            return LocalResponse(body, 429)
        if since is not None and self.is_lost:
            self.is_lost = False
            return _error(400, "M_INVALID_PARAM")
        begin = int(since[1:].partition("_")[0]) if since is not None else 0
        json.loads(request.query["filter"])
        hold_s = min(int(request.query["timeout"]) / 1_000, _HOLD_S)
        try:
            async with asyncio.timeout(hold_s):
                while len(self._stream) <= begin and not self._over.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if silences != self._silences:
            await self._over.wait()
            return None
        self._synced.set()
        end = len(self._stream)
        rooms = {room for room, _ in self._stream[begin:end]} - set(self._invites)
        joined = {room: self._joined(room, begin, end) for room in rooms}
        invites = {}
        for room in self._invites.keys() - self._offered:
            self._offered.add(room)
            own = {"type": "m.room.member", "state_key": AGENT, "sender": self._invites[room]}
            invites[room] = {"invite_state": {"events": [own | _membership("invite")]}}
        rooms_found: dict[str, Any] = {"join": joined, "invite": invites}
        return LocalResponse({"next_batch": f"s{end}", "rooms": rooms_found})

    def _joined(self, room: str, begin: int, end: int) -> dict[str, Any]:
        is_new = any(
            place == room and event["content"].get("membership") == "join"
            for place, event in self._stream[begin:end]
        )
        # A room that the agent has just joined is shown with its history.
        first = 0 if is_new else begin
        places = [n for n in range(first, end) if self._stream[n][0] == room]
        shown = places[-self.timeline :]
        events = [self._stream[place][1] for place in shown]
        found: dict[str, Any] = {"timeline": {"events": events, "limited": shown != places}}
        found["timeline"]["prev_batch"] = f"p{shown[0]}"
        # Members may be repeated, so that clients need not remember them.
        own = {"type": "m.room.member", "state_key": AGENT, "sender": AGENT}
        found["state"] = {"events": [own | _membership("join")]}
        if any(event["type"] == "m.room.member" for event in events):
            count = len(self._members[room])
            found["summary"] = {"m.joined_member_count": count, "m.invited_member_count": 0}
        return found

    def _of_room(self, request: LocalRequest, room: str, rest: list[str]) -> LocalResponse | None:
        match request.method, rest:
            case "POST", ["join"]:
                return self._join(request, room)
            case "PUT", ["send", kind, key]:
                return self._send(request, room, kind, key)
            case "PUT", ["redact", event_id, _]:
                self.redacted.add(event_id)
                return LocalResponse({"event_id": f"$event{next(self._numbers)}"})
            case "PUT", ["typing", user_id]:
                assert user_id == AGENT
                self.typing.append(request.json["typing"])
                return LocalResponse({})
            case "POST", ["receipt", "m.read", event_id]:
                self.receipts.append(event_id)
                return LocalResponse({})
            case "GET", ["state", "m.room.encryption"]:
                if room not in self._encrypted:
                    return _error(404, "M_NOT_FOUND")
                return LocalResponse(dict(_ENCRYPTION))
            case "GET", ["joined_members"]:
                return LocalResponse({"joined": {each: {} for each in self._members[room]}})
            case "GET", ["event", event_id]:
                return self._event(room, event_id)
            case "GET", ["messages"]:
                return self._messages(request, room)
        return _error(404, "M_UNRECOGNIZED")

    def _join(self, request: LocalRequest, room: str) -> LocalResponse:
        if request.body != b"{}":
            return _error(400, "M_NOT_JSON")
        if self.joins:
            return _error(self.joins.pop(), "M_UNKNOWN")
        del self._invites[room]
        self._members[room].add(AGENT)
        own = {"type": "m.room.member", "state_key": AGENT}
        self.push(room, AGENT, {"membership": "join"}, **own)
        return LocalResponse({"room_id": room})

    def _event(self, room: str, event_id: str) -> LocalResponse:
        events = {event["event_id"]: event for event in self.events(room)}
        if event_id not in events:
            return _error(404, "M_NOT_FOUND")
        found = dict(events[event_id])
        for event in events.values():
            relation = event["content"].get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace" and relation["event_id"] == event_id:
                found["unsigned"] = {"m.relations": {"m.replace": event}}
        return LocalResponse(found)

    def _messages(self, request: LocalRequest, room: str) -> LocalResponse:
        begin, end = int(request.query["from"][1:]), int(request.query["to"][1:])
        places = [n for n in range(end, begin) if self._stream[n][0] == room][::-1]
        page = places[: min(int(request.query["limit"]), 10)]
        found: dict[str, Any] = {"chunk": [self._stream[place][1] for place in page]}
        if len(places) > len(page):
            found["end"] = f"p{page[-1]}"
        return LocalResponse(found)

    def _send(self, request: LocalRequest, room: str, kind: str, key: str) -> LocalResponse | None:
        seconds, times = self._busy
        if times:
            self._busy = (seconds, times - 1)
            body: JsonObject = {"errcode": "M_LIMIT_EXCEEDED"}
            return LocalResponse(body, 429, {"Retry-After": f"{seconds:g}"})
        if room in self._blocked or AGENT not in self._members.get(room, ()):
            return _error(403, "M_FORBIDDEN")
        if key in self._sent:
            return LocalResponse({"event_id": self._sent[key]})
        if self._remaining is not None:
            if self._remaining == 0:
                self.server.hang_up()
                return None
            self._remaining -= 1
        if len(request.body) > _EVENT_BYTES:
            return _error(413, "M_TOO_LARGE")
        content = request.json
        self.check(room, kind, content)
        self._sent[key] = self.push(room, AGENT, content, type=kind)
        return LocalResponse({"event_id": self._sent[key]})

    def check(self, room: str, kind: str, content: dict[str, Any]) -> None:
        """Check a message of the agent."""
        assert kind == "m.room.message"
        assert content["m.mentions"] == {}
        assert content["msgtype"] != "m.notice"


class _Page(HTMLParser):
    """What a client shows of the HTML of a message.

    Attributes:
        text: what people read.
        spans: kind and words of each formatted part.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[str, str]] = []
        self._out: list[str] = []
        self._open: list[tuple[str, int]] = []

    @property
    def text(self) -> str:
        return "".join(self._out).strip("\n")

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "br":
            self._out.append("\n")
            return
        if tag in {"pre", "blockquote", "h3"}:
            self._out.append("\n")
        self._open.append((tag, len(self._out)))

    def handle_endtag(self, tag: str) -> None:
        name, begin = self._open.pop()
        assert name == tag, "the tags are not nested"
        is_code_block = tag == "code" and bool(self._open) and self._open[-1][0] == "pre"
        if not is_code_block:
            self.spans.append((_STYLES[tag], "".join(self._out[begin:])))
        if tag in {"pre", "blockquote", "h3"}:
            self._out.append("\n")

    def handle_data(self, data: str) -> None:
        self._out.append(data)


def _room(chat: str) -> str:
    return unquote(chat.partition(":$")[0])


def _membership(how: str) -> dict[str, Any]:
    return {"content": {"membership": how}}


def _error(status: int, code: str) -> LocalResponse:
    body: JsonObject = {"errcode": code, "error": "refused"}
    return LocalResponse(body, status)
