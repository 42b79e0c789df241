"""Connection: connects to Discord, and raises its failures as `CallFailed`.

Only this module and `client.py` know the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from discord import HTTPException, LoginFailure, RateLimited
from discord.http import HTTPClient, Route

from nanobot_core import Clock
from nanobot_core.chat import CallFailed, Cause
from nanobot_discord import wire
from nanobot_discord.failures import BAD_TOKEN, BLOCK_PAUSE_S, failure_of
from nanobot_discord.settings import API_BASE, DiscordSettings

_CALL_S = 60.0
TRANSFER_S = 180.0
_LONGEST_WAIT_S = 30.0
"""Longest wait for a rate limit inside a call; the smallest that the SDK takes."""
_CLOSE_S = 1.5
_MAX_FRAME_BYTES = 32 * 1024 * 1024
"""The list of channels of a large server has some megabytes."""
_FILE_HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
_CHUNK_BYTES = 64 * 1024
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""Raised by the SDK, which does not validate answers before it reads them."""


# The SDK's records contain addresses with the tokens of interactions.
logging.getLogger("discord.http").setLevel(logging.CRITICAL)


class _Http(HTTPClient):
    """The SDK's HTTP client: one connection pool, and Discord's rate limits by bucket.

    The SDK keeps the address of the API in a class attribute, which all bots of a process share.
    """

    def __init__(self, api_base: str, proxy: str | None) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, proxy=proxy, max_ratelimit_timeout=_LONGEST_WAIT_S)
        self._api_base = api_base

    async def request(self, route: Route, **kwargs: Any) -> object:
        route.url = self._api_base + route.url.removeprefix(route.BASE)
        return await super().request(route, **kwargs)


class Connection:
    """Connects when it is used first. Every method raises `CallFailed` if it fails."""

    def __init__(self, settings: DiscordSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._proxy = _proxy(settings)
        self._opening = asyncio.Lock()
        self._http: _Http | None = None
        self._session: aiohttp.ClientSession | None = None
        self._user: wire.User | None = None
        self._refusal: CallFailed | None = None
        self._blocked_until_s = 0.0

    async def sign_in(self) -> wire.User:
        """Check the token, and return the bot's user."""
        await self._opened()
        assert self._user is not None  # noqa: S101 - set by `_opened`
        return self._user

    async def call(self, route: Route, *, limit_s: float = _CALL_S, **kwargs: Any) -> object:
        """Make a call, within `limit_s` seconds, and return what Discord answers."""
        http = await self._opened()
        async with self._failures(limit_s):
            return await http.request(route, **kwargs)

    async def open_socket(self, url: str) -> aiohttp.ClientWebSocketResponse:
        """Return a connection to the event stream.

        The bot sends its token over it, so that the address must belong to Discord.
        """
        if not self._is_of_discord(url):
            raise CallFailed(Cause.UNREACHABLE, "the event stream is not on a host of Discord")
        await self._opened()
        assert self._session is not None  # noqa: S101 - set by `_opened`
        async with self._failures(_CALL_S):
            return await self._session.ws_connect(
                url,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                max_msg_size=_MAX_FRAME_BYTES,
                proxy=self._proxy,
            )

    async def fetch(self, url: str) -> AsyncIterator[bytes]:
        """Yield the content of a file of a message. Its address contains the permission."""
        if not self._is_of_discord(url):
            raise CallFailed(Cause.REFUSED, "its address is not one of Discord's hosts")
        await self._opened()
        assert self._session is not None  # noqa: S101 - set by `_opened`
        async with (
            self._failures(TRANSFER_S),
            self._session.get(
                url,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response,
        ):
            if response.status != HTTPStatus.OK:
                is_passing = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
                cause = Cause.UNREACHABLE if is_passing else Cause.REFUSED
                raise CallFailed(cause, f"Discord answered with status {response.status}")
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                yield chunk

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        async with self._opening:
            await self._close()

    async def _close(self) -> None:
        http, self._http = self._http, None
        session, self._session = self._session, None
        self._user = None
        if http is not None:
            await http.close()
        if session is not None:
            await session.close()

    async def _opened(self) -> _Http:
        """Return a client that is signed in."""
        async with self._opening:
            if self._http is not None and self._user is not None:
                return self._http
            if self._refusal is not None:
                raise self._refusal
            token = self._settings.token.get_secret_value()
            self._http = _Http(self._settings.api_base, self._proxy)
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
            try:
                async with self._failures(_CALL_S):
                    found = await self._http.static_login(token)
                    self._user = wire.User.model_validate(found)
                return self._http
            finally:
                if self._user is None:
                    await self._close()

    def _is_of_discord(self, url: str) -> bool:
        """Whether an address is one of Discord, or of the server that the owner has set."""
        try:
            address, base = urlsplit(url), urlsplit(self._settings.api_base)
        except ValueError:
            return False
        host = address.hostname or ""
        if self._settings.api_base != API_BASE and address.netloc == base.netloc:
            return True
        if address.scheme == "wss":
            return host.endswith(".discord.gg") and address.port in {None, 443}
        return address.scheme == "https" and address.netloc in _FILE_HOSTS

    @asynccontextmanager
    async def _failures(self, limit_s: float) -> AsyncIterator[None]:
        """Limit the time of the block, and raise every failure in it as `CallFailed`.

        Discord blocks an address that causes many failures. So after a refused token there are no
        more calls, and after a block at its edge none for some time.
        """
        if self._refusal is not None:
            raise self._refusal
        pause_s = self._blocked_until_s - self._clock.monotonic_s()
        if pause_s > 0:
            reason = "Discord has blocked this address for a time, after too many requests"
            raise CallFailed(Cause.BUSY, reason, retry_after_s=pause_s)
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError as error:
            raise CallFailed(Cause.UNREACHABLE, "Discord did not answer in time") from error
        except (LoginFailure, RateLimited, HTTPException) as error:
            failure = self._failure_of(error)
            if failure.cause is Cause.CREDENTIALS:
                self._refusal = failure
            raise failure from error
        except (aiohttp.ClientError, OSError) as error:
            # Its text may contain an address with the token of an interaction.
            reason = f"Discord cannot be reached ({type(error).__name__})"
            raise CallFailed(Cause.UNREACHABLE, reason) from error
        except _UNREADABLE as error:
            raise _unreadable(error) from error

    def _failure_of(self, error: LoginFailure | RateLimited | HTTPException) -> CallFailed:
        if isinstance(error, LoginFailure):
            return CallFailed(Cause.CREDENTIALS, BAD_TOKEN)
        if isinstance(error, RateLimited):
            return failure_of(HTTPStatus.TOO_MANY_REQUESTS, 0, "", error.retry_after)
        wait_s = None
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            wait_s = _seconds(error.response.headers.get("Retry-After"))
            if not error.response.headers.get("Via"):
                # Not from the API, but from the edge before it: the whole address is blocked.
                wait_s = BLOCK_PAUSE_S if wait_s is None else wait_s
                self._blocked_until_s = self._clock.monotonic_s() + wait_s
        return failure_of(error.status, error.code, error.text, wait_s)


def _proxy(settings: DiscordSettings) -> str | None:
    """Return the address of the proxy, with what it requires."""
    if settings.proxy is None:
        return None
    url = settings.proxy.get_secret_value()
    if not settings.proxy_username:
        return url
    scheme, _, rest = url.partition("://")
    password = settings.proxy_password.get_secret_value() if settings.proxy_password else ""
    secrets = f"{quote(settings.proxy_username, safe='')}:{quote(password, safe='')}"
    return f"{scheme}://{secrets}@{rest.rpartition('@')[2]}"


def _seconds(header: str | None) -> float | None:
    try:
        return max(float(header), 0.0) if header else None
    except ValueError:
        return None


def _unreadable(error: Exception) -> CallFailed:
    reason = f"the answer cannot be read ({type(error).__name__})"
    return CallFailed(Cause.UNREACHABLE, reason)
