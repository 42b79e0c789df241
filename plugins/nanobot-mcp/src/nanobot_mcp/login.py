"""OAuth login to remote servers: the SDK's flow, with our files and our loopback address."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from nanobot_core import NanobotError, PrivateFile, PrivateFileRefused, finish_in_thread
from nanobot_core.net import redirect_listener
from nanobot_mcp.link import open_link
from nanobot_mcp.listing import read_offers
from nanobot_mcp.trouble import Trouble, describe_failure

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_mcp.connection import ConnectionPorts
    from nanobot_mcp.settings import OAuthSettings, ServerSettings

LOGIN_LIMIT_S = 300.0
_SECRETS = ("access_token", "refresh_token", "id_token", "client_secret")
_EARLY_S = 30.0
"""Seconds before its expiry from which a token is renewed."""


class LoginNeeded(NanobotError):
    """The stored tokens are no longer valid."""

    def __init__(self, server: str) -> None:
        self.server: str = server
        super().__init__(f"it requires a new login; run nanobot mcp login {server}")


class TokenFile:
    """Tokens and registration of one server, in a file that only the user can read.

    It implements the SDK's ``TokenStorage``: the get and set methods.

    Args:
        is_replaced: the login that follows replaces the file, so it may be one that is refused.

    Raises:
        PrivateFileRefused: the file is damaged, or other accounts have access to it.
    """

    def __init__(
        self, ctx: PluginContext, name: str, server: ServerSettings, *, is_replaced: bool = False
    ) -> None:
        key = hashlib.sha256(f"{name}\0{server.url}".encode()).hexdigest()[:16]
        self._file = PrivateFile(ctx.data_dir / "oauth" / f"{key}.json")
        self._ctx = ctx
        self._clock = ctx.clock
        self._server = server
        self._record: dict[str, Any] = {}
        try:
            self._record = self._file.read() or {}
        except PrivateFileRefused:
            if not is_replaced:
                raise
        self._conceal()

    @property
    def has_tokens(self) -> bool:
        """Whether a login has succeeded before."""
        return "tokens" in self._record

    @property
    def metadata(self) -> OAuthMetadata | None:
        """Metadata of the authorization server from the login, which renewing tokens requires."""
        try:
            return OAuthMetadata.model_validate(self._record.get("metadata"))
        except ValidationError:
            return None

    def forget_registration(self, redirect: str) -> None:
        """Remove the tokens, and the registration if it does not allow the address `redirect`."""
        known = self._record.get("client_info", {}).get("redirect_uris") or []
        if redirect not in known:
            self._record.pop("client_info", None)
        self._record.pop("tokens", None)

    async def keep_metadata(self, metadata: OAuthMetadata | None) -> None:
        """Store metadata of the authorization server."""
        if metadata is not None:
            await self._keep("metadata", metadata.model_dump(mode="json", exclude_none=True))

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens. An expired access token is empty, so that the SDK renews it."""
        try:
            tokens = OAuthToken.model_validate(self._record.get("tokens"))
        except ValidationError:
            return None
        ends_at = self._record.get("ends_at")
        if isinstance(ends_at, int | float) and ends_at - _EARLY_S < self._clock.now().timestamp():
            return tokens.model_copy(update={"access_token": ""})
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store `tokens` and their expiry."""
        lasts_s = tokens.expires_in
        self._record.pop("ends_at", None)
        if lasts_s is not None:
            self._record["ends_at"] = self._clock.now().timestamp() + lasts_s
        await self._keep("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the configured client, otherwise the one registered at the login."""
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

    def _conceal(self) -> None:
        parts = (self._record.get(key) for key in ("tokens", "client_info"))
        secrets = [part.get(key) for part in parts if isinstance(part, dict) for key in _SECRETS]
        found = [secret for secret in secrets if isinstance(secret, str)]
        self._ctx.conceal(found, name=f"login to {self._server.url}")

    async def _keep(self, key: str, value: JsonObject) -> None:
        self._record[key] = value
        self._conceal()
        await finish_in_thread(partial(self._file.replace, self._record))


def stored_auth(
    ctx: PluginContext, name: str, server: ServerSettings
) -> OAuthClientProvider | None:
    """Return the authentication with stored tokens, or ``None`` without a login. Blocks.

    It renews tokens. If that requires a new login, requests fail.
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
    """Connect with a new login, if the server requires one, and store its tokens.

    Args:
        show: called with the address that the user must open in a browser.

    Returns:
        The problem, or an empty text if the login succeeded.
    """
    trouble = Trouble()
    try:
        with anyio.fail_after(LOGIN_LIMIT_S):
            async with (
                _new_auth(ports.ctx, name, server, show) as auth,
                open_link(server, replace(ports, make_auth=lambda: auth), trouble) as link,
            ):
                # Some servers require a login only for requests other than the handshake.
                await read_offers(link.client)
    except Exception as error:  # noqa: BLE001 - isolation point: the SDK and its transports
        return describe_failure(error)
    return ""


async def _no_browser() -> AuthorizationCodeResult:
    """Stand in for the browser if a login must not start."""
    raise AssertionError


@asynccontextmanager
async def _new_auth(
    ctx: PluginContext,
    name: str,
    server: ServerSettings,
    show: Callable[[str], Awaitable[None]],
) -> AsyncIterator[OAuthClientProvider]:
    """Yield the authentication that logs in, and listen for the browser's redirect."""
    port = server.oauth.redirect_port if server.oauth else 0
    async with redirect_listener(ports=(port,)) as listener:

        async def returned() -> AuthorizationCodeResult:
            query = await listener.query()  # the SDK checks its state
            return AuthorizationCodeResult(
                code=query.get("code", ""), state=query["state"], iss=query.get("iss")
            )

        redirect = f"http://127.0.0.1:{listener.port}/callback"
        opened = partial(TokenFile, ctx, name, server, is_replaced=True)
        file = await asyncio.to_thread(opened)
        file.forget_registration(redirect)
        provider = OAuthClientProvider(
            server.url or "", _client_metadata(server.oauth, redirect), file, show, returned
        )
        yield provider
        await file.keep_metadata(provider.context.oauth_metadata)


def _client_metadata(oauth: OAuthSettings | None, redirect: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="nanobot",
        redirect_uris=[AnyUrl(redirect)],
        scope=oauth.scope if oauth else None,
    )
