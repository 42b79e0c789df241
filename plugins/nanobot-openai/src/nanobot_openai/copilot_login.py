"""Sign-in to GitHub Copilot.

GitHub documents the flow with a code. The rest, the exchange of GitHub's token for one of Copilot,
is undocumented; it is what the public extensions of editors do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nanobot_core import ConfigError, ProviderLogin, Tokens, login_command, token_file
from nanobot_openai.signin import (
    DEFAULT_INTERVAL_S,
    LOGIN_LIMIT_S,
    Pending,
    check_storable,
    forget,
    keep,
    poll,
)
from nanobot_openai.signin_http import AuthAnswer, AuthServer, auth_server, is_https, token_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot_core import Clock, LoginFlow, LoginPrompt, PluginContext, ProviderSpec
    from nanobot_openai.signin_settings import CopilotSettings

CLIENT_ID: Final = "Iv1.b507a08c87ecfe98"
"""The public client of Copilot's editor extensions."""
API_BASE: Final = "api_base"
"""Key in `Tokens.details` of the address for requests of this account."""
EDITOR_HEADERS: Final[Mapping[str, str]] = {
    "editor-version": "nanobot/0.1",
    "editor-plugin-version": "nanobot-openai/0.1",
}
"""The service refuses requests without them."""
_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER_S: Final = 5.0
_REFRESH_MARGIN_S: Final = 60.0
_TOKEN_PATH: Final = "/copilot_internal/v2/token"  # noqa: S105 - a path
_ENDED: Final = {
    "expired_token": "the code has expired; try again",
    "access_denied": "the access was refused",
    "device_flow_disabled": "this server does not allow codes",
}


class CopilotLogin(ProviderLogin):
    """Signs in to GitHub with a code, and checks that the account has Copilot."""

    def __init__(self, ctx: PluginContext, spec: ProviderSpec, settings: CopilotSettings) -> None:
        self._ctx = ctx
        self._spec = spec
        self._server = auth_server(ctx, spec, settings, "github_base")
        self._api = auth_server(ctx, spec, settings, "github_api")
        self._file = token_file(ctx.data_dir, spec.name)

    async def log_in(self, prompt: LoginPrompt, flow: LoginFlow | None) -> str:
        """Sign in; see `ProviderLogin.log_in`. There is only the flow with a code."""
        if flow == "browser":
            msg = "GitHub Copilot has no sign-in in a browser; leave out --browser"
            raise ConfigError(msg)
        await check_storable(self._file)
        token = await self._by_code(prompt)
        self._ctx.conceal((token,), name=self._spec.name)
        account = await self._api.get("/user", {"authorization": f"token {token}"})
        first = Tokens(access="", refresh=token, account=account.text("login"))
        tokens = await renew(self._api, self._ctx.clock, first)
        await keep(self._ctx, self._spec.name, self._file, tokens)
        return tokens.account

    async def log_out(self) -> str:
        """Remove the tokens; only the person can withdraw the access, see `ProviderLogin`."""
        await forget(self._file)
        return (
            "GitHub lets only you withdraw the access: "
            f"open {self._server.base}/settings/applications"
        )

    async def _by_code(self, prompt: LoginPrompt) -> str:
        """Return GitHub's token."""
        server = self._server
        form = {"client_id": CLIENT_ID, "scope": "read:user"}
        begun = await server.post_form("/login/device/code", form)
        code, device = begun.shown("user_code"), begun.text("device_code")
        page = begun.shown("verification_uri")
        if begun.error:
            raise server.failure(_ENDED.get(begun.error, f"refused ({begun.summary})"))
        if begun.status != 200 or not (code and device and is_https(page, server.base)):
            raise server.unusable(begun)
        limit_s = min(begun.seconds("expires_in") or LOGIN_LIMIT_S, LOGIN_LIMIT_S)
        await prompt.show(page, code=code, limit_s=limit_s)
        interval_s = begun.seconds("interval") or DEFAULT_INTERVAL_S

        async def ask() -> AuthAnswer | Pending:
            nonlocal interval_s
            answer = await server.post_form(
                "/login/oauth/access_token",
                {"client_id": CLIENT_ID, "device_code": device, "grant_type": _GRANT},
            )
            if answer.error == "slow_down":
                interval_s = max(answer.seconds("interval") or 0.0, interval_s + _SLOWER_S)
                return Pending(interval_s)
            if answer.error == "authorization_pending":
                return Pending()
            if answer.error:
                raise server.failure(_ENDED.get(answer.error, f"refused ({answer.summary})"))
            return answer

        answer = await poll(
            server,
            ask,
            clock=self._ctx.clock,
            prompt=prompt,
            interval_s=interval_s,
            limit_s=limit_s,
        )
        token = token_of(answer.payload, "access_token")
        if answer.status != 200 or not token:
            raise server.unusable(answer)
        return token


async def renew(api: AuthServer, clock: Clock, tokens: Tokens) -> Tokens:
    """Exchange GitHub's token, which stays the same, for one of Copilot of about 25 minutes.

    Raises:
        AuthenticationFailed: GitHub does not accept its token, or the account has no Copilot.
        ProviderError: it may succeed later.
    """
    headers = {**EDITOR_HEADERS, "authorization": f"token {tokens.refresh}"}
    answer = await api.get(_TOKEN_PATH, headers)
    if answer.status == 401:
        remedy = f"run {login_command(api.provider)}"
        raise api.failure(f"GitHub has ended the sign-in; {remedy}")
    if answer.status in (403, 404):
        raise api.failure(f"the account '{tokens.account}' has no access to Copilot")
    access = token_of(answer.payload, "token")
    if answer.status != 200 or not access:
        raise api.unusable(answer)
    refresh_s, ends_at = answer.seconds("refresh_in"), answer.seconds("expires_at")
    if refresh_s is not None:
        # Unlike the instant, it does not depend on the clock of this machine.
        ends_at = clock.now().timestamp() + refresh_s + _REFRESH_MARGIN_S
    endpoints = answer.payload.get("endpoints")
    base = endpoints.get("api") if isinstance(endpoints, dict) else None
    details = {}
    if isinstance(base, str) and is_https(base, api.base):
        details[API_BASE] = base.rstrip("/")
    return Tokens(
        access=access,
        refresh=tokens.refresh,
        expires_at=ends_at,
        account=tokens.account,
        details=details,
    )
