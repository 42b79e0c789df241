"""The provider: chat completions of an OpenAI-compatible service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import ChatRequest, ModelInfo
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
from nanobot_openai.listing import model_list
from nanobot_openai.mapping import MessageMapper, body_of, render_tool
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec
    from nanobot_openai.dialect import Need
    from nanobot_openai.schema import SchemaRules


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
        self._needs: frozenset[Need] = frozenset({"alternate"} if alternating_roles else ())
        self._mapper = MessageMapper(spec.name)
        self._encoders: dict[tuple[SchemaRules, str], BodyEncoder] = {}
        """Form of tools to the encoder of requests with them."""

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of ``POST /chat/completions``."""
        dialect = dialect_of(self.name, request.model)
        if not self._needs <= dialect.needs:
            dialect = replace(dialect, needs=dialect.needs | self._needs)
        form = (dialect.schema, dialect.tool_name)
        if form not in self._encoders:
            self._encoders[form] = BodyEncoder(partial(render_tool, dialect=dialect))
        encoder = self._encoders[form]
        body = body_of(
            request,
            spec=self.spec,
            dialect=dialect,
            mapper=self._mapper,
            stream=stream,
            tools=encoder.tools(request.tools),
        )
        return encoder.encode(body)

    def reader(self) -> CompletionReader:
        """Return a reader of chat completions."""
        # The vendor's form of answers is the same for all its models.
        return CompletionReader(self.name, dialect_of(self.name, ""))

    def read_models(self, payload: object) -> Sequence[ModelInfo]:
        """Return the models in the service's list, with their windows if it reports them."""
        return model_list(payload)


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
