"""MochatPlatform: sessions by long polling, panels by looking at their newest messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from nanobot_core.chat import (
    PLAIN,
    CallFailed,
    Cause,
    ChatPlatform,
    PlatformApi,
    Received,
    Recent,
    Records,
    SendLimits,
    write_markup,
)
from nanobot_mochat import wire
from nanobot_mochat.mapping import joined, read_message
from nanobot_mochat.settings import TEXT_CHARS, MochatSettings

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue, PluginContext
    from nanobot_core.chat import Intake, Piece

ModelT = TypeVar("ModelT", bound=BaseModel)
EVERYTHING = "*"
_CALL_LIMIT_S = 20.0
_LEAST_WAIT_S = 1.0
_MARGIN_S = 60.0
"""Clocks differ: what was written up to this long before the first start is answered."""
_COLLECTED = 50
"""Messages of a panel that wait for a mention; more are passed on."""
CODES: dict[int, Cause] = {
    400: Cause.REFUSED,
    401: Cause.CREDENTIALS,
    403: Cause.FORBIDDEN,
    404: Cause.FORBIDDEN,
    413: Cause.REFUSED,
    422: Cause.REFUSED,
    429: Cause.BUSY,
}
"""Status, or ``code`` of an answer, to the cause; others are temporary."""


def failure_of(status: int, body: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports: a status, or a ``code`` inside a good one."""
    code = body.get("code")
    code = code if isinstance(code, int) and status == 200 else status
    if code == 200:
        return None
    cause = CODES.get(code, Cause.UNREACHABLE)
    said = body.get("message") or body.get("name") or "no reason given"
    reason = f"Mochat answered with code {code}: {str(said)[:200]}"
    if cause is Cause.CREDENTIALS:
        reason = (
            "Mochat does not accept the token; set channels.mochat.claw_token to the token that "
            "mochat.io shows for the agent"
        )
    return CallFailed(cause, reason)


def open_platform(ctx: PluginContext) -> MochatPlatform:
    """Return a connection that is not signed in. Call it in a thread.

    Raises:
        CallFailed: the token or the agent's id is missing.
    """
    settings = ctx.settings(MochatSettings)
    for key, value in (
        ("claw_token", settings.claw_token.get_secret_value()),
        ("agent_user_id", settings.agent_user_id),
    ):
        if not value:
            reason = f"channels.mochat.{key} is missing; mochat.io shows it on the agent's page"
            raise CallFailed(Cause.CREDENTIALS, reason)
    api = PlatformApi(
        settings.base_url,
        service="Mochat",
        failure=failure_of,
        headers={"X-Claw-Token": settings.claw_token.get_secret_value()},
    )
    return MochatPlatform(ctx, api, settings)


class _Known:
    """What outlives a connection.

    Attributes:
        seen: on disk: the cursor of each session, and the newest stored message of each panel.
        groups: panel to its group.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.seen: Records = Records(ctx.data_dir / "seen.json", size=2_000)
        self.groups: Recent[str, str] = Recent()


class MochatPlatform(ChatPlatform):
    """An agent on Mochat."""

    limits = SendLimits(
        text=TEXT_CHARS, measure=lambda part: len(write_markup(part, PLAIN)), file_bytes=0
    )

    def __init__(self, ctx: PluginContext, api: PlatformApi, settings: MochatSettings) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._api = api
        self._settings = settings
        self._known = ctx.shared(_Known)
        self._news = asyncio.Event()
        self._oldest_s = 0.0
        self._read = partial(
            read_message,
            agent_user_id=settings.agent_user_id,
            allow_bots=settings.allow_bots,
        )

    async def sign_in(self) -> str:
        """Check the token."""
        await self._call("sessions/list", {})
        return f"agent {self._settings.agent_user_id}"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send a text. Mochat has no key against repetitions."""
        body: JsonObject = {"content": write_markup(piece.text, PLAIN)}
        if reply_to is not None:
            body["replyTo"] = reply_to.removeprefix(f"{chat_id}:")
        if chat_id.startswith("session_") or chat_id in self._settings.sessions:
            path = "sessions/send"
            body["sessionId"] = chat_id
        else:
            path = "groups/panels/send"
            body["panelId"] = chat_id
            if group := self._known.groups.get(chat_id):
                body["groupId"] = group
        sent = await self._call(path, body)
        return str(sent.get("messageId") or "")

    # --- receiving

    async def receive(self, intake: Intake) -> None:
        """Follow the sessions and panels until cancelled."""
        await self._remember_first_start()
        following: set[tuple[str, str]] = set()
        async with asyncio.TaskGroup() as group:
            if self._settings.socket_path:
                from nanobot_mochat.socket import watch_socket

                group.create_task(
                    watch_socket(self._ctx, self._settings, self._news), name="mochat socket"
                )
            while True:
                for kind, chat_id in await self._wanted():
                    if (kind, chat_id) in following:
                        continue
                    following.add((kind, chat_id))
                    group.create_task(
                        self._follow(intake, kind, chat_id), name=f"mochat {kind} {chat_id}"
                    )
                intake.alive()
                await self._ctx.clock.sleep(self._settings.refresh_interval_ms / 1_000)

    async def _wanted(self) -> Iterable[tuple[str, str]]:
        """Return the sessions and panels to follow, as the settings and Mochat list them."""
        settings = self._settings
        sessions = {each for each in settings.sessions if each != EVERYTHING}
        panels = {each for each in settings.panels if each != EVERYTHING}
        if EVERYTHING in settings.sessions:
            found = await self._call("sessions/list", {})
            listed = [_answer(wire.Listed, each) for each in _objects(found.get("sessions"))]
            sessions |= {each.session_id for each in listed if each.session_id}
        if EVERYTHING in settings.panels:
            found = await self._call("groups/get", {})
            shown = [_answer(wire.Panel, each) for each in _objects(found.get("panels"))]
            panels |= {each.id for each in shown if each.id and each.type == 0}
        return [
            *(("session", each) for each in sorted(sessions)),
            *(("panel", each) for each in sorted(panels)),
        ]

    async def _remember_first_start(self) -> None:
        """Note the time of the first start: what was written before it is not answered."""
        first = await self._known.seen.get("first start")
        if not isinstance(first, float | int):
            first = self._ctx.clock.now().timestamp()
            await self._remember("first start", first)
        self._oldest_s = float(first) - _MARGIN_S

    async def _remember(self, key: str, value: JsonValue) -> None:
        try:
            await self._known.seen.put(key, value)
        except OSError as error:
            # The inbox recognises messages that are read again after a restart.
            self._log.warning("how far messages were read cannot be saved: {}", error)

    def _is_old(self, received: Received) -> bool:
        written = received.message.timestamp
        return written is not None and written.timestamp() < self._oldest_s

    async def _follow(self, intake: Intake, kind: str, chat_id: str) -> None:
        follow = self._follow_session if kind == "session" else self._follow_panel
        try:
            await follow(intake, chat_id)
        except CallFailed as error:
            if error.cause not in {Cause.FORBIDDEN, Cause.REFUSED}:
                raise
            # One of them must not affect the others.
            self._log.warning("{} '{}' is not followed any more: {}", kind, chat_id, error)

    async def _follow_session(self, intake: Intake, session: str) -> None:
        key = f"session {session}"
        wait_s, clock = self._settings.watch_timeout_ms / 1_000, self._ctx.clock
        while True:
            begun_s = clock.monotonic_s()
            known = await self._known.seen.get(key)
            asked: JsonObject = {
                "sessionId": session,
                "cursor": known if isinstance(known, int) else 0,
                "timeoutMs": self._settings.watch_timeout_ms,
                "limit": self._settings.watch_limit,
            }
            found = await self._call("sessions/watch", asked, wait_s=wait_s)
            intake.alive()
            answer = _answer(wire.Events, found)
            cursor = answer.cursor
            for raw in answer.events:
                event = intake.parsed(partial(wire.Event.model_validate, raw))
                if event is None:
                    continue
                cursor = max(cursor, event.seq)
                if event.type == "message.add":
                    payload = event.payload | {"createdAt": event.timestamp}
                    if not await self._take(intake, session, payload):
                        return
            if cursor != known:
                await self._remember(key, cursor)
            elif clock.monotonic_s() - begun_s < _LEAST_WAIT_S:
                # Mochat does not hold the request, or gives the same events again.
                await clock.sleep(_LEAST_WAIT_S)

    async def _take(self, intake: Intake, session: str, payload: JsonObject) -> bool:
        """Store the message of an event; False if the channel stops before."""
        received = intake.parsed(
            lambda: self._read(session, wire.Message.model_validate(payload), is_panel=False)
        )
        if received is None or self._is_old(received):
            return True
        return await intake.take(received)

    async def _follow_panel(self, intake: Intake, panel: str) -> None:
        collected: list[Received] = []
        newest_s = 0.0
        while True:
            for received in await self._new_in(intake, panel, collected):
                collected.append(received)
                newest_s = self._ctx.clock.monotonic_s()
                if (
                    received.message.is_addressed
                    or len(collected) >= _COLLECTED
                    or self._settings.reply_delay_mode == "off"
                ):
                    await self._pass_on(intake, panel, collected)
            age_ms = (self._ctx.clock.monotonic_s() - newest_s) * 1_000
            if collected and age_ms >= self._settings.reply_delay_ms:
                await self._pass_on(intake, panel, collected)
            await self._wait_for_news()

    async def _new_in(
        self, intake: Intake, panel: str, collected: list[Received]
    ) -> list[Received]:
        """Return the messages of a panel that are new, oldest first."""
        key = f"panel {panel}"
        asked: JsonObject = {"panelId": panel, "limit": self._settings.watch_limit}
        answer = _answer(wire.Messages, await self._call("groups/panels/messages", asked))
        intake.alive()
        if answer.group_id:
            self._known.groups.put(panel, answer.group_id)
        newest = await self._known.seen.get(key)
        messages = [
            message
            for raw in answer.messages
            if (message := intake.parsed(partial(wire.Message.model_validate, raw)))
            and message.message_id
        ]
        known = {str(each.message.metadata["message_id"]) for each in collected}
        fresh: list[wire.Message] = []
        for message in messages:
            if message.message_id == newest or message.message_id in known:
                break
            fresh.append(message)
        found = []
        for message in reversed(fresh):
            context = message.model_copy(update={"group_id": message.group_id or answer.group_id})
            received = intake.parsed(partial(self._read, panel, context, is_panel=True))
            if received is not None and not self._is_old(received):
                found.append(received)
        if fresh and not found and not collected:
            await self._remember(key, fresh[0].message_id)
        return found

    async def _pass_on(self, intake: Intake, panel: str, collected: list[Received]) -> None:
        """Store what was collected as one message, then remember that it is stored."""
        newest = str(collected[-1].message.metadata["message_id"])
        if await intake.take(joined(collected)):
            await self._remember(f"panel {panel}", newest)
            collected.clear()

    async def _wait_for_news(self) -> None:
        """Wait for the next look at a panel, or until the socket reports something."""
        clock, pause_s = self._ctx.clock, self._settings.refresh_interval_ms / 1_000
        async with asyncio.TaskGroup() as group:
            pause = group.create_task(clock.sleep(pause_s), name="mochat pause")
            news = group.create_task(self._news.wait(), name="mochat news")
            await asyncio.wait({pause, news}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            news.cancel()
        self._news.clear()

    async def _call(self, path: str, body: JsonObject, *, wait_s: float = 0.0) -> JsonObject:
        """Call Mochat and return ``data`` of its answer."""
        limit_s = _CALL_LIMIT_S + wait_s
        answer = await self._api.call("POST", f"/api/claw/{path}", json=body, limit_s=limit_s)
        data = answer.get("data", answer)
        return data if isinstance(data, dict) else {}


def _answer(shape: type[ModelT], found: JsonObject) -> ModelT:
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        reason = f"an answer of Mochat cannot be read ({error.error_count()} fields)"
        raise CallFailed(Cause.UNREACHABLE, reason) from error


def _objects(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
