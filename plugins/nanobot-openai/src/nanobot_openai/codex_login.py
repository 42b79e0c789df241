"""Sign-in with a ChatGPT account.

The flows, addresses and names are those of OpenAI's command line Codex, whose source is public.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from nanobot_core import ProviderError, ProviderLogin, Tokens, login_command, token_file
from nanobot_openai.signin import (
    DEFAULT_INTERVAL_S,
    LOGIN_LIMIT_S,
    Pending,
    Proof,
    check_storable,
    code_from_browser,
    forget,
    keep,
    poll,
)
from nanobot_openai.signin_http import (
    AuthAnswer,
    AuthServer,
    auth_server,
    seconds_of,
    text_of,
    token_of,
)

if TYPE_CHECKING:
    from nanobot_core import Clock, LoginFlow, LoginPrompt, PluginContext, ProviderSpec
    from nanobot_openai.signin_settings import CodexSettings

CLIENT_ID: Final = "app_EMoamEEZ73f0CkXaXp7hrann"
"""The public client of Codex; only its redirects and scopes are accepted."""
ORIGINATOR: Final = "nanobot"
ACCOUNT_ID: Final = "account_id"
"""Key in `Tokens.details` of the account that requests name."""
_SCOPE: Final = "openid profile email offline_access"
_CALLBACK: Final = "/auth/callback"
_AUTH_CLAIMS: Final = "https://api.openai.com/auth"
_PROFILE_CLAIMS: Final = "https://api.openai.com/profile"
_PENDING: Final = (403, 404)


class CodexLogin(ProviderLogin):
    """Signs in to ChatGPT, in a browser or with a code."""

    def __init__(self, ctx: PluginContext, spec: ProviderSpec, settings: CodexSettings) -> None:
        self._ctx = ctx
        self._spec = spec
        self._settings = settings
        self._server = auth_server(ctx, spec, settings, "auth_base")
        self._file = token_file(ctx.data_dir, spec.name)

    async def log_in(self, prompt: LoginPrompt, flow: LoginFlow | None) -> str:
        """Sign in; see `ProviderLogin.log_in`. The browser is the default."""
        await check_storable(self._file)
        if flow == "device":
            answer = await self._by_code(prompt)
        else:
            answer = await self._in_browser(prompt)
        tokens = tokens_of(self._server, answer, self._ctx.clock)
        await keep(self._ctx, self._spec.name, self._file, tokens)
        return tokens.account

    async def log_out(self) -> str:
        """Remove the tokens and revoke them; see `ProviderLogin.log_out`."""
        tokens = await forget(self._file)
        if tokens is None or not tokens.refresh:
            return ""
        body = {"token": tokens.refresh, "token_type_hint": "refresh_token"}
        try:
            answer = await self._server.post_json("/oauth/revoke", {**body, "client_id": CLIENT_ID})
        except ProviderError as error:
            return f"the tokens are removed here, but could not be revoked: {error.reason}"
        if answer.status != 200:
            return f"the tokens are removed here, but not revoked ({answer.summary})"
        return ""

    async def _in_browser(self, prompt: LoginPrompt) -> AuthAnswer:
        proof = Proof()

        def address(redirect: str) -> str:
            query = {
                "response_type": "code",
                "client_id": CLIENT_ID,
                "redirect_uri": redirect,
                "scope": _SCOPE,
                "code_challenge": proof.challenge,
                "code_challenge_method": "S256",
                "id_token_add_organizations": "true",
                "codex_cli_simplified_flow": "true",
                "state": proof.state,
                "originator": ORIGINATOR,
            }
            return f"{self._server.base}/oauth/authorize?{urlencode(query, quote_via=quote)}"

        code, redirect = await code_from_browser(
            self._server,
            prompt,
            proof,
            path=_CALLBACK,
            ports=self._settings.callback_ports,
            address=address,
        )
        return await self._exchange(code, redirect, proof.verifier)

    async def _by_code(self, prompt: LoginPrompt) -> AuthAnswer:
        server = self._server
        begun = await server.post_json(
            "/api/accounts/deviceauth/usercode", {"client_id": CLIENT_ID}
        )
        code = begun.shown("user_code") or begun.shown("usercode")
        device = begun.text("device_auth_id")
        if begun.status == 404:
            reason = "the account's workspace does not allow codes; sign in with --browser"
            raise server.failure(reason)
        if begun.status != 200 or not code or not device:
            raise server.unusable(begun)
        page = f"{server.base}/codex/device"
        await prompt.show(page, code=code, limit_s=LOGIN_LIMIT_S)

        async def ask() -> AuthAnswer | Pending:
            answer = await server.post_json(
                "/api/accounts/deviceauth/token", {"device_auth_id": device, "user_code": code}
            )
            if answer.status in _PENDING:
                return Pending()
            if answer.status != 200:
                raise server.failure(f"the code was refused ({answer.summary}); try again")
            return answer

        allowed = await poll(
            server,
            ask,
            clock=self._ctx.clock,
            prompt=prompt,
            interval_s=begun.seconds("interval") or DEFAULT_INTERVAL_S,
            limit_s=LOGIN_LIMIT_S,
        )
        # In this flow the service itself makes the proof.
        verifier = allowed.text("code_verifier")
        redirect = f"{server.base}/deviceauth/callback"
        return await self._exchange(allowed.text("authorization_code"), redirect, verifier)

    async def _exchange(self, code: str, redirect: str, verifier: str) -> AuthAnswer:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": CLIENT_ID,
            "code_verifier": verifier,
        }
        answer = await self._server.post_form("/oauth/token", form)
        if answer.status != 200:
            raise self._server.failure(f"the code was not accepted ({answer.summary}); try again")
        return answer


async def renew(server: AuthServer, clock: Clock, tokens: Tokens) -> Tokens:
    """Exchange a refresh token for new tokens, after which the old one is no longer accepted.

    Raises:
        AuthenticationFailed: the service has ended the sign-in.
        ProviderError: it may succeed later.
    """
    body = {
        "client_id": CLIENT_ID,
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh,
        "scope": "openid profile email",
    }
    answer = await server.post_json("/oauth/token", body)
    if 400 <= answer.status < 500:
        remedy = f"run {login_command(server.provider)}"
        raise server.failure(f"ChatGPT has ended the sign-in ({answer.summary}); {remedy}")
    return tokens_of(server, answer, clock, tokens)


def tokens_of(
    server: AuthServer, answer: AuthAnswer, clock: Clock, former: Tokens | None = None
) -> Tokens:
    """Return the tokens in an answer; a renewal may leave out those that stay the same.

    Raises:
        ProviderProtocolError: there are none.
        AuthenticationFailed: the account cannot use the service.
    """
    access = token_of(answer.payload, "access_token")
    refresh = answer.text("refresh_token")
    if answer.status != 200 or not access or not (refresh or former):
        raise server.unusable(answer)
    claims = {**read_claims(access), **read_claims(answer.text("id_token"))}
    ends_at = seconds_of(read_claims(access), "exp")
    lasts_s = answer.seconds("expires_in")
    if ends_at is None and lasts_s is not None:
        ends_at = clock.now().timestamp() + lasts_s
    found = Tokens(
        access=access,
        refresh=refresh or (former.refresh if former else ""),
        expires_at=ends_at,
        account=_account(claims) or (former.account if former else ""),
        details={ACCOUNT_ID: token_of(_object(claims, _AUTH_CLAIMS), "chatgpt_account_id")},
    )
    if not found.details[ACCOUNT_ID]:
        if former is None:
            raise server.failure("the answer names no ChatGPT account; it needs a plan with Codex")
        return replace(found, details=former.details)
    return found


def read_claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON Web Token; without checking its signature.

    It comes from the service itself over TLS, which OpenID Connect Core accepts instead
    (section 3.1.3.7), and it decides nothing but which account requests name.
    """
    with suppress(ValueError, RecursionError):
        payload = token.split(".")[1] if token.count(".") == 2 else ""
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if isinstance(claims, dict):
            return claims
    return {}


def _account(claims: Mapping[str, Any]) -> str:
    return text_of(claims, "email") or text_of(_object(claims, _PROFILE_CLAIMS), "email")


def _object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = claims.get(name)
    return found if isinstance(found, dict) else {}
