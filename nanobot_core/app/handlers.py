"""What can be asked of a running gateway: over its control socket, and by commands in a chat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.app.reloading import Reloaded, described
from nanobot_core.app.wire import ControlError, event_to_json
from nanobot_core.disk import damaged_files
from nanobot_core.events import TurnOutcome
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.turns.pipeline import TurnRequest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from nanobot_core.app.control import Connection, Handler
    from nanobot_core.app.gateway import Parts
    from nanobot_core.events import RunEvent
    from nanobot_core.messages import JsonObject, JsonValue


class GatewayControls:
    """The gateway as slash commands reach it; see `Controls`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._home = parts.bot.loaded.home

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session, and close its questions to the owner."""
        is_stopped = await self._parts.dispatcher.stop_turn(session_key)
        await self._parts.approvals.close(session_key)
        return is_stopped

    async def resolve_approval(self, approval_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question about a tool call."""
        return await self._parts.approvals.resolve(approval_id, allowed=allowed, by=by)

    async def change_pairing(self, words: list[str]) -> str:
        """List, approve or revoke."""
        pairing = self._parts.pairing
        match words:
            case []:
                waiting = await asyncio.to_thread(pairing.pending)
                lines = [f"- {item.code}: {item.sender_id} on {item.channel}" for item in waiting]
                return "\n".join(["Waiting for your word:", *lines]) if lines else "Nobody waits."
            case ["approve", code]:
                asked = await asyncio.to_thread(pairing.approve, code)
                return f"{asked.sender_id} may write." if asked else "No such code is valid."
            case ["revoke", channel, sender_id]:
                gone = await asyncio.to_thread(pairing.revoke, channel, sender_id)
                return f"{sender_id} may write no more." if gone else "There is nobody of that id."
        return "Say /pairing, /pairing approve CODE, or /pairing revoke CHANNEL ID."

    async def change_plugin(self, words: list[str]) -> str:
        """List, enable, disable or reload."""
        match words:
            case []:
                reports = self._parts.bot.plugins.reports()
                return "\n".join(f"- {item.id} {item.version}: {item.state}" for item in reports)
            case ["reload", plugin_id]:
                change = await self._parts.reloader.reload_plugin(plugin_id)
                return described(Reloaded(change=change))
            case ["enable" | "disable" as action, plugin_id]:
                enabled = action == "enable"
                return described(await self._parts.reloader.switch(plugin_id, enabled=enabled))
        return "Say /plugins, or /plugins enable|disable|reload ID."

    async def trouble(self) -> list[str]:
        """Return a line for each channel and service that does not work."""
        status = await self._parts.face.status()
        return [
            f"{item.kind} {item.name}: {item.state}, {item.last_error or 'no contact yet'}"
            for item in status.running
            if item.state != "running"
        ] + [f"a damaged file is kept as {file}" for file in damaged_files(self._home)]


def handlers(parts: Parts, request_stop: Callable[[], None]) -> Mapping[str, Handler]:
    """Return what the control socket offers, by name."""

    async def stop(_connection: Connection) -> JsonValue:
        request_stop()
        return None

    return {
        "status": partial(_status, parts),
        "stop": stop,
        "commands": partial(_commands, parts),
        "turn": partial(_turn, parts),
        "send": partial(_send, parts),
        "dead_letters": partial(_dead_letters, parts),
        "reload": partial(_reload, parts),
        "retry": partial(_retry, parts),
        "drop": partial(_drop, parts),
        "delete_session": partial(_delete_session, parts),
    }


async def _status(parts: Parts, _connection: Connection) -> JsonValue:
    return plain(await parts.face.status())


async def _reload(parts: Parts, _connection: Connection) -> JsonValue:
    return described(await parts.reloader.reload())


async def _commands(parts: Parts, _connection: Connection) -> JsonValue:
    return dict(parts.bot.commands.names())


async def _turn(parts: Parts, connection: Connection) -> JsonValue:
    """Answer a message of whoever sits at a terminal, and tell what happens meanwhile."""
    if not parts.face.ready:
        msg = "the gateway is starting or about to end; try again in a moment"
        raise ControlError(msg)
    asked = connection.request
    media, model = asked.get("media"), asked.get("model")

    async def tell(event: RunEvent) -> None:
        if not isinstance(event, TurnOutcome):  # the outcome is the result
            await connection.send(event_to_json(event))

    request = TurnRequest(
        message=InboundMessage(
            channel="cli",
            sender_id="user",
            chat_id="direct",
            content=connection.text("text"),
            id=new_id(),
            media=tuple(str(path) for path in media) if isinstance(media, list) else (),
            session_key_override=connection.text("session"),
        ),
        source="cli",
        on_event=tell,
        model=model if isinstance(model, str) else None,
        is_owner=True,
    )
    if parts.bot.commands.is_control(request.message.content):
        return plain(await parts.bot.pipeline.answer_command(request))
    return plain(await parts.bot.process_direct(request))


async def _send(parts: Parts, connection: Connection) -> JsonValue:
    """Send a message to a chat."""
    channel = connection.text("channel")
    if not parts.channels.has(channel):
        msg = f"there is no channel '{channel}', or it is switched off"
        raise ControlError(msg)
    message = OutboundMessage(
        channel=channel,
        chat_id=connection.text("chat_id"),
        content=connection.text("text"),
        idempotency_key=new_id(),
    )
    await parts.outbox.publish(message)
    return None


async def _dead_letters(parts: Parts, _connection: Connection) -> JsonValue:
    return [plain(letter) for letter in await parts.bus.dead_letters()]


async def _retry(parts: Parts, connection: Connection) -> JsonValue:
    return await parts.bus.revive(connection.text("id"))


async def _drop(parts: Parts, connection: Connection) -> JsonValue:
    return await parts.bus.drop(connection.text("id"))


async def _delete_session(parts: Parts, connection: Connection) -> JsonValue:
    return await parts.bot.pipeline.delete_session(connection.text("key"))


def plain(value: DataclassInstance) -> JsonObject:
    """Return a dataclass as plain JSON data; instants as ISO 8601."""
    found: JsonObject = json.loads(json.dumps(asdict(value), default=_as_text))
    return found


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
