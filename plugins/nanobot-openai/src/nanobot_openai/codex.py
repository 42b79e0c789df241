"""The models of a ChatGPT account: the Responses API of ChatGPT's backend, as Codex uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from nanobot_core import (
    ChatRequest,
    JsonObject,
    LLMProvider,
    LLMResponse,
    ModelInfo,
    Tokens,
    TokenSource,
    login_command,
    token_file,
)
from nanobot_core.providers import count_of
from nanobot_openai.codex_login import ACCOUNT_ID, ORIGINATOR, renew
from nanobot_openai.responses import ResponsesProvider
from nanobot_openai.responses_request import ResponsesWire
from nanobot_openai.signin_http import auth_server
from nanobot_openai.signin_provider import SignedInFailures, SignedInProvider, account_endpoint
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSpec
    from nanobot_core.providers import Endpoint, FailureReader
    from nanobot_openai.signin_settings import CodexSettings

_REFUSED_FIELDS: Final = ("max_output_tokens", "temperature", "top_p", "user", "metadata")
"""Fields of the Responses API that this backend answers with a status of 400."""
_INSTRUCTIONS: Final = "You are a helpful assistant."
"""The backend refuses requests without instructions."""
_HEADERS: Final[Mapping[str, str]] = {
    "accept": "text/event-stream",
    "openai-beta": "responses=experimental",
    "originator": ORIGINATOR,
}


class CodexWire(ResponsesWire):
    """The form of requests that the backend accepts: streamed, with instructions, not stored."""

    def body(self, request: ChatRequest, *, stream: bool) -> JsonObject:
        """Return the body of `request`; the limit of the answer is not sent."""
        body = super().body(request, stream=True)
        for name in _REFUSED_FIELDS:
            body.pop(name, None)
        body.setdefault("instructions", _INSTRUCTIONS)
        body |= {"stream": True, "store": False}
        return body


class CodexAccount(ResponsesProvider):
    """The backend for one account.

    Args:
        wire: the form of requests and answers, for the account.
        source: gives the tokens.
    """

    # The service answers with a form of the list that a client of this version can read.
    models_path: ClassVar[str | None] = "/models?client_version=1.0.0"

    def __init__(
        self,
        spec: ProviderSpec,
        endpoint: Endpoint,
        failures: FailureReader,
        wire: ResponsesWire,
        source: TokenSource,
    ) -> None:
        super().__init__(spec, endpoint, failures, wire)
        self._source = source

    async def headers(self, request: ChatRequest | None) -> Mapping[str, str]:
        """Return the token and the account."""
        tokens = await self._source.current()
        account = tokens.details.get(ACCOUNT_ID, "")
        return {
            **_HEADERS,
            **self.endpoint.headers,
            "authorization": f"Bearer {tokens.access}",
            "chatgpt-account-id": account,
        }

    def read_models(self, payload: object) -> Sequence[ModelInfo]:
        """Return the models that the service shows to people."""
        found = payload.get("models") if isinstance(payload, dict) else None
        rows = [row for row in found or () if isinstance(row, dict)]
        return [
            ModelInfo(name=name, window_tokens=count_of(row, "context_window") or None)
            for row in rows
            if isinstance(name := row.get("slug"), str) and row.get("visibility") != "hide"
        ]

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call; the backend only streams."""
        return await LLMProvider.chat(self, request)


def build_codex(
    ctx: PluginContext, spec: ProviderSpec, settings: CodexSettings
) -> SignedInProvider:
    """Return the provider for the ChatGPT account that is signed in.

    Raises:
        ConfigError: an address or a header cannot be used.
    """
    server = auth_server(ctx, spec, settings, "auth_base")
    endpoint = account_endpoint(ctx, spec, settings, ResponsesProvider.path)
    source = TokenSource(
        spec.name,
        token_file(ctx.data_dir, spec.name),
        partial(renew, server, ctx.clock),
        clock=ctx.clock,
        conceal=partial(ctx.conceal, name=spec.name),
    )
    failures = SignedInFailures(
        provider=spec.name,
        key_hint=f"run {login_command(spec.name)}",
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=WORDS,
        source=source,
    )

    def build(tokens: Tokens) -> CodexAccount:
        wire = CodexWire(
            spec.name, tokens.details.get(ACCOUNT_ID, ""), summary=settings.reasoning_summary
        )
        return CodexAccount(spec, endpoint, failures, wire, source)

    return SignedInProvider(spec.name, source, build, timeout_s=settings.timeout_s)
