"""A local Telegram: a Bot API server on the loopback, and the people who use it.

It enforces Telegram's rules (lengths in UTF-16 units, entities, buttons, albums, offsets) and shows
what a person would see. It is one file and uses only the standard library, so that tests of other
packages can load it by its path.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN = "4839574812:AAFD39kkdpWt3ywyRZergyOLMaJhac60qcM"
BOT: dict[str, Any] = {
    "id": 4839574812,
    "is_bot": True,
    "first_name": "Nano",
    "username": "nano_bot",
}
ANNA: dict[str, Any] = {
    "id": 1001,
    "is_bot": False,
    "first_name": "Anna",
    "last_name": "Berg",
    "username": "anna_b",
}
PRIVATE: dict[str, Any] = {"id": 1001, "type": "private", "first_name": "Anna"}
GROUP: dict[str, Any] = {"id": -100200300, "type": "supergroup", "title": "Team", "is_forum": True}

Answer: TypeAlias = dict[str, Any] | list[Any] | bool
"""The result of a call."""

_KEPT_S = 30.0
_DELAY_S = 0.3
_NESTABLE = {"bold", "italic", "underline", "strikethrough", "spoiler"}
_MEDIA = ("photo", "voice", "audio", "video", "animation", "document")
_SUFFIX = {"photo": "photos/p.jpg", "voice": "voice/v.oga"}


def utf16(text: str) -> int:
    """Return the length of `text` in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Refused(Exception):
    """An error that Telegram returns for a call."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


@dataclass
class Fault:
    """A fault of a call.

    ``cut`` breaks the connection instead of answering, ``cut_after`` does so when the work is done,
    ``hang`` never answers, ``garbage`` answers with no JSON, ``refuse`` with `error`,
    and ``delay`` takes a moment.
    """

    kind: Literal["cut", "cut_after", "hang", "garbage", "refuse", "delay"]
    error: Refused | None = None
    times: int = 1


@dataclass
class Shown:
    """A message as a person sees it.

    Attributes:
        id: its id in the chat.
        thread: topic that it stands in.
        text: text or caption.
        entities: formatting.
        files: kind, name and content of attached files.
        buttons: rows of label and data.
        reply_to: id of the message that it quotes.
        edits: texts that it had before.
    """

    id: int
    thread: int | None = None
    text: str = ""
    entities: list[dict[str, Any]] = field(default_factory=list)
    files: list[tuple[str, str, bytes]] = field(default_factory=list)
    buttons: list[list[tuple[str, str]]] = field(default_factory=list)
    reply_to: int | None = None
    edits: list[str] = field(default_factory=list)

    def spans(self) -> list[tuple[str, str]]:
        """Return kind and text of each formatted part."""
        units = self.text.encode("utf-16-le")
        return [
            (
                e["type"],
                units[2 * e["offset"] : 2 * (e["offset"] + e["length"])].decode("utf-16-le"),
            )
            for e in self.entities
        ]

    def details(self) -> list[str]:
        """Return formatting, files and buttons, one per line."""
        return [
            *(f"   <{kind}> {words}" for kind, words in self.spans()),
            *(f"   [{kind}: {name}, {len(data)} B]" for kind, name, data in self.files),
            *("   " + " ".join(f"({label})" for label, _ in row) for row in self.buttons),
        ]


class BotApi:
    """The server; a context manager.

    Attributes:
        url: its address, for ``api_base``.
        chats: chat id to the messages of the bot that are there.
        acknowledged: ids of updates that the bot has taken for good, in order.
        calls: names of the methods that were called, in order.
        typing: chat and topic of each sign of typing.
        commands: the bot's menu.
        answered: ids of the pressed buttons that the bot has answered.
        blocked: chats that the bot may not write to.
        moved: groups that have another id now.
        webhook: what was set as webhook.
        conflicts: how many times two programs asked for updates at the same time.
    """

    def __init__(self) -> None:
        self.chats: dict[int, list[Shown]] = {}
        self.acknowledged: list[int] = []
        self.calls: list[str] = []
        self.typing: list[tuple[int, int | None]] = []
        self.commands: list[tuple[str, str]] = []
        self.answered: list[str] = []
        self.blocked: set[int] = set()
        self.moved: dict[int, int] = {}
        self.webhook: dict[str, Any] = {}
        self.conflicts = 0
        self.is_down = False
        self._budget: int | None = None
        self._faults: dict[str, list[Fault]] = {}
        self._updates: list[object] = []
        self._files: dict[str, tuple[str, bytes]] = {}
        self._next_update = 700_000
        self._next_message = 10
        self._known = {PRIVATE["id"], GROUP["id"]}
        self._said: dict[int, list[tuple[int, str]]] = {}
        self._polls = 0
        self._silent_polls = 0
        self._closed = False
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    # --- life

    def __enter__(self) -> BotApi:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._thread is not None
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self.drop_connections()
        self._server.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def drop_connections(self) -> None:
        """Cut all connections that are open."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hang_up(self, after: int = 0) -> None:
        """Accept `after` more messages of the bot, then break every connection."""
        with self._changed:
            if after:
                self._budget = after
                return
            self.is_down = True
            self._changed.notify_all()
        self.drop_connections()

    def come_back(self) -> None:
        """Answer again."""
        with self._changed:
            self.is_down, self._budget = False, None

    def silence(self) -> None:
        """Keep the present call of ``getUpdates`` open without ever answering it."""
        with self._changed:
            self._silent_polls = self._polls

    # --- what people do

    def say(
        self,
        text: str = "",
        *,
        chat: dict[str, Any] = PRIVATE,
        sender: dict[str, Any] = ANNA,
        **fields: Any,
    ) -> int:
        """Let a person write, and return the id of the update."""
        message = self.message(text, chat=chat, sender=sender, **fields)
        return self.push({"message": message})

    def message(
        self,
        text: str = "",
        *,
        chat: dict[str, Any] = PRIVATE,
        sender: dict[str, Any] = ANNA,
        **fields: Any,
    ) -> dict[str, Any]:
        """Return a message as Telegram would describe it."""
        with self._changed:
            self._next_message += 1
            number = self._next_message
        message = {"message_id": number, "date": 1_790_000_000, "chat": chat, "from": sender}
        if text:
            message["text"] = text
            entities = list(_marked(text))
            if entities:
                message["entities"] = entities
        if entities := list(_marked(str(fields.get("caption", "")))):
            message["caption_entities"] = entities
        return message | fields

    def press(
        self, shown: Shown, data: str, *, chat: dict[str, Any] = PRIVATE, **fields: Any
    ) -> int:
        """Let a person press a button below a message of the bot."""
        message = {"message_id": shown.id, "date": 1_790_000_000, "chat": chat, "from": BOT}
        with self._changed:
            self._next_message += 1
            number = self._next_message
        query = {
            "id": f"q{number}-{data}",
            "from": ANNA,
            "message": message,
            "chat_instance": "1",
            "data": data,
        } | fields
        labels = [label for row in shown.buttons for label, value in row if value == data]
        pressed = labels[0] if labels else data
        self._note(chat["id"], number, f"{_name(query)} presses ({pressed})")
        return self.push({"callback_query": query})

    def push(self, update: object) -> int:
        """Offer an update; anything other than a mapping is offered unchanged."""
        with self._changed:
            self._next_update += 1
            number = self._next_update
            if isinstance(update, dict):
                self._hear(update)
                update = {"update_id": number, **update}
            self._updates.append(update)
            self._changed.notify_all()
        return number

    def _hear(self, update: dict[str, Any]) -> None:
        """Record what people write, and who: a bot may only write to them."""
        for kind in ("message", "edited_message"):
            message = update.get(kind)
            if not isinstance(message, dict) or not isinstance(message.get("chat"), dict):
                continue
            chat = message["chat"].get("id")
            self._known.add(chat)
            head = _name(message)
            if message.get("message_thread_id"):
                head += f" in topic {message['message_thread_id']}"
            head += " (edits)" if kind == "edited_message" else ""
            words = message.get("text") or message.get("caption") or ""
            files = "".join(f"[{name}] " for name in _MEDIA if name in message)
            self._note(chat, message.get("message_id", 0), f"{head}: {files}{words}".rstrip())

    def _note(self, chat: int, number: int, line: str) -> None:
        self._said.setdefault(chat, []).append((number, line))

    def upload(self, content: bytes, kind: str = "document", path: str | None = None) -> str:
        """Store a file, and return its id for the message that contains it."""
        with self._changed:
            file_id = f"BQACAgIAAxkBAAI{len(self._files):03d}{kind}"
            name = _SUFFIX.get(kind, f"{kind}s/file ü.bin")
            place = f"{len(self._files)}/{name}" if path is None else path
            self._files[file_id] = (place, content)
        return file_id

    def fail(
        self,
        method: str,
        kind: Literal["cut", "cut_after", "hang", "garbage", "refuse"] = "refuse",
        *,
        code: int = 500,
        description: str = "Internal Server Error",
        times: int = 1,
        **parameters: Any,
    ) -> None:
        """Make the next calls of `method` (``file`` for downloads) fail."""
        error = Refused(code, description, **parameters)
        self._faults.setdefault(method, []).append(Fault(kind, error, times))

    def heal(self, method: str) -> None:
        """Make calls of `method` succeed again."""
        with self._changed:
            self._faults.pop(method, None)

    def delay(self, method: str) -> None:
        """Delay the next call of `method`."""
        self._faults.setdefault(method, []).append(Fault("delay"))

    # --- what people see

    def shown(self, chat: int = 1001) -> list[Shown]:
        """Return what the bot has written to a chat."""
        return self.chats.get(chat, [])

    def transcript(self, chat: int = 1001) -> str:
        """Return the chat as a person would read it."""
        lines = []
        for message in self.shown(chat):
            head = f"#{message.id}" + (f" in topic {message.thread}" if message.thread else "")
            head += f" answering #{message.reply_to}" if message.reply_to else ""
            head += f" (edited {len(message.edits)}x)" if message.edits else ""
            lines += [f"{head}: {message.text}", *message.details()]
        return "\n".join(lines)

    def conversation(self, chat: int = 1001) -> str:
        """Return all messages of a chat, without ids and numbers of edits."""
        lines = list(self._said.get(chat, []))
        for message in self.shown(chat):
            head = BOT["first_name"] + (f" in topic {message.thread}" if message.thread else "")
            lines.append((message.id, "\n".join([f"{head}: {message.text}", *message.details()])))
        lines.sort(key=lambda line: line[0])
        return "\n".join(line for _, line in lines)

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 5.0) -> None:
        """Wait until `condition` holds; for threads."""
        deadline = time.monotonic() + limit_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    msg = f"not within {limit_s} s; the bot called {self.calls[-20:]}"
                    raise TimeoutError(msg)
                self._changed.wait(min(left, 0.05))

    # --- serving

    def serve(self, method: str, params: dict[str, Any], files: dict[str, _Part]) -> Answer:
        """Do what a method does, and return its result."""
        name = method.lower()
        kind = name.removeprefix("send")
        with self._changed:
            try:
                if kind in _MEDIA:
                    return self._send_media(kind, params, files)
                if kind == "mediagroup":
                    return self._send_album(params, files)
                handler = getattr(self, f"_do_{name}", None)
                if handler is None:
                    raise Refused(404, "Not Found")
                answer: Answer = handler(params)
                return answer
            finally:
                self._changed.notify_all()

    def take_fault(self, method: str) -> Fault | None:
        """Return the fault of this call, or ``None``."""
        with self._changed:
            self.calls.append(method)
            self._changed.notify_all()
            waiting = self._faults.get(method, [])
            if not waiting:
                return None
            fault = waiting[0]
            fault.times -= 1
            if fault.times <= 0:
                waiting.pop(0)
            return fault

    def wait_closed(self, connection: socket.socket) -> None:
        """Wait until one side closes, as a call that hangs does."""
        deadline = time.monotonic() + _KEPT_S
        while not (self._closed or self.is_down) and time.monotonic() < deadline:
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return

    def file_at(self, path: str) -> bytes:
        """Return the content of a file."""
        for known, content in self._files.values():
            if known == path:
                return content
        raise Refused(404, "Not Found")

    def _do_getme(self, params: dict[str, Any]) -> Answer:
        return BOT | {"can_join_groups": True, "can_read_all_group_messages": False}

    def _do_deletewebhook(self, params: dict[str, Any]) -> Answer:
        self.webhook = {}
        return self._drop_pending(params)

    def _do_setwebhook(self, params: dict[str, Any]) -> Answer:
        self.webhook = params
        return self._drop_pending(params)

    def _drop_pending(self, params: dict[str, Any]) -> bool:
        if params.get("drop_pending_updates") == "true":
            self._updates.clear()
        return True

    def _do_getupdates(self, params: dict[str, Any]) -> Answer:
        if self.webhook.get("url"):
            raise Refused(409, "Conflict: can't use getUpdates method while webhook is active")
        offset = int(params.get("offset", 0))
        kinds = json.loads(params.get("allowed_updates", "[]"))
        taken = [u for u in self._updates if isinstance(u, dict) and u["update_id"] < offset]
        self.acknowledged += [u["update_id"] for u in taken]
        self._updates = [u for u in self._updates if u not in taken]
        self._changed.notify_all()

        def offered() -> list[Any]:
            return [
                u
                for u in self._updates
                if not kinds
                or not isinstance(u, dict)
                or set(u) - {"update_id"} & set(kinds)
                or not set(u) & {"edited_message", "channel_post", "inline_query"}
            ][: int(params.get("limit", 100))]

        self._polls += 1
        poll = self._polls
        self._changed.notify_all()
        timeout_s = float(params.get("timeout", 0))
        ended = self._changed.wait_for(
            lambda: (
                (bool(offered()) and poll > self._silent_polls)
                or self._closed
                or self.is_down
                or self._polls > poll
            ),
            timeout_s,
        )
        if not ended and poll <= self._silent_polls:
            self._changed.wait_for(
                lambda: self._closed or self.is_down or self._polls > poll, _KEPT_S
            )
        if self._polls > poll:
            raise Refused(409, "Conflict: terminated by other getUpdates request")
        return offered()

    def _do_getfile(self, params: dict[str, Any]) -> Answer:
        found = self._files.get(params["file_id"])
        if found is None:
            raise Refused(400, "Bad Request: invalid file_id")
        path, content = found
        return {
            "file_id": params["file_id"],
            "file_unique_id": "u",
            "file_size": len(content),
            "file_path": path,
        }

    def _do_setmycommands(self, params: dict[str, Any]) -> Answer:
        self.commands = [(c["command"], c["description"]) for c in json.loads(params["commands"])]
        return True

    def _do_sendchataction(self, params: dict[str, Any]) -> Answer:
        chat = self._chat(params)
        self.typing.append((chat, _whole(params.get("message_thread_id"))))
        return True

    def _do_answercallbackquery(self, params: dict[str, Any]) -> Answer:
        self.answered.append(params["callback_query_id"])
        return True

    def _do_sendmessage(self, params: dict[str, Any]) -> Answer:
        text = params.get("text", "")
        return self._show(params, self._checked(text, params.get("entities"), 4_096, empty=False))

    def _do_editmessagetext(self, params: dict[str, Any]) -> Answer:
        shown = self._find(params, "message to edit not found")
        text, entities = self._checked(
            params.get("text", ""), params.get("entities"), 4_096, empty=False
        )
        buttons = _buttons(params)
        if (text, entities, buttons) == (shown.text, shown.entities, shown.buttons):
            raise Refused(400, "Bad Request: message is not modified")
        shown.edits.append(shown.text)
        shown.text, shown.entities, shown.buttons = text, entities, buttons
        return self._described(params, shown)

    def _do_editmessagereplymarkup(self, params: dict[str, Any]) -> Answer:
        shown = self._find(params, "message to edit not found")
        if shown.buttons == _buttons(params):
            raise Refused(400, "Bad Request: message is not modified")
        shown.buttons = _buttons(params)
        return self._described(params, shown)

    def _do_deletemessage(self, params: dict[str, Any]) -> Answer:
        shown = self._find(params, "message to delete not found")
        self.chats[self._chat(params)].remove(shown)
        return True

    def _send_media(self, kind: str, params: dict[str, Any], files: dict[str, _Part]) -> Answer:
        part = files[params[kind].removeprefix("attach://")] if kind in params else files[kind]
        checked = self._checked(params.get("caption", ""), params.get("caption_entities"), 1_024)
        return self._show(params, checked, [(kind, part.filename, part.content)])

    def _send_album(self, params: dict[str, Any], files: dict[str, _Part]) -> Answer:
        items = json.loads(params["media"])
        kinds = {item["type"] for item in items}
        if not 2 <= len(items) <= 10:
            raise Refused(400, "Bad Request: group send failed: wrong number of files")
        if not (kinds <= {"photo", "video"} or kinds == {"audio"} or kinds == {"document"}):
            raise Refused(400, "Bad Request: group send failed: these cannot be mixed")
        attached = []
        for item in items:
            part = files[item["media"].removeprefix("attach://")]
            attached.append((item["type"], part.filename, part.content))
        first = items[0]
        entities = first.get("caption_entities")
        checked = self._checked(
            first.get("caption", ""), json.dumps(entities) if entities else None, 1_024
        )
        return [self._show(params, checked, attached)]

    # --- rules

    def _chat(self, params: dict[str, Any]) -> int:
        chat = int(params["chat_id"])
        if chat in self.moved:
            raise Refused(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.moved[chat],
            )
        if chat in self.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        if chat not in {*self._known, *self.moved.values()}:
            raise Refused(400, "Bad Request: chat not found")
        return chat

    def _find(self, params: dict[str, Any], problem: str) -> Shown:
        for shown in self.chats.get(self._chat(params), []):
            if shown.id == int(params["message_id"]):
                return shown
        raise Refused(400, f"Bad Request: {problem}")

    def _checked(
        self, text: str, entities: str | None, limit: int, *, empty: bool = True
    ) -> tuple[str, list[dict[str, Any]]]:
        spans: list[dict[str, Any]] = json.loads(entities) if entities else []
        if not empty and not text.strip():
            raise Refused(400, "Bad Request: message text is empty")
        if utf16(text) > limit:
            raise Refused(400, "Bad Request: message is too long")
        problem = entity_problem(text, spans)
        if problem:
            raise Refused(400, f"Bad Request: can't parse entities: {problem}")
        return text, spans

    def _show(
        self,
        params: dict[str, Any],
        checked: tuple[str, list[dict[str, Any]]],
        files: list[tuple[str, str, bytes]] | None = None,
    ) -> dict[str, Any]:
        chat = self._chat(params)
        if self._budget is not None:
            if self._budget <= 0:
                self.is_down = True
                raise ConnectionError
            self._budget -= 1
        reply = json.loads(params.get("reply_parameters", "{}")).get("message_id")
        self._next_message += 1
        shown = Shown(
            self._next_message,
            _whole(params.get("message_thread_id")),
            checked[0],
            checked[1],
            files or [],
            _buttons(params),
            reply,
        )
        self.chats.setdefault(chat, []).append(shown)
        return self._described(params, shown)

    def _described(self, params: dict[str, Any], shown: Shown) -> dict[str, Any]:
        chat = (PRIVATE if int(params["chat_id"]) > 0 else GROUP) | {"id": int(params["chat_id"])}
        return {
            "message_id": shown.id,
            "date": 1_790_000_000,
            "chat": chat,
            "from": BOT,
            "text": shown.text,
        }


def entity_problem(text: str, entities: list[dict[str, Any]]) -> str:
    """Return what Telegram would find wrong with formatting, or an empty string."""
    units = text.encode("utf-16-le", "surrogatepass")
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        if start < 0 or entity["length"] <= 0 or end * 2 > len(units):
            return f"{entity} is outside of the text"
        try:
            units[start * 2 : end * 2].decode("utf-16-le")
        except UnicodeDecodeError:
            return f"{entity} cuts a character in two"
        if entity["type"] == "text_link":
            scheme = urlsplit(entity.get("url", "")).scheme
            if scheme not in {"http", "https", "mailto", "tg"}:
                return f"{entity} leads nowhere"
    for index, one in enumerate(entities):
        for other in entities[index + 1 :]:
            if _clash(one, other):
                return f"{one} and {other} cannot stand together"
    return ""


def _clash(one: dict[str, Any], other: dict[str, Any]) -> bool:
    start, end = one["offset"], one["offset"] + one["length"]
    first, last = other["offset"], other["offset"] + other["length"]
    if last <= start or end <= first:
        return False
    kinds = {one["type"], other["type"]}
    if not ((start <= first and last <= end) or (first <= start and end <= last)):
        return True
    if "blockquote" in kinds:
        return len(kinds) == 1
    if kinds & {"code", "pre"}:
        return True
    return not kinds & _NESTABLE


def _marked(text: str) -> Iterator[dict[str, Any]]:
    """Find mentions and commands, as Telegram marks them."""
    offset = 0
    for word in text.replace("\n", " ").split(" "):
        bare = word.rstrip(".,!?:")
        if bare.startswith("@") and len(bare) > 1:
            yield {"type": "mention", "offset": offset, "length": utf16(bare)}
        if bare.startswith("/") and len(bare) > 1:
            yield {"type": "bot_command", "offset": offset, "length": utf16(bare)}
        offset += utf16(word) + 1


def _buttons(params: dict[str, Any]) -> list[list[tuple[str, str]]]:
    keyboard = json.loads(params.get("reply_markup", "{}")).get("inline_keyboard", [])
    rows = [[(b["text"], b.get("callback_data", "")) for b in row] for row in keyboard]
    for row in rows:
        for label, data in row:
            if not label or not 1 <= len(data.encode()) <= 64:
                raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")
    return rows


def _name(described: dict[str, Any]) -> str:
    sender = described.get("from")
    return str(sender.get("first_name")) if isinstance(sender, dict) else "Somebody"


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


@dataclass
class _Part:
    filename: str
    content: bytes


def _parse_multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, _Part]]:
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    params: dict[str, str] = {}
    files: dict[str, _Part] = {}
    for raw in body.split(b"--" + boundary)[1:-1]:
        head, _, content = raw.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        content = content.removesuffix(b"\r\n")
        marks = {}
        for line in head.decode().split("\r\n"):
            if line.lower().startswith("content-disposition:"):
                for mark in line.split(";")[1:]:
                    name, _, value = mark.strip().partition("=")
                    marks[name] = value.strip('"')
        if "filename" in marks:
            files[marks["name"]] = _Part(unquote(marks["filename"]), content)
        else:
            params[marks["name"]] = content.decode()
    return params, files


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, api: BotApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is not an error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.api._connections.add(self.connection)

    def finish(self) -> None:
        self.server.api._connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Do not log requests."""

    def do_GET(self) -> None:
        with self._answering():
            self._check("file")
            path = unquote(urlsplit(self.path).path).removeprefix(f"/file/bot{TOKEN}/")
            self._reply(200, self.server.api.file_at(path), "application/octet-stream")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self._answering():
            _, bot, method = unquote(urlsplit(self.path).path).split("/", 2)
            fault = self._check(method)
            if bot != f"bot{TOKEN}":
                raise Refused(401, "Unauthorized")
            kind = self.headers.get("content-type", "")
            if kind.startswith("multipart/"):
                params, files = _parse_multipart(kind, body)
            else:
                params, files = dict(parse_qsl(body.decode(), keep_blank_values=True)), {}
            result = self.server.api.serve(method, params, files)
            if self.server.api.is_down or (fault and fault.kind == "cut_after"):
                raise ConnectionError
            self._json(200, {"ok": True, "result": result})

    def _check(self, method: str) -> Fault | None:
        api = self.server.api
        if api.is_down:
            raise ConnectionError
        fault = api.take_fault(method)
        if fault is not None and fault.kind == "delay":
            time.sleep(_DELAY_S)
            return None
        if fault is None or fault.kind == "cut_after":
            return fault
        if fault.kind == "hang":
            api.wait_closed(self.connection)
        if fault.kind == "garbage":
            self._reply(200, b"<html>no JSON</html>", "text/html")
        if fault.kind == "refuse" and fault.error is not None:
            raise fault.error
        raise ConnectionError

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except Refused as error:
            if error.code == 409 and not self._is_gone():
                self.server.api.conflicts += 1
            answer = {"ok": False, "error_code": error.code, "description": error.description}
            if error.parameters:
                answer["parameters"] = error.parameters
            self._json(error.code, answer)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _is_gone(self) -> bool:
        """Whether the caller has disconnected."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _json(self, status: int, answer: dict[str, Any]) -> None:
        self._reply(status, json.dumps(answer).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
