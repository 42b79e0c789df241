"""SignedInProvider: calls of a service that people sign in to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core import (
    AuthenticationFailed,
    ChatRequest,
    LLMProvider,
    LLMResponse,
    ModelInfo,
    ProviderError,
    StreamEvent,
    Tokens,
    TokenSource,
)
from nanobot_core.providers import FailureReader, resolve_endpoint

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec
    from nanobot_core.providers import Endpoint, HTTPProvider

_LONGEST_CALL = 10
"""As in `HTTPProvider`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInFailures(FailureReader):
    """Reads errors of a service, and leaves out the tokens.

    Attributes:
        source: gives the tokens.
    """

    source: TokenSource

    def clean(self, text: str) -> str:
        """Return `text` on one line, without secrets, of bounded length."""
        for secret in self.source.secrets:
            text = text.replace(secret, "[secret]")
        return FailureReader.clean(self, text)  # a class with slots has no `super()`


class SignedInProvider(LLMProvider):
    """A provider whose requests depend on the account that is signed in.

    An access token that the service does not accept is renewed once: the error of that call can be
    retried, and the retry has the new token.

    Args:
        name: name of the provider.
        source: gives the tokens.
        build: returns the provider for the account of some tokens; called again if the account or
            its address changes.
        timeout_s: seconds that the service may send nothing.
    """

    def __init__(
        self,
        name: str,
        source: TokenSource,
        build: Callable[[Tokens], HTTPProvider],
        *,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.longest_call_s = _LONGEST_CALL * timeout_s
        self._source = source
        self._build = build
        self._providers: dict[tuple[tuple[str, str], ...], HTTPProvider] = {}

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one streamed call; see `LLMProvider.chat_stream`."""
        tokens = await self._source.current()
        try:
            async with aclosing(self._provider(tokens).chat_stream(request)) as events:  # type: ignore[type-var]  # a generator
                async for event in events:
                    yield event
        except AuthenticationFailed as error:
            raise self._refused(error, tokens) from error

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call that is answered whole; see `LLMProvider.chat`."""
        tokens = await self._source.current()
        try:
            return await self._provider(tokens).chat(request)
        except AuthenticationFailed as error:
            raise self._refused(error, tokens) from error

    async def list_models(self) -> Sequence[ModelInfo]:
        """Return the models that the account can use; see `LLMProvider.list_models`."""
        tokens = await self._source.current()
        try:
            return await self._provider(tokens).list_models()
        except AuthenticationFailed as error:
            raise self._refused(error, tokens) from error

    async def warm_up(self) -> None:
        """Renew the tokens if they expire soon, and prepare connections."""
        with suppress(ProviderError):  # the call itself reports it
            await self._provider(await self._source.current()).warm_up()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        for provider in self._providers.values():
            await provider.aclose()

    def _provider(self, tokens: Tokens) -> HTTPProvider:
        key = tuple(sorted(tokens.details.items()))
        if key not in self._providers:
            self._providers[key] = self._build(tokens)
        return self._providers[key]

    def _refused(self, error: AuthenticationFailed, tokens: Tokens) -> AuthenticationFailed:
        """Return the error of a call, which can be retried if another token may help."""
        may_help = error.status == 401 and self._source.reject(tokens)
        return AuthenticationFailed(
            self.name, error.reason, status=error.status, retryable=may_help or None
        )


def account_endpoint(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings, path: str
) -> Endpoint:
    """Return where requests go; no version is added to the address, which has none.

    Raises:
        ConfigError: the address or a header cannot be used.
    """
    base = (settings.api_base or spec.default_base or "").rstrip("/").removesuffix(path) + path
    there = settings.model_copy(update={"api_base": base, "api_key": None})
    return resolve_endpoint(ctx, spec, there, path=path)
