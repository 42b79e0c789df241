"""A local Discord: its API, its event stream and its files, and the people who use it.

It enforces Discord's rules (lengths in UTF-16 units, files, buttons, nonces, interactions, sessions
and their sequence) and shows what a person would see. It runs in a thread with a loop of its own,
and needs nothing but aiohttp, which nanobot-discord has.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import WSMsgType, web

TOKEN = "MTA5OTk4.Gx0aBc.local-discord-token"
BOT: dict[str, Any] = {
    "id": "900000000000000001",
    "username": "nano",
    "discriminator": "0000",
    "global_name": "Nano",
    "avatar": None,
    "bot": True,
}
ANNA: dict[str, Any] = {
    "id": "100000000000000001",
    "username": "anna_x",
    "discriminator": "0",
    "global_name": "Anna",
    "avatar": None,
}
BERT: dict[str, Any] = ANNA | {
    "id": "100000000000000002",
    "username": "bert_x",
    "global_name": "Bert",
}
APPLICATION = "900000000000000002"
GUILD, BOT_ROLE = "300000000000000001", "300000000000000009"
DM, CHANNEL, THREAD = "200000000000000001", "200000000000000002", "200000000000000003"
BERT_DM = "200000000000000004"
_DMS = {DM: ANNA, BERT_DM: BERT}
MESSAGE_CONTENT = 1 << 15

_EPOCH_MS = 1_420_070_400_000
_MB = 1024 * 1024
_LIMIT_S = 10.0
_HEARTBEAT_MS = 1_000


def utf16(text: str) -> int:
    """Return the length of `text` in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Refused(Exception):
    """An error that Discord returns for a call."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass
class Fault:
    """A fault of calls.

    ``cut`` breaks the connection, ``cut_after`` does so when the work is done, ``garbage`` answers
    with something else, ``refuse`` with `error`, ``limit`` with 429 and ``edge`` with the page of
    the edge before the API.
    """

    kind: Literal["cut", "cut_after", "garbage", "refuse", "limit", "edge"]
    error: Refused | None = None
    method: str = ""
    times: int = 1


@dataclass
class Shown:
    """A message as a person sees it.

    Attributes:
        id: of the message.
        author: name of who wrote it.
        text: in Discord's markup.
        files: names and contents.
        buttons: rows of label and value.
        reply_to: id of the message that it answers.
        edits: texts that it had before.
        reactions: emoji of the bot.
        pings: it notified people.
        is_pending: it shows "thinking …".
    """

    id: str
    author: str
    text: str = ""
    files: list[tuple[str, bytes]] = field(default_factory=list)
    buttons: list[list[tuple[str, str]]] = field(default_factory=list)
    reply_to: str | None = None
    edits: list[str] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)
    pings: bool = False
    is_pending: bool = False
    is_bot: bool = False
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Session:
    id: str
    events: list[tuple[str, object]] = field(default_factory=list)
    """Event `n` has the sequence number `n` + 1."""
    socket: web.WebSocketResponse | None = None
    is_valid: bool = True
    silent: web.WebSocketResponse | None = None
    """A connection on which nothing is sent any more."""


@dataclass
class _Response:
    """An interaction and its first response."""

    channel: str
    kind: int = 0
    message: Shown | None = None
    pressed: Shown | None = None
    began_s: float = field(default_factory=time.monotonic)


class DiscordApi:
    """The servers; a context manager.

    Attributes:
        chats: channel to what is shown there.
        acknowledged: ids of messages that the bot has confirmed, in order.
        calls: method and path of the calls, in order.
        typing: channels in which the bot typed.
        commands: the bot's slash commands.
        dead: channel to the error of a call there.
        token: the only one that is accepted.
        allows_content: the intent for the content of messages is on.
        proxied: credentials of the calls through a proxy.
        retry_after_s: what a call with the fault ``limit`` asks to wait.
        sessions: how many sessions were begun, and `resumes` how many were resumed.
    """

    def __init__(self) -> None:
        self.chats: dict[str, list[Shown]] = {one: [] for one in (*_DMS, CHANNEL, THREAD)}
        self.acknowledged: list[str] = []
        self.calls: list[str] = []
        self.typing: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self.dead: dict[str, Refused] = {}
        self.sessions, self.resumes = 0, 0
        self.token = TOKEN
        self.is_down = False
        self.allows_content = True
        self.retry_after_s = 0.05
        self.proxied: list[str] = []
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._budget: int | None = None
        self._faults: list[tuple[str, Fault]] = []
        self._history: dict[str, list[dict[str, Any]]] = {one: [] for one in self.chats}
        self._nonces: dict[tuple[str, str], dict[str, Any]] = {}
        self._responses: dict[str, _Response] = {}
        self._files: dict[str, bytes] = {}
        self._known: list[_Session] = []
        self._last_id = 0
        self._changed = threading.Condition(threading.RLock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local discord")
        self._runner: web.AppRunner | None = None
        self.port = 0

    # --- life

    def __enter__(self) -> DiscordApi:
        self._thread.start()
        self._in_loop(self._serve())
        return self

    def __exit__(self, *_: object) -> None:
        self._in_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=64 * _MB)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/files/{name}", self._file)
        app.router.add_route("*", "/api/{path:.*}", self._call)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _end(self) -> None:
        await self._drop_sockets()
        if self._runner is not None:
            await self._runner.cleanup()

    def _in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_S)

    @property
    def url(self) -> str:
        """The address of the API, for ``api_base``."""
        return f"http://127.0.0.1:{self.port}/api"

    def hang_up(self, after: int = 0) -> None:
        """Take `after` more messages of the bot, then break every connection."""
        with self._changed:
            if after:
                self._budget = after
                return
        self._in_loop(self._hang_up())

    async def _hang_up(self) -> None:
        self.is_down = True
        await self._drop_sockets()

    def come_back(self) -> None:
        """Answer again."""
        with self._changed:
            self.is_down, self._budget = False, None

    async def _drop_sockets(self) -> None:
        for session in self._known:
            if session.socket is not None:
                _cut(session.socket)
                session.socket = None

    def drop_sockets(self) -> None:
        """Break the event streams at once."""
        self._in_loop(self._drop_sockets())

    def silence(self) -> None:
        """Send nothing more over the connections that are open."""
        for session in self._known:
            session.silent = session.socket

    def hold_history(self) -> None:
        """Answer requests for the history only after `let_go`."""
        self._loop.call_soon_threadsafe(self._may_read.clear)

    def let_go(self) -> None:
        """Answer them."""
        self._loop.call_soon_threadsafe(self._may_read.set)

    def close_sockets(self, code: int) -> None:
        """Close the event streams with a code of Discord."""

        async def close() -> None:
            for session in self._known:
                socket, session.socket = session.socket, None
                if socket is not None:
                    await socket.close(code=code)

        self._in_loop(close())

    def send_frame(self, frame: object) -> None:
        """Send something over the event streams; a text is sent unchanged."""
        text = frame if isinstance(frame, str) else json.dumps(frame)

        async def send() -> None:
            for session in self._known:
                if session.socket is not None:
                    await session.socket.send_str(text)

        self._in_loop(send())

    def forget_sessions(self) -> None:
        """Let no session be resumed."""
        with self._changed:
            for session in self._known:
                session.is_valid = False

    def fail(
        self,
        path: str,
        kind: Literal["cut", "cut_after", "garbage", "refuse", "limit", "edge"] = "refuse",
        *,
        status: int = 400,
        code: int = 0,
        message: str = "Bad Request",
        method: str = "",
        times: int = 1,
    ) -> None:
        """Make the next calls whose path ends in `path` fail."""
        with self._changed:
            fault = Fault(kind, Refused(status, code, message), method, times)
            self._faults.append((path, fault))

    def wait_until(self, condition: Callable[[], bool], limit_s: float = _LIMIT_S) -> None:
        """Wait until `condition` holds."""
        with self._changed:
            if not self._changed.wait_for(condition, limit_s):
                raise TimeoutError(f"not within {limit_s} s; calls: {self.calls[-20:]}")

    # --- what people do

    def say(
        self, text: str = "", *, channel: str = DM, sender: dict[str, Any] = ANNA, **fields: Any
    ) -> str:
        """Let a person write, and return the id of the message."""
        message = self.message(text, channel=channel, sender=sender, **fields)
        self.push("MESSAGE_CREATE", message)
        return str(message["id"])

    def message(
        self, text: str = "", *, channel: str = DM, sender: dict[str, Any] = ANNA, **fields: Any
    ) -> dict[str, Any]:
        """Return a message of a person as Discord describes it, and show it."""
        message = _message(self.next_id(), channel, sender, text) | fields
        if channel not in _DMS:
            message["guild_id"] = GUILD
            message["member"] = {"nick": None, "roles": []}
        with self._changed:
            stored = {key: value for key, value in message.items() if key not in _LIVE_ONLY}
            self._history.setdefault(channel, []).append(stored)
            shown = Shown(message["id"], sender.get("username", "?"), text, raw=message)
            self.chats.setdefault(channel, []).append(shown)
        return message

    def edit(self, message_id: str, text: str, channel: str = DM, **fields: Any) -> None:
        """Let a person edit a message."""
        with self._changed:
            shown = self._find(channel, message_id)
            shown.edits.append(shown.text)
            shown.text = text
            shown.raw["content"] = text
            shown.raw["edited_timestamp"] = "2026-11-23T12:00:00.000000+00:00"
        self.push("MESSAGE_UPDATE", shown.raw | fields)

    def command(
        self, name: str, text: str = "", *, channel: str = DM, sender: dict[str, Any] = ANNA
    ) -> str:
        """Let a person use a slash command, and return the id of the interaction."""
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        data = {"id": "1", "name": name, "type": 1, "options": options}
        return self._interact(2, channel, sender, data, None)

    def press(
        self, shown: Shown, label: str, *, channel: str = DM, sender: dict[str, Any] = ANNA
    ) -> str:
        """Let a person press a button, and return the id of the interaction."""
        values = [value for row in shown.buttons for found, value in row if found == label]
        data = {"component_type": 2, "custom_id": values[0]}
        return self._interact(3, channel, sender, data, shown)

    def _interact(
        self,
        kind: int,
        channel: str,
        sender: dict[str, Any],
        data: dict[str, Any],
        pressed: Shown | None,
    ) -> str:
        number = self.next_id()
        token = f"token-{number}"
        with self._changed:
            self._responses[token] = _Response(channel, pressed=pressed)
        event: dict[str, Any] = {
            "id": number,
            "application_id": APPLICATION,
            "type": kind,
            "token": token,
            "version": 1,
            "channel_id": channel,
            "channel": self._channel(channel),
            "data": data,
        }
        if channel in _DMS:
            event["user"] = sender
        else:
            event |= {"guild_id": GUILD, "member": {"user": sender, "nick": None}}
        self.push("INTERACTION_CREATE", event)
        return number

    def upload(self, name: str, content: bytes, **fields: Any) -> dict[str, Any]:
        """Keep a file, and return it as an attachment of a message."""
        number = self.next_id()
        self._files[f"{number}-{name}"] = content
        url = f"http://127.0.0.1:{self.port}/files/{number}-{name}"
        return {"id": number, "filename": name, "size": len(content), "url": url} | fields

    def push(self, name: str, data: object) -> None:
        """Send an event over the sessions."""

        async def push() -> None:
            for session in self._known:
                session.events.append((name, data))
                await self._send_event(session, len(session.events))

        self._in_loop(push())

    def repeat(self, message_id: str, channel: str) -> None:
        """Send a message again, as another event."""
        fields = {} if channel in _DMS else {"guild_id": GUILD}
        self.push("MESSAGE_CREATE", self.described(channel, message_id) | fields)

    def repeat_command(self) -> None:
        """Send the last interaction again, as another event."""
        events = [event for session in self._known for event in session.events]
        name, data = next(one for one in reversed(events) if one[0] == "INTERACTION_CREATE")
        self.push(name, data)

    def next_id(self) -> str:
        """Return a new id of the present time."""
        with self._changed:
            now = int(time.time() * 1_000) - _EPOCH_MS << 22
            self._last_id = max(self._last_id + 1, now)
            return str(self._last_id)

    # --- what is shown

    def shown(self, channel: str = DM) -> list[Shown]:
        """Return what the bot shows in a channel."""
        with self._changed:
            return [one for one in self.chats[channel] if one.is_bot]

    def transcript(self, channel: str = DM) -> str:
        """Return what a person sees in a channel."""
        lines = []
        with self._changed:
            for one in self.chats[channel]:
                text = "thinking …" if one.is_pending else one.text
                lines.append(f"{one.author}: {text}" + (" (edited)" if one.edits else ""))
                lines += [f"   [{name}, {len(content)} B]" for name, content in one.files]
                lines += ["   " + " ".join(f"({label})" for label, _ in row) for row in one.buttons]
        return "\n".join(lines)

    def all_shown(self, channel: str) -> list[Shown]:
        """Return what everybody shows in a channel and in its threads."""
        with self._changed:
            threads = self.chats[THREAD] if channel == CHANNEL else []
            return sorted([*self.chats[channel], *threads], key=lambda one: int(one.id))

    def channel_of(self, message_id: str) -> str:
        """Return where a message is shown."""
        with self._changed:
            return next(
                channel
                for channel, shown in self.chats.items()
                if any(one.id == message_id for one in shown)
            )

    def described(self, channel: str, message_id: str) -> dict[str, Any]:
        """Return a message as Discord describes it."""
        with self._changed:
            return next(one for one in self._history[channel] if one["id"] == message_id)

    def _find(self, channel: str, message_id: str) -> Shown:
        for one in self.chats.get(channel, ()):
            if one.id == message_id:
                return one
        raise Refused(404, 10008, "Unknown Message")

    # --- the event stream

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        if self.is_down or request.query.get("v") != "10":
            raise web.HTTPServiceUnavailable
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        await _send(socket, op=10, d={"heartbeat_interval": _HEARTBEAT_MS})
        session: _Session | None = None
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            frame = json.loads(message.data)
            if session is not None and session.silent is socket:
                continue
            if frame["op"] == 1:
                self._acknowledge(session, frame["d"] or 0)
                await _send(socket, op=11)
            elif frame["op"] in {2, 6}:
                session = await self._introduce(socket, frame["op"], frame["d"])
        if session is not None and session.socket is socket:
            session.socket = None
            # A client that closes with these codes ends its session.
            session.is_valid = session.is_valid and socket.close_code not in {1000, 1001}
        return socket

    async def _introduce(
        self, socket: web.WebSocketResponse, operation: int, data: dict[str, Any]
    ) -> _Session | None:
        code: int | None = None
        if data["token"] != self.token:
            code = 4004
        elif operation == 2 and data["intents"] & MESSAGE_CONTENT and not self.allows_content:
            code = 4014
        if code is not None:
            await socket.close(code=code)
            return None
        if operation == 6:
            return await self._resume(socket, data)
        session = _Session(f"session-{len(self._known)}", socket=socket)
        self._known.append(session)
        ready = {
            "v": 10,
            "user": BOT,
            "session_id": session.id,
            "resume_gateway_url": f"ws://127.0.0.1:{self.port}/gateway",
            "guilds": [{"id": GUILD, "unavailable": True}],
            "application": {"id": APPLICATION, "flags": 1 << 19},
        }
        session.events += [("READY", ready), ("GUILD_CREATE", self._guild())]
        await self._send_event(session, 1)
        await self._send_event(session, 2)
        with self._changed:
            self.sessions += 1
            self._changed.notify_all()
        return session

    async def _resume(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> _Session | None:
        found = [one for one in self._known if one.id == data["session_id"] and one.is_valid]
        if not found:
            await _send(socket, op=9, d=False)
            return None
        session = found[0]
        session.socket = socket
        self._acknowledge(session, data["seq"])
        for number in range(data["seq"] + 1, len(session.events) + 1):
            await self._send_event(session, number)
        session.events.append(("RESUMED", {}))
        await self._send_event(session, len(session.events))
        with self._changed:
            self.resumes += 1
            self._changed.notify_all()
        return session

    def _acknowledge(self, session: _Session | None, number: int) -> None:
        if session is None:
            return
        with self._changed:
            for name, data in session.events[:number]:
                if name == "MESSAGE_CREATE" and isinstance(data, dict):
                    key = str(data.get("id"))
                    if key not in self.acknowledged:
                        self.acknowledged.append(key)
            self._changed.notify_all()

    async def _send_event(self, session: _Session, number: int) -> None:
        socket = session.socket
        if socket is None or socket.closed or socket is session.silent:
            return
        name, data = session.events[number - 1]
        with suppress(ConnectionError):
            await _send(socket, op=0, s=number, t=name, d=data)

    def _guild(self) -> dict[str, Any]:
        return {
            "id": GUILD,
            "name": "Team",
            "channels": [self._channel(CHANNEL)],
            "threads": [self._channel(THREAD)],
            "roles": [{"id": BOT_ROLE, "name": "nano", "tags": {"bot_id": BOT["id"]}}],
        }

    def _channel(self, channel: str) -> dict[str, Any]:
        if channel in _DMS:
            return {"id": channel, "type": 1, "recipients": [_DMS[channel]]}
        if channel == THREAD:
            return {"id": THREAD, "type": 11, "guild_id": GUILD, "parent_id": CHANNEL}
        return {"id": channel, "type": 0, "guild_id": GUILD, "parent_id": "1", "name": "general"}

    # --- the API

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if self.is_down:
            _cut(request)
        assert "Authorization" not in request.headers, "the token went to the files"
        content = self._files.get(request.match_info["name"])
        if content is None:
            raise web.HTTPNotFound
        return web.Response(body=content)

    async def _call(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        call = f"{request.method} {path}"
        fault = self._fault(request.method, path)
        is_send = request.method == "POST" and path.endswith("/messages")
        if self.is_down or (fault is not None and fault.kind == "cut"):
            _cut(request)
            return web.Response()
        if is_send and self._budget is not None:
            self._budget -= 1
            if self._budget < 0:
                await self._hang_up()
                _cut(request)
                return web.Response()
        with self._changed:
            self.calls.append(call)
            self.proxied += request.headers.getall("Proxy-Authorization", [])
        try:
            answer = self._faulty(fault)
            if answer is None:
                answer = _json(await self._answer(request, path))
        except Refused as error:
            answer = _json({"code": error.code, "message": error.message}, error.status)
        with self._changed:
            self._changed.notify_all()
        if fault is not None and fault.kind == "cut_after":
            _cut(request)
        return answer

    def _fault(self, method: str, path: str) -> Fault | None:
        with self._changed:
            for end, fault in self._faults:
                if path.endswith(end) and fault.method in {"", method} and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def _faulty(self, fault: Fault | None) -> web.Response | None:
        if fault is None or fault.kind == "cut_after":
            return None
        if fault.kind == "garbage":
            return web.Response(text="<html>", content_type="text/html")
        if fault.kind == "edge":
            return web.Response(status=429, text="<html>error code: 1015", content_type="text/html")
        if fault.kind == "limit":
            limited = {
                "message": "You are being rate limited.",
                "retry_after": self.retry_after_s,
                "global": False,
            }
            return _json(limited, 429, {"Via": "1.1 google", "Retry-After": "1"})
        assert fault.error is not None
        raise fault.error

    async def _answer(self, request: web.Request, path: str) -> object:
        parts = path.strip("/").split("/")
        if parts[0] == "interactions":
            return await self._respond(parts[2], await request.json())
        if parts[0] == "webhooks":
            return await self._change_response(request, parts[2])
        if request.headers.get("Authorization") != f"Bot {self.token}":
            raise Refused(401, 0, "401: Unauthorized")
        match request.method, parts:
            case "GET", ["users", "@me"]:
                return BOT
            case "GET", ["oauth2", "applications", "@me"]:
                return {"id": APPLICATION, "name": "nano", "bot_public": False}
            case "GET", ["gateway", "bot"]:
                limit = {"total": 1000, "remaining": 999, "reset_after": 1000, "max_concurrency": 1}
                url = f"ws://127.0.0.1:{self.port}/gateway"
                return {"url": url, "shards": 1, "session_start_limit": limit}
            case "PUT", ["applications", _, "commands"]:
                self.commands = _checked_commands(await request.json())
                return self.commands
            case _, ["channels", channel, *rest]:
                return await self._in_channel(request, channel, rest)
        raise Refused(404, 0, "404: Not Found")

    async def _in_channel(self, request: web.Request, channel: str, rest: list[str]) -> object:
        if channel in self.dead:
            raise self.dead[channel]
        if channel not in self.chats:
            raise Refused(404, 10003, "Unknown Channel")
        match request.method, rest:
            case "GET", []:
                return self._channel(channel)
            case "POST", ["typing"]:
                self.typing.append(channel)
                return None
            case "GET", ["messages"]:
                await self._may_read.wait()
                return self._page(channel, request.query)
            case "POST", ["messages"]:
                payload, files = await _content(request)
                return self._create(channel, payload, files)
            case "PATCH", ["messages", message_id]:
                payload, files = await _content(request)
                shown = self._own(channel, message_id)
                self._change(shown, payload, files)
                return _message(shown.id, channel, BOT, shown.text)
            case "DELETE", ["messages", message_id]:
                self.chats[channel].remove(self._own(channel, message_id))
                return None
            case method, ["messages", message_id, "reactions", emoji, "@me"]:
                reactions = self._find(channel, message_id).reactions
                (reactions.append if method == "PUT" else reactions.remove)(emoji)
                return None
        raise Refused(404, 0, "404: Not Found")

    def _own(self, channel: str, message_id: str) -> Shown:
        shown = self._find(channel, message_id)
        if not shown.is_bot:
            raise Refused(403, 50005, "Cannot edit a message authored by another user")
        return shown

    def _page(self, channel: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise Refused(400, 50035, "Invalid Form Body")
        found = self._history[channel]
        if "after" in query:
            found = [one for one in found if int(one["id"]) > int(query["after"])][:limit]
        return found[-limit:][::-1]

    def _create(
        self, channel: str, payload: dict[str, Any], files: list[tuple[str, bytes]]
    ) -> dict[str, Any]:
        nonce = str(payload.get("nonce", ""))
        if len(nonce) > 25:
            raise Refused(400, 50035, "nonce: too long")
        with self._changed:
            known = self._nonces.get((channel, nonce))
            if nonce and payload.get("enforce_nonce") and known is not None:
                return known
            shown = Shown(self.next_id(), BOT["username"], is_bot=True)
            self._change(shown, payload, files)
            self.chats[channel].append(shown)
            message = _message(shown.id, channel, BOT, shown.text)
            self._history[channel].append(message)
            if nonce:
                self._nonces[channel, nonce] = message
        return message

    def _change(
        self, shown: Shown, payload: dict[str, Any], files: list[tuple[str, bytes]]
    ) -> None:
        text = payload.get("content", shown.text) or ""
        reference = payload.get("message_reference")
        _check(text, files or shown.files)
        with self._changed:
            if shown.text and shown.text != text:
                shown.edits.append(shown.text)
            shown.text, shown.is_pending = text, False
            shown.files += files
            shown.pings = shown.pings or _pings(text, reference, payload)
            if "components" in payload:
                shown.buttons = _checked_buttons(payload["components"])
            if reference is not None:
                shown.reply_to = str(reference["message_id"])

    async def _respond(self, token: str, payload: dict[str, Any]) -> object:
        response = self._responses.get(token)
        if response is None or time.monotonic() - response.began_s > 3:
            raise Refused(404, 10062, "Unknown interaction")
        if response.kind:
            raise Refused(400, 40060, "Interaction has already been acknowledged.")
        response.kind = payload["type"]
        if response.kind == 5:
            response.message = Shown(self.next_id(), BOT["username"], is_pending=True, is_bot=True)
            self.chats[response.channel].append(response.message)
        else:
            assert response.kind == 6
            response.message = response.pressed
        return None

    async def _change_response(self, request: web.Request, token: str) -> object:
        response = self._responses.get(token)
        if response is None or response.message is None:
            raise Refused(404, 10015, "Unknown Webhook")
        if request.method == "DELETE":
            self.chats[response.channel].remove(response.message)
            return None
        payload, files = await _content(request)
        self._change(response.message, payload, files)
        return _message(response.message.id, response.channel, BOT, response.message.text)


_LIVE_ONLY = frozenset({"guild_id", "member"})
"""Fields of events that the history does not have."""


def _message(number: str, channel: str, author: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": number,
        "type": 0,
        "channel_id": channel,
        "author": author,
        "content": text,
        "timestamp": "2026-11-23T12:00:00.000000+00:00",
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [BOT] if f"<@{BOT['id']}>" in text else [],
        "mention_roles": [BOT_ROLE] if f"<@&{BOT_ROLE}>" in text else [],
        "attachments": [],
        "embeds": [],
        "pinned": False,
    }


def _check(text: str, files: list[tuple[str, bytes]]) -> None:
    if utf16(text) > 2_000:
        raise Refused(400, 50035, "content: Must be 2000 or fewer in length.")
    if not text.strip() and not files:
        raise Refused(400, 50006, "Cannot send an empty message")
    if len(files) > 10:
        raise Refused(400, 50035, "attachments: too many")
    sizes = [len(content) for _, content in files]
    if any(size > 10 * _MB for size in sizes) or sum(sizes) > 25 * _MB:
        raise Refused(413, 40005, "Request entity too large")


def _pings(text: str, reference: object, payload: dict[str, Any]) -> bool:
    """Return whether somebody is notified."""
    allowed = payload.get("allowed_mentions")
    if allowed is None:
        return reference is not None or any(mark in text for mark in ("@everyone", "@here", "<@"))
    return bool(allowed.get("parse")) or bool(reference and allowed.get("replied_user"))


def _checked_buttons(components: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    rows = [row["components"] for row in components]
    found = [button for row in rows for button in row]
    values = [button["custom_id"] for button in found]
    if (
        len(rows) > 5
        or any(not 1 <= len(row) <= 5 for row in rows)
        or any(not 1 <= utf16(button["label"]) <= 80 for button in found)
        or any(not 1 <= len(value) <= 100 for value in values)
        or len(set(values)) < len(values)
    ):
        raise Refused(400, 50035, "components: invalid")
    return [[(button["label"], button["custom_id"]) for button in row] for row in rows]


def _checked_commands(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for command in commands:
        name = command["name"]
        if not (1 <= len(name) <= 32 and name == name.lower() and " " not in name):
            raise Refused(400, 50035, "name: invalid")
        if not 1 <= len(command["description"]) <= 100:
            raise Refused(400, 50035, "description: invalid")
    if len(commands) > 100:
        raise Refused(400, 30032, "Maximum number of application commands reached")
    return commands


async def _content(request: web.Request) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    if not request.content_type.startswith("multipart/"):
        return await request.json(), []
    payload: dict[str, Any] = {}
    files: list[tuple[str, bytes]] = []
    async for part in await request.multipart():
        assert not isinstance(part, web.Request)
        content = await part.read(decode=False)  # type: ignore[union-attr]
        if part.name == "payload_json":  # type: ignore[union-attr]
            payload = json.loads(content)
        else:
            files.append((part.filename or "", bytes(content)))  # type: ignore[union-attr]
    assert [file["filename"] for file in payload["attachments"]] == [name for name, _ in files]
    return payload, files


async def _send(socket: web.WebSocketResponse, **frame: Any) -> None:
    with suppress(ConnectionError):
        await socket.send_str(json.dumps({"op": None, "d": None, "s": None, "t": None} | frame))


def _json(answer: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    if answer is None:
        return web.Response(status=204, headers=headers)
    # The SDK reads JSON only if the type is exactly this.
    body = json.dumps(answer).encode()
    sent = {"Content-Type": "application/json"} | (headers or {})
    return web.Response(status=status, body=body, headers=sent)


def _cut(connection: web.Request | web.WebSocketResponse) -> None:
    """Break a connection at once."""
    request = connection if isinstance(connection, web.Request) else connection._req
    transport = request.transport if request is not None else None
    if transport is not None:
        transport.abort()
