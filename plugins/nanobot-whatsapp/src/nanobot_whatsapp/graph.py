"""Calls to the Graph API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from nanobot_core import JsonObject, shorten
from nanobot_core.chat import CallFailed, Cause, PlatformApi
from nanobot_whatsapp.codes import NO_ACCESS, NO_SUCH_OBJECT, NUMBER_UNKNOWN, meaning_of
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.timing import TimeLimits

_DETAIL_CHARS = 300
_MEDIA_HOSTS = ("fbsbx.com", "facebook.com", "whatsapp.net")
"""Hosts of Meta, with their subdomains, to which the token is sent for the bytes of a file."""
_WAIT_S = 6.0
"""If WhatsApp asks to wait without a time: it always accepts one message per 6 s to one person."""
_BAD_PARAMETER = 100
_UNAUTHORIZED = 401


class GraphFailed(CallFailed):
    """The Graph API refused a call.

    Attributes:
        code: its error code.
    """

    def __init__(self, cause: Cause, reason: str, code: int) -> None:
        self.code: int = code
        super().__init__(cause, reason)


class GraphApi:
    """The calls of one phone number. Create it in a thread, because it reads certificates."""

    def __init__(self, settings: WhatsAppSettings, limits: TimeLimits) -> None:
        self._number = settings.phone_number_id
        self._limits = limits
        self._own_host = urlsplit(settings.api_base).netloc
        self._api = PlatformApi(
            f"{settings.api_base}/{settings.api_version}",
            service="WhatsApp",
            failure=failure_of,
            headers={"authorization": f"Bearer {settings.access_token.get_secret_value()}"},
        )

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._api.aclose()

    async def describe_number(self) -> JsonObject:
        """Return the number's fields, which proves token and id."""
        fields = {"fields": "display_phone_number,verified_name"}
        limit_s = self._limits.call_s
        return await self._api.call("GET", f"/{self._number}", params=fields, limit_s=limit_s)

    async def send(self, body: JsonObject) -> str:
        """Send a message, and return its id."""
        answer = await self.post(body)
        match answer.get("messages"):
            case [{"id": str(message_id)}, *_]:
                return message_id
        raise CallFailed(Cause.UNREACHABLE, "the answer of WhatsApp has no message id")

    async def post(self, body: JsonObject) -> JsonObject:
        """Send a message, or a status of one."""
        content = {"messaging_product": "whatsapp", **body}
        try:
            return await self._api.call(
                "POST", f"/{self._number}/messages", json=content, limit_s=self._limits.call_s
            )
        except CallFailed as error:
            if error.cause is not Cause.BUSY or error.retry_after_s is not None:
                raise
            raise CallFailed(Cause.BUSY, error.reason, retry_after_s=_WAIT_S) from error

    async def upload(self, path: Path, name: str, mime_type: str) -> str:
        """Upload a file, and return its id.

        Raises:
            OSError: the file cannot be read.
        """
        content = await asyncio.to_thread(path.read_bytes)
        answer = await self._api.call(
            "POST",
            f"/{self._number}/media",
            form={
                "messaging_product": "whatsapp",
                "type": mime_type,
                "file": (name, content, mime_type),
            },
            limit_s=self._limits.transfer_s,
        )
        media_id = answer.get("id")
        if not isinstance(media_id, str):
            raise CallFailed(Cause.UNREACHABLE, "the answer of WhatsApp has no media id")
        return media_id

    async def download(self, media_id: str) -> AsyncIterator[bytes]:
        """Yield the content of a file; its address is valid for five minutes."""
        limit_s = self._limits.call_s
        address = (await self._api.call("GET", f"/{media_id}", limit_s=limit_s)).get("url")
        if not isinstance(address, str) or not self._is_trusted(address):
            raise CallFailed(Cause.REFUSED, "the address of the file is not one of WhatsApp")
        hosts = {urlsplit(address).hostname or ""}
        async for part in self._api.download(address, hosts=hosts):
            yield part

    def _is_trusted(self, address: str) -> bool:
        try:
            parts = urlsplit(address)
            host = parts.hostname or ""
        except ValueError:
            return False
        is_metas = any(host == known or host.endswith(f".{known}") for known in _MEDIA_HOSTS)
        return parts.netloc == self._own_host or (parts.scheme == "https" and is_metas)


def failure_of(status: int, answer: JsonObject) -> CallFailed | None:
    """Return the failure that an answer of the Graph API reports, or ``None``."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return CallFailed(Cause.CREDENTIALS, NO_ACCESS) if status == _UNAUTHORIZED else None
    code = error.get("code")
    if not isinstance(code, int):
        return None
    cause, reason = meaning_of(code)
    if code == _BAD_PARAMETER and error.get("error_subcode") == NO_SUCH_OBJECT:
        cause, reason = Cause.CREDENTIALS, NUMBER_UNKNOWN
    if cause is not Cause.CREDENTIALS and (detail := _detail(error)):
        reason = f"{reason}: {detail}"
    return GraphFailed(cause, reason, code)


def _detail(error: JsonObject) -> str:
    data = error.get("error_data")
    detail = data.get("details") if isinstance(data, dict) else None
    return shorten(str(detail or error.get("message") or ""), _DETAIL_CHARS)
