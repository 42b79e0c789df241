"""Homeserver: the calls of the client-server API that the channel makes."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from nanobot_core.chat import CallFailed, Cause, PlatformApi, Records
from nanobot_matrix import wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nanobot_core import JsonObject, PluginContext
    from nanobot_matrix.settings import MatrixSettings

ModelT = TypeVar("ModelT", bound=BaseModel)
_CLIENT = "/_matrix/client/v3"
_MEDIA = ("/_matrix/client/v1/media", "/_matrix/media/v3")
"""Since version 1.11, files are behind the access token; older servers know only the second."""
_UPLOAD_LIMIT_S = 180.0
_SYNC_MARGIN_S = 20.0
CODES: dict[str, Cause] = {
    "M_UNKNOWN_TOKEN": Cause.CREDENTIALS,
    "M_MISSING_TOKEN": Cause.CREDENTIALS,
    "M_USER_DEACTIVATED": Cause.CREDENTIALS,
    "M_USER_LOCKED": Cause.CREDENTIALS,
    "M_USER_SUSPENDED": Cause.CREDENTIALS,
    "M_FORBIDDEN": Cause.FORBIDDEN,
    "M_GUEST_ACCESS_FORBIDDEN": Cause.FORBIDDEN,
    "M_CONSENT_NOT_GIVEN": Cause.FORBIDDEN,
    "M_LIMIT_EXCEEDED": Cause.BUSY,
    "M_RESOURCE_LIMIT_EXCEEDED": Cause.UNREACHABLE,
    "M_NOT_FOUND": Cause.REFUSED,
    "M_TOO_LARGE": Cause.REFUSED,
    "M_BAD_JSON": Cause.REFUSED,
    "M_NOT_JSON": Cause.REFUSED,
    "M_INVALID_PARAM": Cause.REFUSED,
    "M_UNRECOGNIZED": Cause.REFUSED,
}
"""Code of an error to its cause; for others, the status of the answer decides."""
_FILTER = json.dumps(
    {
        "presence": {"types": []},
        "account_data": {"types": []},
        "room": {
            "account_data": {"types": []},
            "ephemeral": {"types": []},
            "state": {
                "types": ["m.room.member", "m.room.encryption"],
                "lazy_load_members": True,
            },
            "timeline": {"limit": 50, "lazy_load_members": True},
        },
    },
    separators=(",", ":"),
)


def failure_of(status: int, body: JsonObject) -> CallFailed | None:
    """Return the failure that an answer reports, if its code is known."""
    cause = CODES.get(str(body.get("errcode"))) if status >= 400 else None
    if cause is None:
        return None
    if cause is Cause.CREDENTIALS:
        reason = (
            "the homeserver does not accept the session; set channels.matrix.access_token to a "
            "new one (in Element: All settings, Help & About, Access Token) or set "
            "channels.matrix.password"
        )
        return CallFailed(cause, reason)
    said = " ".join(str(body.get("error") or "no reason given").split())[:200]
    # The header says the same; older servers send only this field.
    wait_ms = body.get("retry_after_ms")
    wait_s = wait_ms / 1_000 if isinstance(wait_ms, int | float) and wait_ms >= 0 else None
    reason = f"the homeserver answered {body.get('errcode')}: {said}"
    return CallFailed(cause, reason, retry_after_s=wait_s if cause is Cause.BUSY else None)


def read(shape: type[ModelT], found: JsonObject) -> ModelT:
    """Return an answer of the homeserver.

    Raises:
        CallFailed: it has another form.
    """
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        reason = f"an answer of the homeserver cannot be read ({error.error_count()} fields)"
        raise CallFailed(Cause.UNREACHABLE, reason) from error


class Homeserver:
    """A session of the agent's account."""

    def __init__(self, ctx: PluginContext, settings: MatrixSettings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._api = PlatformApi(settings.homeserver, service="Matrix", failure=failure_of)
        self._token = settings.access_token.get_secret_value()
        self._sessions = Records(ctx.data_dir / "session.json")
        self._account: wire.Account | None = None
        self._signing_in = asyncio.Lock()
        self._sign_in_again = not self._token

    async def account(self, *, is_new: bool = False) -> wire.Account:
        """Return the agent's account; with `is_new`, check the credentials again."""
        async with self._signing_in:
            if self._account is None or is_new:
                self._account = await self._signed_in()
            return self._account

    async def _signed_in(self) -> wire.Account:
        settings = self._settings
        if not self._sign_in_again:
            account = await self._who()
        else:
            account = await self._with_password()
        if settings.user_id and account.user_id != settings.user_id:
            reason = (
                f"the session is one of {account.user_id}, but channels.matrix.user_id is "
                f"{settings.user_id}; correct it, or use an access token of that account"
            )
            raise CallFailed(Cause.CREDENTIALS, reason)
        return account

    async def _with_password(self) -> wire.Account:
        """Continue the session of the last start, or open one."""
        settings, user_id = self._settings, self._settings.user_id
        saved = await self._sessions.get(user_id)
        kept = read(wire.Account, saved) if isinstance(saved, dict) else None
        if kept is not None and settings.device_id in {"", kept.device_id}:
            self._use(kept.access_token)
            try:
                return await self._who()
            except CallFailed as error:
                if error.cause is not Cause.CREDENTIALS:
                    raise
        device_id = settings.device_id or (kept.device_id if kept else "")
        asked: JsonObject = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user_id},
            "password": settings.password.get_secret_value(),
            "initial_device_display_name": "nanobot",
        }
        asked |= {"device_id": device_id} if device_id else {}
        try:
            found = await self._api.call("POST", f"{_CLIENT}/login", json=asked)
        except CallFailed as error:
            if error.cause is not Cause.FORBIDDEN:
                raise
            reason = (
                "the homeserver does not accept channels.matrix.user_id with "
                "channels.matrix.password; correct them, or set channels.matrix.access_token"
            )
            raise CallFailed(Cause.CREDENTIALS, reason) from error
        account = read(wire.Account, found)
        self._use(account.access_token)
        with suppress(OSError):  # the next start opens another session
            await self._sessions.put(user_id, account.model_dump())
        return account

    def _use(self, token: str) -> None:
        self._ctx.conceal([token], name="the session of Matrix")
        self._token = token

    async def _who(self) -> wire.Account:
        found = await self._api.call(
            "GET", f"{_CLIENT}/account/whoami", headers=self._credentials()
        )
        return read(wire.Account, found)

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    async def call(self, method: str, *path: str, body: JsonObject | None = None) -> JsonObject:
        """Call the API; the parts of the path are escaped."""
        await self.account()
        place = "/".join(quote(part, safe="") for part in path)
        return await self._api.call(
            method,
            f"{_CLIENT}/{place}",
            json=body,
            headers=self._credentials(),
        )

    async def sync(self, since: str | None, wait_ms: int) -> wire.Sync:
        """Return what happened after `since`; the homeserver waits until something has."""
        params: dict[str, str | int] = {"filter": _FILTER, "timeout": wait_ms}
        if since is not None:
            params["since"] = since
        try:
            found = await self._api.call(
                "GET",
                f"{_CLIENT}/sync",
                params=params,
                headers=self._credentials(),
                limit_s=wait_ms / 1_000 + _SYNC_MARGIN_S,
            )
        except CallFailed as error:
            if error.cause is Cause.CREDENTIALS and self._sign_in_again:
                reason = "the session has ended; the next start of the channel opens another"
                raise CallFailed(Cause.UNREACHABLE, reason) from error
            raise
        return read(wire.Sync, found)

    async def messages(self, room: str, begin: str, end: str, limit: int) -> wire.Messages:
        """Return events between two tokens, from the newest at `begin` back to `end`."""
        found = await self._api.call(
            "GET",
            f"{_CLIENT}/rooms/{quote(room, safe='')}/messages",
            params={"dir": "b", "from": begin, "to": end, "limit": limit},
            headers=self._credentials(),
        )
        return read(wire.Messages, found)

    async def event(self, room: str, event_id: str) -> wire.Event:
        """Return an event of a room."""
        return read(wire.Event, await self.call("GET", "rooms", room, "event", event_id))

    async def encryption(self, room: str) -> JsonObject | None:
        """Return how a room is encrypted, or ``None`` if the homeserver says that it is not."""
        try:
            return await self.call("GET", "rooms", room, "state", "m.room.encryption")
        except CallFailed as error:
            if error.cause is not Cause.REFUSED:
                raise
            return None

    async def put_event(self, room: str, kind: str, key: str, content: JsonObject) -> str:
        """Send a message, once for each `key`, and return its id."""
        found = await self.call("PUT", "rooms", room, "send", kind, key, body=content)
        event_id = found.get("event_id")
        if not isinstance(event_id, str) or not event_id:
            raise CallFailed(Cause.UNREACHABLE, "the homeserver gave no id for a message")
        return event_id

    async def largest_upload(self) -> int | None:
        """Return the most bytes of a file, if the homeserver limits and tells them."""
        for base in _MEDIA:
            try:
                found = await self._api.call("GET", f"{base}/config", headers=self._credentials())
            except CallFailed as error:
                if error.cause is not Cause.REFUSED:
                    raise
            else:
                limit = found.get("m.upload.size")
                return limit if isinstance(limit, int) and limit > 0 else None
        return None

    async def upload(self, content: bytes, media_type: str, name: str | None) -> str:
        """Upload a file and return its address."""
        await self.account()
        found = await self._api.call(
            "POST",
            "/_matrix/media/v3/upload",
            params={"filename": name} if name is not None else {},
            content=content,
            headers={**self._credentials(), "Content-Type": media_type},
            limit_s=_UPLOAD_LIMIT_S,
        )
        url = found.get("content_uri")
        if not isinstance(url, str) or not url.startswith("mxc://"):
            raise CallFailed(Cause.UNREACHABLE, "the homeserver gave no address for a file")
        return url

    async def download(self, url: str) -> AsyncIterator[bytes]:
        """Yield the content of a file."""
        place = quote(url.removeprefix("mxc://"), safe="/:[]")
        for base in _MEDIA:
            is_last = base == _MEDIA[-1]
            try:
                async for part in self._api.download(
                    f"{base}/download/{place}", headers=self._credentials()
                ):
                    is_last = True
                    yield part
            except CallFailed as error:
                if is_last or error.cause is not Cause.REFUSED:
                    raise
            else:
                return

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()
