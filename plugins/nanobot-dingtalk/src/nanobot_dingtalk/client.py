"""Calls to DingTalk: the token, the stream, replies, pushes and files."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import AsyncIterator
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

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
from nanobot_dingtalk.failure import failure_of

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_dingtalk.settings import DingTalkSettings

SERVICE = "DingTalk"
MESSAGES = "/v1.0/im/bot/messages/get"
"""Topic of messages to the robot."""
_UPLOAD_LIMIT_S = 180.0
_MEDIA = {"image": "image", "voice": "voice", "video": "video"}
_ZIPPED = frozenset({".html", ".htm"})
"""Files that DingTalk does not take as they are."""


class Client:
    """Calls to DingTalk's APIs with the credentials of one app.

    Raises:
        CallFailed: from every method that calls DingTalk.
    """

    def __init__(self, ctx: PluginContext, settings: DingTalkSettings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._secret = settings.client_secret.get_secret_value()
        self._api = _api_at(settings.api_base)
        self._media = _api_at(settings.media_base)
        self._token = AccessToken(self._fetch_token, ctx.clock)

    async def sign_in(self) -> None:
        """Check the credentials."""
        await self._token.get()

    async def open_stream(self) -> Socket:
        """Open a connection for messages; each needs a new ticket."""
        answer = await self._api.call(
            "POST",
            "/v1.0/gateway/connections/open",
            json={
                "clientId": self._settings.client_id,
                "clientSecret": self._secret,
                "subscriptions": [{"type": "CALLBACK", "topic": MESSAGES}],
                "ua": "nanobot",
            },
        )
        endpoint, ticket = answer.get("endpoint"), answer.get("ticket")
        if not isinstance(endpoint, str) or not isinstance(ticket, str):
            raise CallFailed(Cause.UNREACHABLE, "DingTalk named no address for its stream")
        url = f"{endpoint}?ticket={quote(ticket, safe='')}"
        return await open_socket(url, service=SERVICE, silence_s=self._settings.silence_s)

    async def reply(self, webhook: str, message: JsonObject) -> None:
        """Answer a message through the webhook that came with it.

        Raises:
            WebhookExpired: it is no longer valid.
        """
        query = dict(parse_qsl(urlsplit(webhook).query))
        await self._media.call("POST", "/robot/sendBySession", params=query, json=message)

    def takes_replies(self, webhook: str) -> bool:
        """Whether a webhook belongs to DingTalk."""
        return webhook.startswith(f"{self._settings.media_base}/robot/sendBySession?")

    async def push(self, path: str, body: JsonObject) -> JsonObject:
        """Call the robot's API with an access token, and return its answer."""

        async def call(token: str) -> JsonObject:
            headers = {"x-acs-dingtalk-access-token": token}
            return await self._api.call("POST", path, json=body, headers=headers)

        return await self._token.use(call)

    async def upload(self, file: Upload) -> tuple[str, str]:
        """Upload a file, and return its media id and the name that people see."""
        name, content = await asyncio.to_thread(_zipped, file)

        async def call(token: str) -> JsonObject:
            return await self._media.call(
                "POST",
                "/media/upload",
                params={"access_token": token, "type": _MEDIA.get(file.kind, "file")},
                form={"media": (name, content, "application/octet-stream")},
                limit_s=_UPLOAD_LIMIT_S,
            )

        answer = await self._token.use(call)
        media_id = answer.get("media_id")
        if not isinstance(media_id, str):
            raise CallFailed(Cause.UNREACHABLE, "DingTalk did not name the uploaded file")
        return media_id, name

    async def download(self, ref: str) -> AsyncIterator[bytes]:
        """Yield a received file, named by robot code and download code."""
        robot, _, code = ref.partition(":")
        robot = robot or self._settings.client_id
        answer = await self.push(
            "/v1.0/robot/messageFiles/download", {"downloadCode": code, "robotCode": robot}
        )
        url = answer.get("downloadUrl")
        if not isinstance(url, str):
            raise CallFailed(Cause.REFUSED, "DingTalk no longer has the file")
        async for part in self._api.download(encrypted(url, self._settings.api_base)):
            yield part

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._api.aclose()
        await self._media.aclose()

    async def _fetch_token(self) -> tuple[str, float]:
        answer = await self._api.call(
            "POST",
            "/v1.0/oauth2/accessToken",
            json={"appKey": self._settings.client_id, "appSecret": self._secret},
        )
        token, seconds = answer.get("accessToken"), answer.get("expireIn")
        if not isinstance(token, str) or not isinstance(seconds, int | float):
            raise CallFailed(Cause.UNREACHABLE, "DingTalk's answer has no access token")
        self._ctx.conceal([token], name="access token")
        return token, float(seconds)


def _api_at(address: str) -> PlatformApi:
    return PlatformApi(address, service=SERVICE, failure=failure_of)


def encrypted(url: str, api_base: str) -> str:
    """Return the https form of an address of a file; DingTalk may name it with http."""
    is_http = url.startswith("http://") and api_base.startswith("https://")
    return f"https://{url.removeprefix('http://')}" if is_http else url


def text_message(title: str, text: str, *, is_markdown: bool) -> tuple[JsonObject, str, str]:
    """Return a message as a reply, and its key and parameters as a push."""
    if is_markdown:
        card: JsonObject = {"title": title, "text": text}
        return {"msgtype": "markdown", "markdown": card}, "sampleMarkdown", packed(card)
    plain: JsonObject = {"content": text}
    return {"msgtype": "text", "text": plain}, "sampleText", packed(plain)


def packed(value: JsonObject) -> str:
    """Return JSON in as few bytes as possible, because DingTalk limits them."""
    return json.dumps(value, ensure_ascii=False)


def _zipped(file: Upload) -> tuple[str, bytes]:
    content = file.path.read_bytes()
    if file.path.suffix.lower() not in _ZIPPED:
        return file.path.name, content
    archived = BytesIO()
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(file.path.name, content)
    return f"{file.path.stem}.zip", archived.getvalue()
