"""The provider: chat completions of an OpenAI-compatible service."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core import ChatRequest
from nanobot_core.providers import (
    BodyEncoder,
    Endpoint,
    FailureReader,
    HTTPProvider,
    key_hint,
    resolve_endpoint,
)
from nanobot_openai.answer import CompletionReader
from nanobot_openai.dialect import dialect_of
from nanobot_openai.mapping import MessageMapper, body_of
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec


class OpenAIProvider(HTTPProvider):
    """An OpenAI-compatible service.

    Args:
        spec: the vendor's row of the table.
        alternating_roles: see `ProviderSettings`.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        endpoint: Endpoint,
        failures: FailureReader,
        *,
        alternating_roles: bool = False,
    ) -> None:
        super().__init__(spec, endpoint, failures)
        self._dialect = dialect_of(spec.name)
        if alternating_roles:
            self._dialect = replace(self._dialect, alternating=True)
        self._encoder = BodyEncoder(lambda tool: tool.to_schema())
        self._mapper = MessageMapper(spec.name, self._dialect)

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of ``POST /chat/completions``."""
        tools = self._encoder.tools(request.tools)
        body = body_of(request, spec=self.spec, mapper=self._mapper, stream=stream, tools=tools)
        return self._encoder.encode(body)

    def reader(self) -> CompletionReader:
        """Return a reader of chat completions."""
        return CompletionReader(self.name, self._dialect.cost_field)


def build_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> OpenAIProvider:
    """Return the provider that `spec` describes, as `settings` and the environment set it up.

    Raises:
        ConfigError: the key or the base URL is missing, or a value cannot be sent.
    """
    endpoint = resolve_endpoint(ctx, spec, settings)
    failures = FailureReader(
        provider=spec.name,
        key_hint=key_hint(spec),
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=WORDS,
    )
    return OpenAIProvider(spec, endpoint, failures, alternating_roles=settings.alternating_roles)
