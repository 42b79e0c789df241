"""The models of a GitHub Copilot subscription: chat completions with Copilot's headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from nanobot_core import ChatRequest, ImageBlock, Tokens, TokenSource, login_command, token_file
from nanobot_openai.copilot_login import API_BASE, EDITOR_HEADERS, renew
from nanobot_openai.provider import OpenAIProvider
from nanobot_openai.signin_http import auth_server
from nanobot_openai.signin_provider import SignedInFailures, SignedInProvider, account_endpoint
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSpec
    from nanobot_core.providers import Endpoint, FailureReader
    from nanobot_openai.signin_settings import CopilotSettings

_EARLY_S: Final = 120.0
_HEADERS: Final[Mapping[str, str]] = {
    **EDITOR_HEADERS,
    # The service knows a list of these and refuses others.
    "copilot-integration-id": "vscode-chat",
    "openai-intent": "conversation-panel",
}


class CopilotAccount(OpenAIProvider):
    """Copilot at the address of one account.

    Args:
        source: gives the tokens.
    """

    def __init__(
        self, spec: ProviderSpec, endpoint: Endpoint, failures: FailureReader, source: TokenSource
    ) -> None:
        super().__init__(spec, endpoint, failures)
        self._source = source

    async def headers(self, request: ChatRequest | None) -> Mapping[str, str]:
        """Return the token and the name of the program.

        For a call also who caused it, by which it is billed, and whether it has images.
        """
        tokens = await self._source.current()
        found = {**_HEADERS, **self.endpoint.headers, "authorization": f"Bearer {tokens.access}"}
        if request is not None:
            last = request.messages[-1].role if request.messages else "user"
            found["x-initiator"] = "user" if last == "user" else "agent"
            if _has_images(request):
                found["copilot-vision-request"] = "true"
        return found


def _has_images(request: ChatRequest) -> bool:
    return any(
        isinstance(block, ImageBlock)
        for message in request.messages
        if not isinstance(message.content, str)
        for block in message.content
    )


def build_copilot(
    ctx: PluginContext, spec: ProviderSpec, settings: CopilotSettings
) -> SignedInProvider:
    """Return the provider for the GitHub account that is signed in.

    Raises:
        ConfigError: an address or a header cannot be used.
    """
    api = auth_server(ctx, spec, settings, "github_api")
    endpoint = account_endpoint(ctx, spec, settings, OpenAIProvider.path)
    source = TokenSource(
        spec.name,
        token_file(ctx.data_dir, spec.name),
        partial(renew, api, ctx.clock),
        clock=ctx.clock,
        conceal=partial(ctx.conceal, name=spec.name),
        early_s=_EARLY_S,
    )
    failures = SignedInFailures(
        provider=spec.name,
        key_hint=f"run {login_command(spec.name)}",
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=WORDS,
        source=source,
    )

    def build(tokens: Tokens) -> CopilotAccount:
        own = tokens.details.get(API_BASE)
        there = endpoint if settings.api_base or not own else replace(endpoint, base=own)
        return CopilotAccount(spec, there, failures, source)

    return SignedInProvider(spec.name, source, build, timeout_s=settings.timeout_s)
