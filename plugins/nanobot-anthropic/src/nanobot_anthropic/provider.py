"""The provider: one attempt at a message, streamed or whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanobot_anthropic.answer import MessageReader
from nanobot_anthropic.mapping import HistoryMapper
from nanobot_anthropic.request import SentPrefixes, body_of, messages_of, tool_schema
from nanobot_core import Ability, ChatRequest, ModelInfo
from nanobot_core.providers import (
    AnswerReader,
    BodyEncoder,
    Endpoint,
    FailureReader,
    FailureWords,
    HTTPProvider,
    key_hint,
    resolve_endpoint,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec

_VERSION = "2023-06-01"
"""The version that every service behind this protocol knows; its successor removes fields only."""
_ABILITIES: tuple[tuple[str, Ability], ...] = (
    ("image_input", "images"),
    ("pdf_input", "documents"),
    ("structured_outputs", "json_schema"),
    ("thinking", "reasoning"),
)
_WORDS = FailureWords(
    too_long=frozenset({"request_too_large"}),
    # There is no code for it.
    too_long_sentences=(
        "prompt is too long",
        "exceed context limit",
        "exceeds the maximum number of tokens",
    ),
    no_credit=frozenset({"billing_error"}),
    no_credit_sentences=("credit balance is too low", "api usage limits", "spend limit"),
    reset_headers=(
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-output-tokens-reset",
    ),
)


class AnthropicProvider(HTTPProvider):
    """Anthropic's service, or another one that offers its Messages API."""

    path = "/messages"
    models_path = "/models?limit=1000"  # twenty without it

    def __init__(self, spec: ProviderSpec, endpoint: Endpoint, failures: FailureReader) -> None:
        super().__init__(spec, endpoint, failures)
        self._encoder = BodyEncoder(tool_schema)
        self._mapper = HistoryMapper(spec.name)
        self._prefixes = SentPrefixes()

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of `request`."""
        tools = self._encoder.tools(request.tools)
        turns = self._mapper.turns(request.messages)
        body = body_of(request, self.spec, tools, turns)
        if stream:
            body["stream"] = True
        marked = self.spec.prompt_cache
        messages = messages_of(body, turns, self._prefixes, is_marked=marked)
        return self._encoder.encode(body)[:-1] + b', "messages": %b}' % messages

    def reader(self) -> AnswerReader:
        """Return a reader for one message."""
        return MessageReader(self.name)

    async def headers(self, request: ChatRequest | None) -> Mapping[str, str]:
        """Return the version of the protocol, unless the settings name one."""
        if "anthropic-version" in self.endpoint.headers:
            return {}
        return {"anthropic-version": _VERSION}

    def read_models(self, payload: object) -> Sequence[ModelInfo]:
        """Return the models in the service's list, with their limits and abilities."""
        rows = payload.get("data") if isinstance(payload, dict) else None
        found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return [
            _model_info(row["id"], row)
            for row in found
            if isinstance(row.get("id"), str) and row.get("lifecycle") != "retired"
        ]


def build_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> AnthropicProvider:
    """Return the provider for `spec`, configured by `settings` and the environment.

    Raises:
        ConfigError: the key is missing, or a value cannot be sent.
    """
    endpoint = resolve_endpoint(
        ctx, spec, settings, path=AnthropicProvider.path, key_header="x-api-key"
    )
    failures = FailureReader(
        provider=spec.name,
        key_hint=key_hint(spec),
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=_WORDS,
    )
    return AnthropicProvider(spec, endpoint, failures)


def _model_info(name: str, row: dict[str, Any]) -> ModelInfo:
    known = row.get("capabilities")
    abilities: frozenset[Ability] | None = None
    if isinstance(known, dict):
        # All models call tools; the service lists no ability for it.
        listed: list[Ability] = [ours for key, ours in _ABILITIES if _has(known, key)]
        abilities = frozenset(["tools", *listed])
    return ModelInfo(
        name=name,
        window_tokens=_tokens(row.get("max_input_tokens")),
        max_answer_tokens=_tokens(row.get("max_tokens")),
        abilities=abilities,
    )


def _has(known: dict[str, Any], key: str) -> bool:
    ability = known.get(key)
    return isinstance(ability, dict) and ability.get("supported") is True


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
