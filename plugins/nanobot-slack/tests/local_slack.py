"""A local Slack: the Web API and Socket Mode, as tasks of the test's event loop.

It enforces the rules of the platform that the plugin depends on: tokens, kinds of content, sizes,
forms of blocks, one connection per address of a socket, acknowledgements, pongs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiohttp import WSMessage, WSMsgType, web

from nanobot_core.chat import FILE_KINDS, FileKind
from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

Json: TypeAlias = dict[str, Any]

BOT_TOKEN, APP_TOKEN = "xoxb-local-bot", "xapp-local-app"
TEAM, BOT, BOT_ID = "T0TEAM", "U0NANO", "B0NANO"
SCOPES = (
    "app_mentions:read,channels:history,chat:write,files:read,files:write,"
    "groups:history,im:history,reactions:write"
)
_START = 1_790_000_000
_TEXT_CHARS, _BLOCK_CHARS, _BLOCKS, _MARKDOWN_CHARS = 40_000, 13_200, 50, 12_000
_FORMS = frozenset(
    {"conversations.history", "conversations.replies", "files.info", "files.getUploadURLExternal"}
)
_MESSAGES = frozenset({"chat.postMessage", "chat.startStream", "files.completeUploadExternal"})
_REFUSALS = {"token": "invalid_auth", "revoked": "token_revoked", "permission": "missing_scope"}
_STYLES = {"bold": "bold", "italic": "italic", "strike": "strikethrough", "code": "code"}
_PINGS = ("<!", "<@", "<#")


class Refused(Exception):
    """Slack answers with an error."""


@dataclass
class Note:
    """A message."""

    ts: str
    author: str
    text: str
    thread_ts: str = ""
    blocks: list[Json] = field(default_factory=list)
    files: list[Json] = field(default_factory=list)
    edits: int = 0
    reactions: list[str] = field(default_factory=list)
    is_streaming: bool = False


@dataclass
class Offer:
    """An envelope that is not acknowledged yet."""

    frame: Json
    key: str


class LocalSlack(StandIn):
    """A workspace with Anna, Bert, the agent and a channel.

    Attributes:
        calls: the methods that were called, with their arguments.
        pings: texts of the agent that would notify people.
        resend_s: seconds after which an envelope that is not acknowledged is offered again.
        loses_events: what people write is only in the history.
        sends_hello: the socket begins as usual.
        others: connections of other programs.
        loses_answers_of: method that takes effect, and whose answers are lost.
        files_moved_to: address to which downloads are redirected.
    """

    name = "slack"
    abilities = Abilities(
        longest_text=12_000,
        formatting=frozenset(
            {"bold", "italic", "strikethrough", "code", "pre", "link", "quote"},
        ),
        group_threads=True,
        quotes=False,
        edits=True,
        buttons=True,
        drafts=True,
        refusals=("token", "permission", "revoked"),
    )
    anna = Person("U0ANNA", "Anna")
    bert = Person("U0BERT", "Bert")
    group = "C0GROUP"

    def __init__(self, resend_s: float = 3.0) -> None:
        self.calls: list[tuple[str, Json]] = []
        self.pings: list[str] = []
        self.resend_s = resend_s
        self.loses_events = False
        self.sends_hello = True
        self.others = 0
        self.statuses: list[Json] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.conversations: dict[str, list[Note]] = {
            place: [] for place in (self.group, "D0ANNA", "D0BERT")
        }
        self.files: dict[str, tuple[str, bytes]] = {}
        self.failures: dict[str, list[tuple[int, str, dict[str, str]]]] = {}
        self.scopes = SCOPES
        self.files_moved_to = ""
        self.loses_answers_of = ""
        self._numbers = itertools.count(1)
        self._offers: dict[str, Offer] = {}
        self._acknowledged: list[str] = []
        self._tickets: set[str] = set()
        self._silent: set[web.WebSocketResponse] = set()
        self._blocked: set[str] = set()
        self._is_down = False
        self._left: int | None = None
        self._is_doubled = False
        self._refusal = ""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- serving

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 1024 * 1024)
        app.router.add_post("/api/{method}", self._answer)
        app.router.add_post("/upload/{file}", self._take_file)
        app.router.add_get("/files-pri/{file}/{name}", self._give_file)
        app.router.add_get("/link", self._link)
        self._runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.host = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        self._break()
        await self._runner.cleanup()

    def section(self) -> dict[str, Any]:
        return {
            "bot_token": BOT_TOKEN,
            "app_token": APP_TOKEN,
            "api_base": f"http://{self.host}/api",
            "edited_messages": True,
        }

    def private(self, person: Person) -> str:
        return f"D0{person.name.upper()}"

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        method = request.match_info.get("method", "")
        if self._left == 0 and method in _MESSAGES:
            self._is_down, self._left = True, None
            self._break()
        if self._is_down:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return await handler(request)

    def _break(self) -> None:
        for socket in self.sockets:
            if socket._req is not None and socket._req.transport is not None:
                socket._req.transport.abort()

    # --- Web API

    async def _answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        is_form = request.content_type == "application/x-www-form-urlencoded"
        arguments: Json = dict(await request.post()) if is_form else await request.json()
        headers = {"x-oauth-scopes": self.scopes}
        planned = self.failures.get(method)
        if planned:
            status, text, more = planned.pop(0)
            content_type = "application/json" if text.startswith("{") else "text/html"
            return web.Response(
                status=status, text=text, headers=headers | more, content_type=content_type
            )
        try:
            self._check_token(method, request.headers.get("Authorization", ""))
            if method in _FORMS and not is_form:
                raise Refused("invalid_arguments")
            self.calls.append((method, arguments))
            done = self._do(method, arguments)
        except Refused as error:
            answer: Json = {"ok": False, "error": str(error)}
            if str(error) == "missing_scope":
                answer |= {"needed": "chat:write", "provided": self.scopes}
            return web.json_response(answer, headers=headers)
        if method in _MESSAGES and self._left is not None:
            self._left -= 1
        if method == self.loses_answers_of and request.transport is not None:
            request.transport.abort()
        return web.json_response({"ok": True, **done}, headers=headers)

    def _check_token(self, method: str, header: str) -> None:
        expected = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if header != f"Bearer {expected}":
            raise Refused("invalid_auth" if header else "not_authed")
        if self._refusal in {"token", "revoked"}:
            raise Refused(_REFUSALS[self._refusal])
        if self._refusal == "permission" and method.startswith("chat."):
            raise Refused("missing_scope")

    def _do(self, method: str, given: Json) -> Json:
        handler = getattr(self, "_do_" + method.replace(".", "_").lower(), None)
        if handler is None:
            raise Refused("unknown_method")
        done: Json = handler(given)
        return done

    def _do_auth_test(self, given: Json) -> Json:
        names = {"team": "Work", "user": "nano", "url": "https://work.slack.com/"}
        return names | {"team_id": TEAM, "user_id": BOT, "bot_id": BOT_ID}

    def _do_apps_connections_open(self, given: Json) -> Json:
        ticket = f"ticket-{next(self._numbers)}"
        self._tickets.add(ticket)
        return {"url": f"ws://{self.host}/link?ticket={ticket}"}

    def _do_chat_postmessage(self, given: Json) -> Json:
        notes = self._writable(given)
        note = Note(self._stamp(), BOT, "", given.get("thread_ts", ""))
        self._fill(note, given)
        notes.append(note)
        return {"channel": given["channel"], "ts": note.ts, "message": {"text": note.text}}

    def _do_chat_update(self, given: Json) -> Json:
        note = self._own(given)
        if note.is_streaming:
            raise Refused("streaming_state_conflict")
        self._fill(note, given)
        note.edits += 1
        return {"channel": given["channel"], "ts": note.ts}

    def _do_chat_delete(self, given: Json) -> Json:
        note = self._own(given)
        if note.is_streaming:
            raise Refused("streaming_state_conflict")
        self.conversations[given["channel"]].remove(note)
        return {}

    def _do_chat_startstream(self, given: Json) -> Json:
        notes = self._writable(given)
        if not given.get("thread_ts"):
            raise Refused("invalid_thread_ts")
        if given["channel"].startswith("C") and not (
            given.get("recipient_user_id") and given.get("recipient_team_id")
        ):
            raise Refused("missing_recipient")
        note = Note(self._stamp(), BOT, "", given["thread_ts"], is_streaming=True)
        self._stream(note, given)
        notes.append(note)
        return {"channel": given["channel"], "ts": note.ts}

    def _do_chat_appendstream(self, given: Json) -> Json:
        note = self._own(given)
        if not note.is_streaming:
            raise Refused("message_not_in_streaming_state")
        self._stream(note, given)
        note.edits += 1
        return {"channel": given["channel"], "ts": note.ts}

    def _do_chat_stopstream(self, given: Json) -> Json:
        note = self._own(given)
        if not note.is_streaming:
            raise Refused("message_not_in_streaming_state")
        note.is_streaming = False
        return {"channel": given["channel"], "ts": note.ts}

    def _do_assistant_threads_setstatus(self, given: Json) -> Json:
        self.statuses.append(given)
        return {}

    def _do_reactions_add(self, given: Json) -> Json:
        note = self._found(given["channel"], given["timestamp"])
        if given["name"] in note.reactions:
            raise Refused("already_reacted")
        note.reactions.append(given["name"])
        return {}

    def _do_reactions_remove(self, given: Json) -> Json:
        note = self._found(given["channel"], given["timestamp"])
        if given["name"] not in note.reactions:
            raise Refused("no_reaction")
        note.reactions.remove(given["name"])
        return {}

    def _do_conversations_open(self, given: Json) -> Json:
        person = next((who for who in (self.anna, self.bert) if who.id == given["users"]), None)
        if person is None:
            raise Refused("user_not_found")
        return {"channel": {"id": self.private(person)}}

    def _do_conversations_history(self, given: Json) -> Json:
        notes = [note for note in self._place(given["channel"]) if not note.thread_ts]
        return self._page(notes, given)

    def _do_conversations_replies(self, given: Json) -> Json:
        place = self._place(given["channel"])
        root = [note for note in place if note.ts == given["ts"]]
        page = self._page([note for note in place if note.thread_ts == given["ts"]], given)
        page["messages"] = [*map(self._described, root), *reversed(page["messages"])]
        return page

    def _page(self, notes: list[Note], given: Json) -> Json:
        new = [note for note in notes if float(note.ts) > float(given.get("oldest", 0))]
        limit = int(given.get("limit", 100))
        described = [self._described(note) for note in reversed(new[-limit:])]
        return {"messages": described, "has_more": len(new) > limit}

    def _do_files_getuploadurlexternal(self, given: Json) -> Json:
        file = f"F{next(self._numbers):04}"
        self.files[file] = (given["filename"], b"")
        return {"upload_url": f"http://{self.host}/upload/{file}", "file_id": file}

    def _do_files_completeuploadexternal(self, given: Json) -> Json:
        notes = self._writable({"channel": given.get("channel_id"), **given})
        listed = [self.files.get(file["id"]) for file in given["files"]]
        if any(file is None or not file[1] for file in listed):
            raise Refused("file_not_found")
        note = Note(self._stamp(), BOT, "", given.get("thread_ts", ""))
        note.files = [{"id": file["id"]} for file in given["files"]]
        notes.append(note)
        return {"files": note.files}

    def _do_files_info(self, given: Json) -> Json:
        if given["file"] not in self.files:
            raise Refused("file_not_found")
        return {"file": self._described_file(given["file"])}

    # --- files

    async def _take_file(self, request: web.Request) -> web.Response:
        file = request.match_info["file"]
        assert "Authorization" not in request.headers
        self.files[file] = (self.files[file][0], await request.read())
        return web.Response(text=f"OK - {len(self.files[file][1])}")

    async def _give_file(self, request: web.Request) -> web.Response:
        if self.files_moved_to:
            raise web.HTTPFound(self.files_moved_to)
        is_known = request.headers.get("Authorization") == f"Bearer {BOT_TOKEN}"
        if not is_known or "files:read" not in self.scopes:
            page = "<!DOCTYPE html><html>Sign in</html>"
            return web.Response(text=page, content_type="text/html")
        return web.Response(body=self.files[request.match_info["file"]][1])

    def _described_file(self, file: str) -> Json:
        name, content = self.files[file]
        url = f"http://{self.host}/files-pri/{file}/{name}"
        return {"id": file, "name": name, "size": len(content), "url_private": url}

    # --- rules of messages

    def _writable(self, given: Json) -> list[Note]:
        channel = given.get("channel") or ""
        if channel.startswith("U"):
            channel = self._do_conversations_open({"users": channel})["channel"]["id"]
        if channel in self._blocked:
            raise Refused("messages_tab_disabled" if channel.startswith("D") else "is_archived")
        notes = self._place(channel)
        thread = given.get("thread_ts")
        if thread and not any(note.ts == thread for note in notes):
            raise Refused("thread_not_found")
        return notes

    def _place(self, channel: str) -> list[Note]:
        if channel not in self.conversations:
            raise Refused("channel_not_found")
        return self.conversations[channel]

    def _found(self, channel: str, ts: str) -> Note:
        for note in self._place(channel):
            if note.ts == ts:
                return note
        raise Refused("message_not_found")

    def _own(self, given: Json) -> Note:
        note = self._found(given["channel"], given["ts"])
        if note.author != BOT:
            raise Refused("cant_update_message")
        return note

    def _fill(self, note: Note, given: Json) -> None:
        text, blocks = given.get("text", ""), given.get("blocks") or []
        if not text.strip() and not blocks:
            raise Refused("no_text")
        if len(blocks) > _BLOCKS:
            raise Refused("invalid_blocks")
        if sum(map(_size, blocks)) > _BLOCK_CHARS:
            raise Refused("msg_blocks_too_long")
        for block in blocks:
            _check_block(block)
        if any(mark in text for mark in _PINGS) or "broadcast" in json.dumps(blocks):
            self.pings.append(text)
        note.text, note.blocks = text[:_TEXT_CHARS], blocks

    def _stream(self, note: Note, given: Json) -> None:
        text = given.get("markdown_text", "")
        if not text:
            raise Refused("no_text")
        note.text += text
        if len(note.text) > _MARKDOWN_CHARS:
            raise Refused("msg_too_long")
        if any(mark in note.text for mark in _PINGS):
            self.pings.append(note.text)

    def _stamp(self) -> str:
        number = next(self._numbers)
        return f"{_START + number}.{number:06}"

    # --- socket

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=408)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        if self.sends_hello:
            await socket.send_json(
                {"type": "hello", "num_connections": self.others + len(self.sockets) + 1}
            )
        self.sockets.append(socket)
        resend = asyncio.create_task(self._resend(socket))
        try:
            for offer in list(self._offers.values()):
                await socket.send_json(offer.frame)
            async for frame in socket:
                await self._frame(socket, frame)
        finally:
            resend.cancel()
            self.sockets.remove(socket)
        return socket

    async def _frame(self, socket: web.WebSocketResponse, frame: WSMessage) -> None:
        if socket in self._silent:
            return
        if frame.type is WSMsgType.PING:
            await socket.pong(frame.data)
        elif frame.type is WSMsgType.TEXT:
            offer = self._offers.pop(json.loads(frame.data)["envelope_id"], None)
            if offer is not None and offer.key not in self._acknowledged:
                self._acknowledged.append(offer.key)

    async def _resend(self, socket: web.WebSocketResponse) -> None:
        while True:
            before = set(self._offers)
            await asyncio.sleep(self.resend_s)
            for envelope_id, offer in list(self._offers.items()):
                if envelope_id in before and socket not in self._silent:
                    offer.frame |= {"retry_attempt": offer.frame.get("retry_attempt", 0) + 1}
                    with suppress(ConnectionError):
                        await socket.send_json(offer.frame)

    async def push(self, kind: str, payload: Json, key: str = "") -> None:
        """Offer an envelope."""
        envelope_id = f"envelope-{next(self._numbers)}"
        frame = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        self._offers[envelope_id] = Offer(frame, key)
        open_sockets = [each for each in self.sockets if each not in self._silent]
        if open_sockets:
            with suppress(ConnectionError):
                await open_sockets[-1].send_json(frame)

    async def disconnect(self, reason: str) -> None:
        """Announce the end of all connections."""
        for socket in list(self.sockets):
            await socket.send_json({"type": "disconnect", "reason": reason})

    async def event(self, event: Json, key: str = "") -> None:
        """Offer an event."""
        number = next(self._numbers)
        payload = {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{number}"}
        await self.push("events_api", payload | {"event": event}, key)

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
        channel, _, thread = (chat or self.private(who)).partition(":")
        words = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        note = Note(self._stamp(), who.id, f"<@{BOT}> {words}".strip() if mention else words)
        note.thread_ts = thread
        if quote is not None:
            quoted = self._found(channel, quote)
            note.thread_ts = quoted.thread_ts or quoted.ts
        for file in files:
            file_id = f"F{next(self._numbers):04}"
            self.files[file_id] = (file.name, file.content)
            note.files.append({"id": file_id, "kind": file.kind})
        self.conversations[channel].append(note)
        if self.loses_events:
            return note.ts
        event = self._described(note) | {"channel": channel}
        is_doubled, self._is_doubled = self._is_doubled, False
        for _ in range(1 + is_doubled):
            await self.event(event, note.ts)
        if mention and channel.startswith("C"):
            await self.event(event | {"type": "app_mention", "subtype": None}, note.ts)
        return note.ts

    async def edit(self, key: str, text: str) -> None:
        channel, note = next(
            (channel, note)
            for channel, notes in self.conversations.items()
            for note in notes
            if note.ts == key
        )
        before = self._described(note)
        note.text, note.edits = text, note.edits + 1
        after = self._described(note) | {"edited": {"user": note.author, "ts": self._stamp()}}
        changed = {"type": "message", "subtype": "message_changed", "ts": self._stamp()}
        event = changed | {"channel": channel, "message": after, "previous_message": before}
        await self.event(event | {"hidden": True}, key)

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        channel, note = next(
            (channel, note)
            for channel, notes in self.conversations.items()
            for note in notes
            if note.ts == message.id
        )
        button = next(each for each in _buttons(note) if each["text"]["text"] == label)
        place = {"type": "message", "channel_id": channel, "message_ts": note.ts}
        thread = {"thread_ts": note.thread_ts} if note.thread_ts else {}
        payload = {
            "type": "block_actions",
            "user": {"id": (sender or self.anna).id, "username": "x", "team_id": TEAM},
            "container": place | thread,
            "message": {"text": note.text, "blocks": note.blocks, **thread},
            "actions": [{**button, "action_ts": self._stamp()}],
        }
        await self.push("interactive", payload)

    async def command(self, text: str, *, channel: str = "D0ANNA", user: str = "U0ANNA") -> None:
        """Let a person use the slash command of the app."""
        payload = {"command": "/nanobot", "text": text, "user_id": user, "channel_id": channel}
        await self.push("slash_commands", payload | {"trigger_id": f"{next(self._numbers)}.1.a"})

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        return [self._seen(note) for note in self.conversations[chat.partition(":")[0]]]

    def note(self, ts: str) -> Note:
        """Return a message."""
        return next(
            note for notes in self.conversations.values() for note in notes if note.ts == ts
        )

    @property
    def acknowledged(self) -> list[str]:
        return [key for key in self._acknowledged if key]

    def _seen(self, note: Note) -> Shown:
        names = {self.anna.id: "Anna", self.bert.id: "Bert", BOT: self.agent}
        text, spans = _visible(note)
        files = []
        for file in note.files:
            name, content = self.files[file["id"]]
            files.append(ChatFile(name, content, file.get("kind", _kind(name))))
        return Shown(
            id=note.ts,
            author=names.get(note.author, note.author),
            text=text,
            spans=tuple(spans),
            files=tuple(files),
            buttons=tuple(each["text"]["text"] for each in _buttons(note)),
            quotes=note.thread_ts or None,
            edited=note.edits > 0,
        )

    def _described(self, note: Note) -> Json:
        event: Json = {"type": "message", "user": note.author, "text": note.text, "ts": note.ts}
        if note.author == BOT:
            event["bot_id"] = BOT_ID
        others = [each for notes in self.conversations.values() for each in notes]
        if note.thread_ts:
            root = next((each for each in others if each.ts == note.thread_ts), note)
            event |= {"thread_ts": note.thread_ts, "parent_user_id": root.author}
        elif any(each.thread_ts == note.ts for each in others):
            event |= {"thread_ts": note.ts}
        if note.files:
            event["subtype"] = "file_share"
            event["files"] = [self._described_file(file["id"]) for file in note.files]
        return event

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        self._left = after or None
        if not after:
            self._is_down = True
            self._break()

    async def come_back(self) -> None:
        self._is_down, self._left = False, None

    async def go_silent(self) -> None:
        self._silent.update(self.sockets)

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def fail(
        self, method: str, error: str, *, status: int = 200, times: int = 1, **headers: str
    ) -> None:
        """Refuse the next calls of a method; an `error` that is no word is the whole answer."""
        text = error if " " in error else json.dumps({"ok": False, "error": error})
        self.failures.setdefault(method, []).extend([(status, text, headers)] * times)

    def busy(self, seconds: float, times: int = 1) -> None:
        headers = {"Retry-After": f"{seconds:g}"}
        self.fail("chat.postMessage", "ratelimited", status=429, times=times, **headers)

    def block(self, chat: str, *, blocked: bool = True) -> None:
        if blocked:
            self._blocked.add(chat)
        else:
            self._blocked.discard(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refusal = why
        if why == "permission":
            self.scopes = SCOPES.replace("chat:write,", "")


# --- blocks


def _check_block(block: Json) -> None:
    if block["type"] == "actions":
        ids = [each["action_id"] for each in block["elements"]]
        labels = [each["text"]["text"] for each in block["elements"]]
        if len(set(ids)) < len(ids) or len(ids) > 25 or max(map(len, labels)) > 75:
            raise Refused("invalid_blocks")
    elif block["type"] == "rich_text":
        for part in block["elements"]:
            if part["type"] not in {
                "rich_text_section",
                "rich_text_preformatted",
                "rich_text_quote",
            }:
                raise Refused("invalid_blocks")
            for each in part["elements"]:
                _check_inline(part["type"], each)
    else:
        raise Refused("invalid_blocks")


def _check_inline(part: str, each: Json) -> None:
    is_link = each["type"] == "link" and str(each["url"]).split(":")[0] in {
        "http",
        "https",
        "mailto",
    }
    if not (is_link or each["type"] == "text") or not each["text"]:
        raise Refused("invalid_blocks")
    if part == "rich_text_preformatted" and each.get("style"):
        raise Refused("invalid_blocks")
    if not set(each.get("style", {})) <= set(_STYLES):
        raise Refused("invalid_blocks")


def _size(block: Json) -> int:
    if block["type"] != "rich_text":
        return 0
    parts = (each for part in block["elements"] for each in part["elements"])
    return sum(len(each["text"]) + len(each.get("url", "")) for each in parts)


def _visible(note: Note) -> tuple[str, list[tuple[str, str]]]:
    rich = [block for block in note.blocks if block["type"] == "rich_text"]
    if not rich:
        text = note.text.replace(f"<@{BOT}>", "@Nano")
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(entity, character)
        return text, []
    parts, spans = [], []
    for part in rich[0]["elements"]:
        words = "".join(each["text"] for each in part["elements"])
        kind = {"rich_text_preformatted": "pre", "rich_text_quote": "quote"}.get(part["type"])
        if kind:
            spans.append((kind, words))
        for each in part["elements"]:
            spans.extend(_inline_spans(each))
        parts.append(words)
    return "\n".join(parts), spans


def _inline_spans(each: Json) -> Iterator[tuple[str, str]]:
    if each["type"] == "link":
        yield "link", each["text"]
    for style in each.get("style", {}):
        yield _STYLES[style], each["text"]


def _buttons(note: Note) -> list[Json]:
    rows = [block["elements"] for block in note.blocks if block["type"] == "actions"]
    return [button for row in rows for button in row]


def _kind(name: str) -> FileKind:
    return FILE_KINDS.get("." + name.rpartition(".")[2].lower(), "file")
