"""A local bridge: the original's WebSocket protocol, and a phone behind it."""

from __future__ import annotations

import itertools
import json
import runpy
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn

read_markup: Callable[[str], tuple[str, tuple[tuple[str, str], ...]]] = runpy.run_path(
    str(Path(__file__).with_name("whatsapp_markup.py"))
)["read_markup"]
TOKEN = "bridge-token-0815"
_KINDS: dict[str, Any] = {"image": "image", "video": "video", "audio": "audio"}


class LocalBridge(StandIn):
    """A bridge with one linked phone.

    Attributes:
        commands: all commands of the channel.
        headers: of the last handshake.
        outcomes: frames that answer the next commands; ``None`` means none.
        qr: code that is shown to clients until `scan`.
    """

    name: ClassVar[str] = "whatsapp"
    abilities: ClassVar[Abilities] = Abilities(
        longest_text=4_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "quote"}),
        quotes=False,
        acknowledges=False,
        resends=False,
        asks_to_wait=False,
    )
    anna: ClassVar[Person] = Person("4915100000001", "Anna")
    bert: ClassVar[Person] = Person("4915100000002", "Bert")
    group: ClassVar[str] = "120363000000000001@g.us"

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.outcomes: list[dict[str, Any] | None] = []
        self.qr = ""
        self._folder = tempfile.TemporaryDirectory()
        self._numbers = itertools.count(1)
        self._clients: set[ServerConnection] = set()
        self._shown: dict[str, list[Shown]] = defaultdict(list)
        self._unsent: list[dict[str, Any]] = []
        self._server: Server | None = None
        self._port = 0
        self._is_down = False
        self._accepts: int | None = None
        self._repeats = False
        self._blocked: set[str] = set()
        self._refuses = False

    async def __aenter__(self) -> Self:
        self._server = await serve(self._serve, "127.0.0.1", 0, close_timeout=0.5)
        self._port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._folder.cleanup()

    def section(self) -> dict[str, Any]:
        return {
            "bridge_url": f"ws://localhost:{self._port}",
            "bridge_token": TOKEN,
            "bridge_media_dir": self._folder.name,
        }

    def private(self, person: Person) -> str:
        return f"{person.id}@s.whatsapp.net"

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
        place, key = chat or self.private(person), f"3EB0{next(self._numbers):06}"
        frame: dict[str, Any] = {
            "id": key,
            "sender": place,
            "pn": "",
            "content": text,
            "timestamp": 1_700_000_000,
        }
        frame["isGroup"] = place.endswith("@g.us")
        if frame["isGroup"]:
            frame |= {"participant": self.private(person), "wasMentioned": mention}
        if files:
            # The bridge has its own name for files without one.
            path = Path(self._folder.name, f"wa_{key}_{files[0].name}")
            path.write_bytes(files[0].content)
            frame["media"] = [str(path)]
            if files[0].kind == "voice":
                frame["content"] = "[Voice Message]"
        for _ in range(1 + self._repeats):
            await self.broadcast({"type": "message", **frame})
        self._repeats = False
        self._shown[place].append(Shown(id=key, author=person.name, text=text, files=tuple(files)))
        return key

    async def broadcast(self, frame: dict[str, Any] | str) -> None:
        """Send a frame to all clients, or to the next one if there is none."""
        if not self._clients and isinstance(frame, dict):
            self._unsent.append(frame)
        for client in list(self._clients):
            await client.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def scan(self) -> None:
        """Let the person scan the code."""
        self.qr = ""
        await self.broadcast({"type": "status", "status": "connected"})

    def shown(self, chat: str) -> list[Shown]:
        return list(self._shown[chat])

    @property
    def acknowledged(self) -> list[str]:
        return []

    async def hang_up(self, after: int = 0) -> None:
        if after:
            self._accepts = after
            return
        self._is_down = True
        clients, self._clients = self._clients, set()
        for client in clients:
            client.transport.abort()

    async def come_back(self) -> None:
        self._is_down, self._accepts = False, None

    async def go_silent(self) -> None:
        """Do nothing: the connection stays within one computer."""

    def duplicate_next(self) -> None:
        self._repeats = True

    def block(self, chat: str, *, blocked: bool = True) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refuses = True

    async def _serve(self, client: ServerConnection) -> None:
        self.headers = dict(client.request.headers.raw_items()) if client.request else {}
        if self._is_down:
            client.transport.abort()
            return
        try:
            first = json.loads(await client.recv())
            if first != {"type": "auth", "token": TOKEN} or self._refuses:
                await client.close(4003, "Invalid token")
                return
            self._clients.add(client)
            if self.qr:
                await client.send(json.dumps({"type": "qr", "qr": self.qr}))
            unsent, self._unsent = self._unsent, []
            for frame in unsent:
                await client.send(json.dumps(frame))
            async for content in client:
                if not await self._answer(client, json.loads(content)):
                    break
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)

    async def _answer(self, client: ServerConnection, command: dict[str, Any]) -> bool:
        if self._accepts == 0:
            await self.hang_up()
            return False
        if self._accepts is not None:
            self._accepts -= 1
        self.commands.append(command)
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if outcome is not None:
                await client.send(json.dumps(outcome))
            return True
        to = command["to"]
        if to in self._blocked:
            error = {"type": "error", "error": "Error: not-authorized"}
            await client.send(json.dumps(error))
            return True
        self._shown[to].append(self._seen(command))
        await client.send(json.dumps({"type": "sent", "to": to}))
        return True

    def _seen(self, command: dict[str, Any]) -> Shown:
        key = f"BAE5{next(self._numbers):06}"
        if command["type"] == "send":
            text, spans = read_markup(command["text"])
            return Shown(id=key, author=self.agent, text=text, spans=spans)
        kind = command["mimetype"].partition("/")[0]
        content = Path(command["filePath"]).read_bytes()
        file = ChatFile(command.get("fileName", ""), content, _KINDS.get(kind, "file"))
        caption = command.get("caption", "") if kind in {"image", "video"} else ""
        text, spans = read_markup(caption)
        return Shown(id=key, author=self.agent, text=text, spans=spans, files=(file,))
