"""A chat platform inside the test: one room, whose messages are in a dictionary."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from nanobot_core import ChannelCapabilities, InboundMessage, PluginContext
from nanobot_core.chat import (
    Attachment,
    CallFailed,
    Cause,
    ChatChannel,
    ChatPlatform,
    Intake,
    Piece,
    Received,
    SendLimits,
)

CAPABILITIES = ChannelCapabilities(
    max_message_chars=40, markdown="room", edit_interval_s=1.0, typing_interval_s=1.0, buttons=True
)


@dataclass
class Room:
    """The platform's side.

    Attributes:
        shown: id of each visible message of the agent to its piece.
        offered: messages that were not acknowledged, oldest first.
        acknowledged: keys of those that were, in order.
        calls: what the agent has called, with the key of the piece.
        failures: raised by the next calls, ``None`` lets one pass.
        files: contents by reference.
        gate: while it is not set, calls wait.
    """

    shown: dict[str, Piece] = field(default_factory=dict)
    offered: dict[str, Received] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    failures: deque[CallFailed | None] = field(default_factory=deque)
    files: dict[str, bytes] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_down: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def say(self, key: str, content: str, chat_id: str = "room", **fields: object) -> None:
        message = InboundMessage(
            channel="room", sender_id="anna", chat_id=chat_id, content=content, dedupe_key=key
        )
        self.offered[key] = Received(message=message, **fields)  # type: ignore[arg-type]
        self.news.set()

    def texts(self) -> list[str]:
        return [piece.text.text for piece in self.shown.values() if piece.text.text]

    async def call(self, name: str, key: str = "") -> None:
        """Note a call; fail as arranged."""
        self.calls.append((name, key))
        await self.gate.wait()
        failure = self.failures.popleft() if self.failures else None
        if self.is_down:
            raise CallFailed(Cause.UNREACHABLE, "the room is closed")
        if failure is not None:
            raise failure


class RoomPlatform(ChatPlatform):
    """The agent's side."""

    def __init__(self, room: Room, limits: SendLimits) -> None:
        self.limits = limits
        self._room = room
        self._numbers = iter(range(len(room.calls), 1_000_000))

    async def sign_in(self) -> str:
        return "nano in the room"

    async def receive(self, intake: Intake) -> None:
        taken: set[str] = set()
        while True:
            self._room.news.clear()
            for key, received in list(self._room.offered.items()):
                if key not in taken:
                    taken.add(key)
                    intake.put(received, lambda key=key: self._done(key))  # type: ignore[misc]
            if self._room.is_down:
                raise CallFailed(Cause.UNREACHABLE, "the room is closed")
            await self._room.news.wait()

    def _done(self, key: str) -> None:
        del self._room.offered[key]
        self._room.acknowledged.append(key)

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        await self._room.call("send", key)
        number = str(next(self._numbers))
        self._room.shown[number] = piece
        return number

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        await self._room.call("edit")
        if message_id not in self._room.shown:
            raise CallFailed(Cause.REFUSED, "no such message")
        self._room.shown[message_id] = piece

    async def delete(self, chat_id: str, message_id: str) -> None:
        await self._room.call("delete")
        if self._room.shown.pop(message_id, None) is None:
            raise CallFailed(Cause.REFUSED, "no such message")

    async def show_typing(self, chat_id: str) -> None:
        await self._room.call("typing")

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        await self._room.call("fetch", file.ref)
        yield self._room.files[file.ref]


LIMITS = SendLimits(
    text=40,
    caption=10,
    file_bytes=100,
    kind_bytes={"image": 50},
    album_files=3,
    album_bytes=150,
    albums=(frozenset({"image"}), frozenset({"file"})),
)


def room_channel(ctx: PluginContext, room: Room, limits: SendLimits = LIMITS) -> ChatChannel:
    return ChatChannel(ctx, "room", CAPABILITIES, lambda: RoomPlatform(room, limits))
