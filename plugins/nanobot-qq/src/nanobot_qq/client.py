"""Calls to QQ: the token, the gateway, messages and files."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from nanobot_core import JsonObject
from nanobot_core.chat import (
    AccessToken,
    CallFailed,
    Cause,
    PlatformApi,
    Socket,
    Upload,
    open_socket,
)
from nanobot_qq.failure import failure_of
from nanobot_qq.mapping import GROUP

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_qq.settings import QQSettings

SERVICE = "QQ"
_UPLOAD_LIMIT_S = 180.0
_HELLO_LIMIT_S = 30.0
_FILE = 4
_TYPES = {"image": 1, "video": 2, "voice": 3}


class Client:
    """Calls to QQ's API with the credentials of one bot.

    Raises:
        CallFailed: from every method that calls QQ.
    """

    def __init__(self, ctx: PluginContext, settings: QQSettings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._api = PlatformApi(settings.api_base, service=SERVICE, failure=failure_of)
        self._issuer = PlatformApi(settings.token_url, service=SERVICE, failure=failure_of)
        self._token = AccessToken(self._fetch_token, ctx.clock)

    async def open_gateway(self) -> Socket:
        """Open a connection for events."""
        # The protocol has heartbeats of its own.
        return await open_socket(
            await self.gateway(), service=SERVICE, silence_s=_HELLO_LIMIT_S, ping_s=None
        )

    async def gateway(self) -> str:
        """Return the address of the gateway; QQ names it to valid credentials only."""
        url = (await self._call("GET", "/gateway")).get("url")
        if not isinstance(url, str):
            raise CallFailed(Cause.UNREACHABLE, "QQ named no address for its gateway")
        return url

    async def token(self) -> str:
        """Return an access token."""
        return await self._token.get()

    async def renew_token(self, refused: str) -> None:
        """Fetch another token than `refused`."""
        await self._token.renew(refused)

    async def send(self, chat_id: str, message: JsonObject) -> str:
        """Send a message, and return its id."""
        answer = await self._call("POST", f"{place_of(chat_id)}/messages", message)
        return str(answer.get("id") or "")

    async def upload(self, chat_id: str, file: Upload) -> JsonObject:
        """Upload a file, and return what a message to this chat names it by."""
        kind = _TYPES.get(file.kind, _FILE)
        content = await asyncio.to_thread(lambda: base64.b64encode(file.path.read_bytes()).decode())
        body: JsonObject = {"file_type": kind, "file_data": content, "srv_send_msg": False}
        if kind == _FILE:  # a picture with a name is shown as a file
            body["file_name"] = file.path.name
        path = f"{place_of(chat_id)}/files"
        answer = await self._call("POST", path, body, limit_s=_UPLOAD_LIMIT_S)
        info = answer.get("file_info")
        if not isinstance(info, str):
            raise CallFailed(Cause.UNREACHABLE, "QQ did not name the uploaded file")
        return {"file_info": info}

    async def confirm(self, interaction: str) -> None:
        """Confirm a pressed button to the person's client."""
        await self._call("PUT", f"/interactions/{quote(interaction, safe='')}", {"code": 0})

    async def download(self, url: str) -> AsyncIterator[bytes]:
        """Yield a received file."""
        async for part in self._api.download(url):
            yield part

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._api.aclose()
        await self._issuer.aclose()

    async def _call(
        self, method: str, path: str, body: JsonObject | None = None, *, limit_s: float = 30.0
    ) -> JsonObject:
        async def call(token: str) -> JsonObject:
            headers = {"Authorization": f"QQBot {token}"}
            return await self._api.call(method, path, json=body, headers=headers, limit_s=limit_s)

        return await self._token.use(call)

    async def _fetch_token(self) -> tuple[str, float]:
        secret = self._settings.secret.get_secret_value()
        asked: JsonObject = {"appId": self._settings.app_id, "clientSecret": secret}
        answer = await self._issuer.call("POST", "", json=asked)
        token, seconds = answer.get("access_token"), str(answer.get("expires_in"))
        if not isinstance(token, str) or not seconds.isdecimal():
            raise CallFailed(Cause.UNREACHABLE, "QQ's answer has no access token")
        self._ctx.conceal([token], name="access token")
        return token, float(seconds)


def place_of(chat_id: str) -> str:
    """Return the path of a chat."""
    if chat_id.startswith(GROUP):
        return f"/v2/groups/{quote(chat_id.removeprefix(GROUP), safe='')}"
    return f"/v2/users/{quote(chat_id, safe='')}"
