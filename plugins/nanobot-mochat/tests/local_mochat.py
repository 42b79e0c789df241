"""A local Mochat: sessions by long polling, panels by their newest messages."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

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

TOKEN = "claw-token-2c1e"
AGENT = "agent-7"
PANEL = "panel-1"
_KEPT = 100
_ERRORS = {401: "Unauthorized", 403: "Forbidden", 429: "Too many requests"}


class LocalMochat(StandIn):
    """Mochat with Anna, Bert and a panel.

    Attributes:
        server: answers the agent's calls.
        calls: path and body of each call, in order.
        behind_s: how long ago what people write was written.
    """

    name = "mochat"
    abilities = Abilities(
        longest_text=4_000,
        pictures=False,
        voice=False,
        files_out=False,
        quotes=False,
        refusals=("token",),
    )
    anna = Person("user-anna", "Anna")
    bert = Person("user-bert", "Bert")
    group = PANEL

    def __init__(self) -> None:
        self.server: Loopback = Loopback(self._answer)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.behind_s: float = 0.0
        self._numbers = itertools.count(1)
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._panel: list[dict[str, Any]] = []
        self._shown: dict[str, list[Shown]] = {}
        self._confirmed: list[str] = []
        self._changed = asyncio.Event()
        self._is_doubled = False
        self._silences = 0
        self._over = asyncio.Event()
        self._blocked: set[str] = set()
        self._busy = (0.0, 0)
        self._refused: Refusal | None = None
        self._remaining: int | None = None

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        for person in (self.anna, self.bert):
            self._events[self.private(person)] = []
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
            "base_url": self.server.http_url,
            "claw_token": TOKEN,
            "agent_user_id": AGENT,
            "sessions": ["*"],
            "panels": ["*"],
            "watch_timeout_ms": 500,
            "refresh_interval_ms": 200,
            "reply_delay_ms": 60_000,
            "socket_path": "",
        }

    def private(self, person: Person) -> str:
        return f"session_{person.id}"

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
        number = next(self._numbers)
        key = f"m{number}"
        payload = {
            "messageId": key,
            "author": who.id,
            "authorInfo": {"nickname": who.name, "email": f"{who.name.lower()}@example.org"},
            "content": f"<@{AGENT}> {text}" if mention else text,
            "meta": None,
            "groupId": "group-1" if place == PANEL else None,
        }
        said = Shown(id=key, author=who.name, text=text, quotes=quote)
        self._shown.setdefault(place, []).append(said)
        for _ in range(2 if self._is_doubled else 1):
            self.push(place, payload)
        self._is_doubled = False
        return key

    def push(self, place: str, payload: dict[str, Any], kind: str = "message.add") -> None:
        """Add an event of a session, or a message of the panel."""
        moment = (datetime.now(UTC) - timedelta(seconds=self.behind_s)).isoformat()
        if place == PANEL:
            self._panel.append(payload | {"createdAt": moment})
        else:
            seq = len(self._events[place]) + 1
            event = {"seq": seq, "type": kind, "timestamp": moment, "payload": payload}
            self._events[place].append(event)
        self._changed.set()

    # --- what people see

    def shown(self, chat: str) -> list[Shown]:
        return list(self._shown.get(chat, ()))

    @property
    def acknowledged(self) -> list[str]:
        return list(dict.fromkeys(self._confirmed))

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
        (self._blocked.add if blocked else self._blocked.discard)(chat)

    def refuse_credentials(self, why: Refusal) -> None:
        self._refused = why

    # --- the service

    async def _answer(self, request: LocalRequest) -> LocalResponse | None:
        path = request.path.removeprefix("/api/claw/")
        body = request.json
        self.calls.append((path, body))
        if self._refused or request.headers.get("x-claw-token") != TOKEN:
            return _error(401)
        match path:
            case "sessions/list":
                return _good({"sessions": [{"sessionId": each} for each in self._events]})
            case "groups/get":
                panels = [{"id": PANEL, "type": 0}, {"id": "folder", "type": 1}]
                return _good({"groupId": "group-1", "panels": panels})
            case "sessions/watch":
                return await self._watch(body)
            case "groups/panels/messages":
                newest = list(reversed(self._panel))[: min(body["limit"], _KEPT)]
                return _good({"groupId": "group-1", "messages": newest})
            case "sessions/send" | "groups/panels/send":
                return self._send(body)
        return _error(404)

    async def _watch(self, body: dict[str, Any]) -> LocalResponse | None:
        session, cursor = body["sessionId"], body["cursor"]
        if session not in self._events:
            return _error(404)
        confirmed = self._events[session][:cursor]
        self._confirmed += [each["payload"].get("messageId", "") for each in confirmed]
        silences = self._silences
        try:
            async with asyncio.timeout(body["timeoutMs"] / 1_000):
                while len(self._events[session]) <= cursor and not self._over.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if silences != self._silences:
            await self._over.wait()
            return None
        events = self._events[session][cursor : cursor + body["limit"]]
        return _good({"sessionId": session, "cursor": cursor + len(events), "events": events})

    def _send(self, body: dict[str, Any]) -> LocalResponse | None:
        place = body.get("sessionId") or body["panelId"]
        seconds, times = self._busy
        if times:
            self._busy = (seconds, times - 1)
            return LocalResponse({}, 429, {"Retry-After": f"{seconds:g}"})
        if place in self._blocked or (place != PANEL and place not in self._events):
            return _error(403)
        if self._remaining is not None:
            if self._remaining == 0:
                self.server.hang_up()
                return None
            self._remaining -= 1
        if not body["content"] or len(body["content"]) > 4_000:
            return _error(400)
        key = f"m{next(self._numbers)}"
        quotes = body.get("replyTo")
        said = Shown(id=key, author=self.agent, text=body["content"], quotes=quotes)
        self._shown.setdefault(place, []).append(said)
        payload = {"messageId": key, "author": AGENT, "content": body["content"]}
        self.push(place, payload)
        return _good({"messageId": key})


def _good(data: dict[str, Any]) -> LocalResponse:
    return LocalResponse({"code": 200, "data": data})


def _error(code: int) -> LocalResponse:
    """Mochat reports errors in an answer with status 200."""
    return LocalResponse({"code": code, "message": _ERRORS.get(code, "error")})
