"""The connection: a long poll for events, and one call for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from nanobot_core import JsonObject, PluginContext
from nanobot_core.chat import (
    Attachment,
    CallFailed,
    Cause,
    ChatPlatform,
    Intake,
    Piece,
    PlatformApi,
    SendLimits,
)
from nanobot_parley.mapping import Events, read_event
from nanobot_parley.settings import ParleySettings

_WAIT_S = 25
_WAIT_LIMIT_S = 40.0
_OPEN_EVENTS = 1_000
"""Events that Parley offers at most before some of them are done."""
_FAILURES: dict[int, tuple[Cause, str]] = {
    401: (Cause.CREDENTIALS, "Parley refuses `channels.parley.token`; copy it from Settings, Bots"),
    403: (Cause.FORBIDDEN, "the bot was blocked or removed"),
}
"""Statuses whose meaning is not the usual one."""


def read_failure(status: int, _: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports."""
    known = _FAILURES.get(status)
    return CallFailed(*known) if known else None


class ParleyPlatform(ChatPlatform):
    """A bot on Parley."""

    limits = SendLimits(text=1_000, measure=lambda part: len(part.text), file_bytes=5_000_000)

    def __init__(self, ctx: PluginContext) -> None:
        settings = ctx.settings(ParleySettings)
        self._takes_edits = settings.edited_messages
        self._bot = ""
        self._api = PlatformApi(
            settings.api_base,
            service="Parley",
            failure=read_failure,
            headers={"Authorization": f"Bearer {settings.token.get_secret_value()}"},
        )

    async def sign_in(self) -> str:
        self._bot = str((await self._api.call("GET", "/me"))["name"])
        return self._bot

    async def receive(self, intake: Intake) -> None:
        session = (await self._api.call("POST", "/sessions"))["id"]
        path = f"/sessions/{session}/events"
        done: asyncio.Queue[str] = asyncio.Queue(_OPEN_EVENTS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._confirm(done), name="parley confirms")
            while True:
                answer = await self._api.call(
                    "GET", path, params={"wait": _WAIT_S}, limit_s=_WAIT_LIMIT_S
                )
                intake.alive()
                for event in Events.model_validate(answer).events:
                    read = partial(read_event, event, self._bot, takes_edits=self._takes_edits)
                    received = intake.parsed(read)
                    confirm = partial(done.put_nowait, str(event["id"]))
                    if received is None:
                        confirm()
                    else:
                        intake.put(received, confirm)

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        files = []
        for file in piece.files:
            content = await asyncio.to_thread(file.path.read_bytes)
            name = {"name": file.path.name}
            files.append(
                (await self._api.call("POST", "/files", params=name, content=content))["id"]
            )
        message: JsonObject = {"chat": chat_id, "key": key, "files": files, **_body(piece)}
        return str((await self._api.call("POST", "/messages", json=message))["id"])

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        await self._api.call("PUT", f"/messages/{message_id}", json=_body(piece))

    async def delete(self, chat_id: str, message_id: str) -> None:
        await self._api.call("DELETE", f"/messages/{message_id}")

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(f"/files/{file.ref}")

    async def aclose(self) -> None:
        await self._api.aclose()

    async def _confirm(self, done: asyncio.Queue[str]) -> None:
        while True:
            await self._api.call("POST", f"/events/{await done.get()}/done")


def _body(piece: Piece) -> JsonObject:
    return {
        "text": piece.text.text,
        "spans": [
            {"kind": span.kind, "offset": span.offset, "length": span.length, "url": span.url}
            for span in piece.text.spans
        ],
        "buttons": [
            {"label": button.label, "value": button.value}
            for row in piece.buttons
            for button in row
        ],
    }
