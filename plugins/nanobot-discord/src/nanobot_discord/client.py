"""The calls to Discord that the channel uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from discord import File
from discord.http import Route
from pydantic import BaseModel, ValidationError

from nanobot_core.chat import CallFailed, Cause, Upload
from nanobot_discord import wire
from nanobot_discord.connection import TRANSFER_S, Connection

Payload: TypeAlias = Mapping[str, Any]
ModelT = TypeVar("ModelT", bound=BaseModel)


class Client:
    """Calls Discord's API. Every method raises `CallFailed` if the call fails."""

    def __init__(self, connection: Connection) -> None:
        self._call = connection.call

    # --- the bot

    async def application(self) -> wire.Application:
        """Return the bot's application, to which its slash commands belong."""
        found = await self._call(Route("GET", "/oauth2/applications/@me"))
        return _parsed(wire.Application, found)

    async def socket_url(self) -> str:
        """Return the address of the event stream."""
        found = _parsed(wire.Gateway, await self._call(Route("GET", "/gateway/bot")))
        begins = found.session_start_limit
        if begins.remaining < 1:
            reason = "the bot has connected too often today; Discord makes it wait"
            raise CallFailed(Cause.BUSY, reason, retry_after_s=begins.reset_after / 1_000)
        return found.url

    async def set_commands(self, application_id: str, commands: Sequence[Payload]) -> None:
        """Replace the slash commands of the bot."""
        route = Route(
            "PUT", "/applications/{application_id}/commands", application_id=application_id
        )
        await self._call(route, json=list(commands))

    # --- chats

    async def channel(self, channel_id: str) -> wire.Channel:
        """Return a channel or thread."""
        found = await self._call(Route("GET", "/channels/{channel_id}", channel_id=channel_id))
        return _parsed(wire.Channel, found)

    async def history(self, channel_id: str, limit: int, after: str | None = None) -> list[object]:
        """Return messages as Discord describes them, newest first.

        Args:
            limit: at most 100.
            after: id of a message; the oldest messages after it are returned instead of the newest.
        """
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        params = {"limit": str(limit)} | ({"after": after} if after else {})
        found = await self._call(route, params=params)
        if not isinstance(found, list):
            raise CallFailed(Cause.UNREACHABLE, "the answer cannot be read (not a list)")
        return found

    async def send(self, channel_id: str, payload: Payload, files: Sequence[Upload]) -> str:
        """Send a message and return its id."""
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel_id)
        return await self._write(route, payload, files)

    async def edit(self, channel_id: str, message_id: str, payload: Payload) -> None:
        """Change a message of the bot."""
        await self._call(_message_route("PATCH", channel_id, message_id), json=payload)

    async def delete(self, channel_id: str, message_id: str) -> None:
        """Remove a message of the bot."""
        await self._call(_message_route("DELETE", channel_id, message_id))

    async def show_typing(self, channel_id: str) -> None:
        """Show a typing indicator for ten seconds."""
        await self._call(Route("POST", "/channels/{channel_id}/typing", channel_id=channel_id))

    async def react(self, channel_id: str, message_id: str, emoji: str, *, remove: bool) -> None:
        """Add or remove a reaction of the bot."""
        path = "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me"
        method = "DELETE" if remove else "PUT"
        route = Route(method, path, channel_id=channel_id, message_id=message_id, emoji=emoji)
        await self._call(route)

    # --- interactions

    async def respond(self, interaction: wire.Interaction, kind: int) -> None:
        """Send the first response to an interaction, which Discord awaits for three seconds."""
        path = "/interactions/{interaction_id}/{token}/callback"
        route = Route("POST", path, interaction_id=interaction.id, token=interaction.token)
        await self._call(route, json={"type": kind})

    async def edit_response(
        self, application_id: str, token: str, payload: Payload, files: Sequence[Upload] = ()
    ) -> str:
        """Change the message of an interaction and return its id; possible for 15 minutes."""
        return await self._write(_response_route("PATCH", application_id, token), payload, files)

    async def delete_response(self, application_id: str, token: str) -> None:
        """Remove the first response to an interaction."""
        await self._call(_response_route("DELETE", application_id, token))

    async def _write(self, route: Route, payload: Payload, files: Sequence[Upload]) -> str:
        if not files:
            found = await self._call(route, json=payload)
        else:
            opened = await asyncio.to_thread(_open, files)
            try:
                form = _form(payload, opened)
                found = await self._call(route, limit_s=TRANSFER_S, files=opened, form=form)
            finally:
                for file in opened:
                    file.close()
        return _parsed(wire.Sent, found).id


def _message_route(method: str, channel_id: str, message_id: str) -> Route:
    path = "/channels/{channel_id}/messages/{message_id}"
    return Route(method, path, channel_id=channel_id, message_id=message_id)


def _response_route(method: str, application_id: str, token: str) -> Route:
    path = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
    return Route(method, path, webhook_id=application_id, webhook_token=token)


def _open(files: Sequence[Upload]) -> list[File]:
    opened: list[File] = []
    try:
        for file in files:
            opened.append(File(file.path, filename=file.path.name))
    except OSError as error:
        for other in opened:
            other.close()
        raise CallFailed(Cause.REFUSED, f"'{file.path.name}' cannot be read") from error
    return opened


def _form(payload: Payload, files: Sequence[File]) -> list[dict[str, Any]]:
    listed = [{"id": index, "filename": file.filename} for index, file in enumerate(files)]
    described = json.dumps({**payload, "attachments": listed})
    parts: list[dict[str, Any]] = [{"name": "payload_json", "value": described}]
    for index, file in enumerate(files):
        parts.append(
            {
                "name": f"files[{index}]",
                "value": file.fp,
                "filename": file.filename,
                "content_type": "application/octet-stream",
            }
        )
    return parts


def _parsed(model: type[ModelT], found: object) -> ModelT:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        reason = "the answer cannot be read (it lacks a field)"
        raise CallFailed(Cause.UNREACHABLE, reason) from error
