"""Calls to Slack's Web API, uploads and downloads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urljoin, urlsplit

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from nanobot_core import JsonObject
from nanobot_core.chat import Attachment, CallFailed, Cause
from nanobot_slack.failure import APP_TOKEN, BOT_TOKEN, pause_of, refused_call
from nanobot_slack.settings import SlackSettings, Timing

_FOREIGN = (SlackClientError, aiohttp.ClientError, OSError, ValueError, TypeError, AttributeError)
"""What a call may raise. The SDK does not expect answers that are no JSON object."""
_REDIRECTS = 3
_CLOSE_S = 1.0
"""How long a closed socket waits for the other side, which may be gone."""
_CHUNK = 64 * 1024
_TOO_MANY, _SERVER_ERROR = 429, 500
_MOVED = frozenset({301, 302, 303, 307, 308})
_PAGES = (".html", ".htm")


class SlackClient:
    """A connection to the Web API.

    The session is ours, because the SDK's takes proxies from the environment.
    """

    def __init__(self, settings: SlackSettings, timing: Timing) -> None:
        self._settings = settings
        self._timing = timing
        self._proxy = settings.proxy.get_secret_value() if settings.proxy else None
        self._base = urlsplit(settings.api_base)
        self._opened: aiohttp.ClientSession | None = None
        # The SDK logs texts of messages at the level DEBUG of this logger.
        self._log = logging.getLogger(f"{__name__}.sdk")
        self._log.setLevel(logging.WARNING)

    async def call(
        self,
        method: str,
        arguments: JsonObject | None = None,
        *,
        form: bool = False,
        as_app: bool = False,
    ) -> JsonObject:
        """Call a method and return its answer.

        Args:
            form: send the arguments as a form; methods that only read accept nothing else.
            as_app: use the token of the app, instead of the bot's.

        Raises:
            CallFailed: Slack refuses the call or cannot be reached.
        """
        setting = APP_TOKEN if as_app else BOT_TOKEN
        body: dict[str, Any] = {"data" if form else "json": arguments or {}}
        try:
            async with asyncio.timeout(self._timing.call_s):
                answer = await self._sdk(as_app=as_app).api_call(method, **body)
                return cast("JsonObject", answer.data) | self._scopes(answer.headers)
        except _FOREIGN as error:
            raise _failure(method, error, setting) from None

    async def upload(self, path: Path, size: int) -> JsonObject:
        """Upload a file and return its entry for ``files.completeUploadExternal``.

        Raises:
            CallFailed: as `call`.
        """
        ticket = await self.call(
            "files.getUploadURLExternal", {"filename": path.name, "length": str(size)}, form=True
        )
        url = self._own_address(str(ticket.get("upload_url")))
        content = await _opened(path)
        try:
            async with asyncio.timeout(self._timing.transfer_s):
                # The address is its own permission, so it gets no token.
                async with self._session.post(
                    url, data=content, proxy=self._proxy, allow_redirects=False
                ) as answer:
                    if answer.status != 200:
                        reason = f"Slack did not take the file: status {answer.status}"
                        raise CallFailed(Cause.UNREACHABLE, reason)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable("the upload", error) from None
        finally:
            content.close()
        return {"id": ticket.get("file_id"), "title": path.name}

    async def download(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file. Its `ref` is an address, or an id if it has none.

        Raises:
            CallFailed: as `call`.
        """
        url = file.ref
        if "://" not in url:
            known = (await self.call("files.info", {"file": file.ref}, form=True)).get("file")
            url = str(known.get("url_private")) if isinstance(known, dict) else ""
        try:
            for _ in range(_REDIRECTS):
                async with self._get(self._own_address(url)) as answer:
                    if answer.status in _MOVED:
                        url = urljoin(url, answer.headers.get("Location", ""))
                        continue
                    _check_download(answer, file.name)
                    async for chunk in answer.content.iter_chunked(_CHUNK):
                        yield chunk
                    return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable("the download", error) from None
        raise CallFailed(Cause.REFUSED, "Slack redirects the download too often")

    def socket(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Return the connection to a socket, whose address is a secret."""
        # The watchdog needs pongs, so pings are not answered automatically.
        return self._session.ws_connect(
            self._own_address(url),
            autoping=False,
            proxy=self._proxy,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(_refuse_redirect)
            self._opened = aiohttp.ClientSession(
                trust_env=False,
                trace_configs=[tracing],
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timing.call_s),
            )
        return self._opened

    def _sdk(self, *, as_app: bool) -> AsyncWebClient:
        token = self._settings.app_token if as_app else self._settings.bot_token
        # A repeated call could send a message twice; the outbox decides about that.
        sdk = AsyncWebClient(
            token=token.get_secret_value(),
            base_url=self._settings.api_base,
            session=self._session,
            logger=self._log,
            retry_handlers=[],
        )
        # Only after it was created: without a value, it takes one from the environment.
        sdk.proxy = self._proxy
        return sdk

    def _get(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        token = self._settings.bot_token.get_secret_value()
        headers = {"Authorization": f"Bearer {token}"}
        return self._session.get(url, headers=headers, proxy=self._proxy, allow_redirects=False)

    def _own_address(self, url: str) -> str:
        """Return `url` if it is an address of Slack; others must get neither token nor file.

        Raises:
            CallFailed: it is another.
        """
        try:
            address = urlsplit(url)
            host, port = address.hostname or "", address.port
        except ValueError:
            address, host, port = urlsplit(""), "", None
        is_secure = address.scheme in {"https", "wss"} and port in {None, 443}
        # The server of the settings may be another, such as that of the US government or of tests.
        domains = ("slack.com", self._base.hostname or "slack.com")
        is_slack = host in domains or host.endswith(tuple(f".{domain}" for domain in domains))
        is_base = (host, port) == (self._base.hostname, self._base.port)
        if (is_secure and is_slack) or (is_base and address.scheme in self._schemes):
            return url
        raise CallFailed(Cause.REFUSED, f"'{host or 'no host'}' does not belong to Slack")

    @property
    def _schemes(self) -> tuple[str, ...]:
        return ("https", "wss") if self._base.scheme == "https" else ("http", "ws")

    @staticmethod
    def _scopes(headers: Mapping[str, str]) -> JsonObject:
        lower = {name.lower(): value for name, value in headers.items()}
        scopes = lower.get("x-oauth-scopes")
        return {} if scopes is None else {"granted_scopes": scopes}


async def _refuse_redirect(*_: object) -> None:
    """Fail a call that Slack redirects, because it contains a token or a text."""
    msg = "redirected"
    raise aiohttp.ClientError(msg)


def _failure(method: str, error: BaseException, setting: str) -> CallFailed:
    """Return what an exception of the SDK means."""
    response = getattr(error, "response", None)
    if response is None:
        return _unreachable(method, error)
    status: int = getattr(response, "status_code", 0) or getattr(response, "status", 0)
    headers = {str(name).lower(): str(value) for name, value in dict(response.headers).items()}
    data = getattr(response, "data", None)
    retry_after = headers.get("retry-after", "")
    if status == _TOO_MANY:
        return refused_call(
            method, {"error": "ratelimited"}, setting=setting, retry_after=retry_after
        )
    if isinstance(data, dict) and data.get("error"):
        return refused_call(method, data, setting=setting, retry_after=retry_after)
    pause_s = pause_of(retry_after) if status >= _SERVER_ERROR else None
    reason = f"Slack answered {method} with status {status} and no result"
    return CallFailed(Cause.UNREACHABLE, reason, retry_after_s=pause_s)


def _unreachable(what: str, error: BaseException) -> CallFailed:
    # Texts of these errors may contain addresses, and some addresses are secrets.
    if isinstance(error, TimeoutError):
        return CallFailed(Cause.UNREACHABLE, f"{what}: Slack did not answer in time")
    return CallFailed(Cause.UNREACHABLE, f"{what}: no connection to Slack ({type(error).__name__})")


def _check_download(answer: aiohttp.ClientResponse, name: str) -> None:
    """Refuse what is not the file.

    Raises:
        CallFailed: it is not.
    """
    is_page = answer.content_type == "text/html" and not name.lower().endswith(_PAGES)
    if is_page or answer.status in {401, 403}:
        # Slack shows its page for signing in.
        raise refused_call(
            "the download", {"error": "missing_scope", "needed": "files:read"}, setting=BOT_TOKEN
        )
    if answer.status != 200:
        cause = Cause.UNREACHABLE if answer.status >= _SERVER_ERROR else Cause.REFUSED
        pause_s = pause_of(answer.headers.get("Retry-After", ""))
        if answer.status == _TOO_MANY:
            cause = Cause.BUSY
        reason = f"Slack answered the download with status {answer.status}"
        raise CallFailed(cause, reason, retry_after_s=pause_s)


async def _opened(path: Path) -> BinaryIO:
    try:
        return await asyncio.to_thread(path.open, "rb")
    except OSError as error:
        raise CallFailed(Cause.REFUSED, f"'{path.name}' cannot be read: {error.strerror}") from None
