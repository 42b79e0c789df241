"""Logging in to remote servers with OAuth: the SDK's flow, our files and our loopback address."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import anyio
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from nanobot_core import NanobotError, finish_in_thread
from nanobot_mcp.link import open_link
from nanobot_mcp.listing import read_offers
from nanobot_mcp.trouble import Trouble, describe_failure

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_mcp.connection import ConnectionPorts
    from nanobot_mcp.settings import OAuthSettings, ServerSettings

LOGIN_LIMIT_S = 300.0
_EARLY_S = 30.0
"""Seconds before its end from which on a token is renewed."""

_MAX_REQUEST_BYTES = 16_384
_PAGE = b"nanobot is logged in. You can close this page."


class LoginNeeded(NanobotError):
    """The tokens of the last login are of no use any more."""

    def __init__(self, server: str) -> None:
        self.server: str = server
        super().__init__(f"it asks for a new login; run nanobot mcp login {server}")


class TokenFile:
    """Tokens and registration of one server, in a file that only the user may read.

    It is the ``TokenStorage`` of the SDK, which asks for nothing else than these four methods.

    Args:
        ctx: folder and clock.
    """

    def __init__(self, ctx: PluginContext, name: str, server: ServerSettings) -> None:
        key = hashlib.sha256(f"{name}\0{server.url}".encode()).hexdigest()[:16]
        self._path = ctx.data_dir / "oauth" / f"{key}.json"
        self._clock = ctx.clock
        self._server = server
        self._record = _read(self._path)

    @property
    def has_tokens(self) -> bool:
        """Whether there was a login."""
        return "tokens" in self._record

    @property
    def metadata(self) -> OAuthMetadata | None:
        """What was known of the authorization server at the login; renewing tokens needs it."""
        try:
            return OAuthMetadata.model_validate(self._record.get("metadata"))
        except ValidationError:
            return None

    def forget_registration(self, redirect: str) -> None:
        """Register again unless the stored registration allows the address `redirect`."""
        known = self._record.get("client_info", {}).get("redirect_uris") or []
        if redirect not in known:
            self._record.pop("client_info", None)
        self._record.pop("tokens", None)

    async def keep_metadata(self, metadata: OAuthMetadata | None) -> None:
        """Store what is known of the authorization server."""
        if metadata is not None:
            await self._keep("metadata", metadata.model_dump(mode="json", exclude_none=True))

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens; an access token that has run out is left empty, to be renewed."""
        try:
            tokens = OAuthToken.model_validate(self._record.get("tokens"))
        except ValidationError:
            return None
        ends_at = self._record.get("ends_at")
        if isinstance(ends_at, int | float) and ends_at - _EARLY_S < self._clock.now().timestamp():
            return tokens.model_copy(update={"access_token": ""})
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store `tokens` and when they run out."""
        lasts_s = tokens.expires_in
        self._record.pop("ends_at", None)
        if lasts_s is not None:
            self._record["ends_at"] = self._clock.now().timestamp() + lasts_s
        await self._keep("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the owner's client, else the one that was registered at the login."""
        oauth = self._server.oauth
        if oauth is not None and oauth.client_id:
            secret = oauth.client_secret.get_secret_value() if oauth.client_secret else None
            return OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=secret,
                token_endpoint_auth_method="client_secret_post" if secret else "none",
            )
        try:
            return OAuthClientInformationFull.model_validate(self._record.get("client_info"))
        except ValidationError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        await self._keep("client_info", client_info.model_dump(mode="json", exclude_none=True))

    async def _keep(self, key: str, value: JsonObject) -> None:
        self._record[key] = value
        await finish_in_thread(partial(_write, self._path, json.dumps(self._record)))


def stored_auth(
    ctx: PluginContext, name: str, server: ServerSettings
) -> OAuthClientProvider | None:
    """Return the authentication with the tokens of an earlier login; ``None`` without one. Blocks.

    It renews tokens. Where a new login is needed, its requests fail.
    """
    file = TokenFile(ctx, name, server)
    if not file.has_tokens:
        return None

    async def refuse(_address: str) -> None:
        raise LoginNeeded(name)

    provider = OAuthClientProvider(
        server.url or "",
        _client_metadata(server.oauth, "http://127.0.0.1/callback"),
        file,
        refuse,
        _no_browser,
    )
    provider.context.oauth_metadata = file.metadata
    return provider


async def log_in(
    name: str,
    server: ServerSettings,
    ports: ConnectionPorts,
    show: Callable[[str], Awaitable[None]],
) -> str:
    """Connect with a new login, if the server asks for one, and keep its tokens.

    Args:
        show: receives the address that a person must open in a browser.

    Returns:
        The problem; empty if the server can be used.
    """
    trouble = Trouble()
    try:
        with anyio.fail_after(LOGIN_LIMIT_S):
            async with (
                _new_auth(ports.ctx, name, server, show) as auth,
                open_link(server, replace(ports, make_auth=lambda: auth), trouble) as link,
            ):
                # Some servers ask for a login only when they are asked for something.
                await read_offers(link.client)
    except Exception as error:  # noqa: BLE001 - isolation point: the SDK and its transports
        return describe_failure(error)
    return ""


async def _no_browser() -> AuthorizationCodeResult:
    """Replace the browser where a login must not start."""
    raise AssertionError


@asynccontextmanager
async def _new_auth(
    ctx: PluginContext,
    name: str,
    server: ServerSettings,
    show: Callable[[str], Awaitable[None]],
) -> AsyncIterator[OAuthClientProvider]:
    """Yield the authentication that logs in on request; listens for the browser that comes back."""
    returned: asyncio.Queue[AuthorizationCodeResult] = asyncio.Queue(1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer_browser(reader, writer, returned)

    port = server.oauth.redirect_port if server.oauth else 0
    listener = await asyncio.start_server(answer, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES)
    try:
        redirect = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/callback"
        file = await asyncio.to_thread(TokenFile, ctx, name, server)
        file.forget_registration(redirect)
        provider = OAuthClientProvider(
            server.url or "", _client_metadata(server.oauth, redirect), file, show, returned.get
        )
        yield provider
        await file.keep_metadata(provider.context.oauth_metadata)
    finally:
        listener.close()
        await listener.wait_closed()


async def _answer_browser(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    returned: asyncio.Queue[AuthorizationCodeResult],
) -> None:
    """Take the code from the browser that comes back (RFC 8252, section 7.3)."""
    try:
        async with asyncio.timeout(10):
            line = await reader.readline()
            method, target, *_ = [*line.decode("ascii", "replace").split(" "), "", ""]
            address = urlsplit(target)
            given = {key: values[0] for key, values in parse_qs(address.query).items()}
            is_ours = method == "GET" and address.path == "/callback" and "state" in given
            status, page = b"404 Not Found", b"Nothing is here."
            if is_ours and not returned.full():
                status, page = b"200 OK", _PAGE if "code" in given else b"The login was refused."
                returned.put_nowait(
                    AuthorizationCodeResult(
                        code=given.get("code", ""), state=given["state"], iss=given.get("iss")
                    )
                )
            head = b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            writer.write(head + f"Content-Length: {len(page)}\r\n\r\n".encode() + page)
            await writer.drain()
    except (OSError, ValueError, TimeoutError):
        return
    finally:
        writer.close()


def _client_metadata(oauth: OAuthSettings | None, redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="nanobot",
        redirect_uris=[AnyUrl(redirect)],
        scope=oauth.scope if oauth else None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{uuid4().hex}.tmp")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
