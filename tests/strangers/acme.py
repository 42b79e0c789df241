"""A provider for Acme, an invented model service with a protocol of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nanobot_core import (
    ChatRequest,
    FinishReason,
    JsonObject,
    LLMResponse,
    Message,
    PluginContext,
    ProviderProtocolError,
    ProviderSettings,
    ProviderSpec,
    StreamEvent,
    Usage,
    on,
)
from nanobot_core.providers import (
    AnswerBuilder,
    AnswerReader,
    FailureReader,
    FailureWords,
    HTTPProvider,
    count_of,
    key_hint,
    resolve_endpoint,
)

FINISH_REASONS: dict[str, FinishReason] = {"limit": "length", "filter": "content_filter"}


@on.contribute_providers
def contribute_providers(ctx: PluginContext) -> Iterable[ProviderSpec]:
    yield ProviderSpec(
        name="acme",
        factory=f"{__name__}:make_provider",
        keywords=("acme-",),
        api_key_env=("ACME_API_KEY",),
        default_base="https://models.acme.example/v1",
    )


def make_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> AcmeProvider:
    endpoint = resolve_endpoint(
        ctx, spec, settings, path=AcmeProvider.path, key_header="x-acme-key"
    )
    failures = FailureReader(
        provider=spec.name,
        key_hint=key_hint(spec),
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=FailureWords(too_long=frozenset({"too_many_words"})),
    )
    return AcmeProvider(spec, endpoint, failures)


class AcmeProvider(HTTPProvider):
    """Posts to ``/answers``; everything but the two forms is inherited."""

    path = "/answers"

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        body: JsonObject = {
            "model": request.model,
            "turns": list(_turns(request.messages)),
            "live": stream,
        }
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "about": tool.description, "input": tool.parameters}
                for tool in request.tools
            ]
            body["call"] = request.tool_choice
        if request.max_tokens is not None:
            body["limit"] = request.max_tokens
        if request.temperature is not None:
            body["warmth"] = request.temperature
        return json.dumps({**body, **request.extra}).encode()

    def reader(self) -> AcmeReader:
        return AcmeReader(self.name)


def _turns(messages: Sequence[Message]) -> Iterator[JsonObject]:
    for message in messages:
        turn: JsonObject = {"by": message.role, "text": message.text}
        if message.tool_calls:
            turn["calls"] = [
                {"ref": call.id, "tool": call.name, "input": call.arguments}
                for call in message.tool_calls
            ]
        if message.role == "tool":
            turn |= {"ref": message.tool_call_id, "failed": message.is_error}
        yield turn


class AcmeReader(AnswerReader):
    """Reads ``{"add": …}`` events and the last, ``{"end": …}``, or the whole answer."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._builder = AnswerBuilder(provider)
        self._end: dict[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        return self._end is not None

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        match payload:
            case {"add": "thought", "value": str(text)} if text:
                yield self._builder.reasoning(text)
            case {"add": "text", "value": str(text)} if text:
                yield self._builder.text(text)
            case {"add": "call", "ref": str(ref), "tool": str(name)}:
                yield from self._call(ref, name)
            case {"add": "input", "value": str(text)} if self._builder.call_count:
                self._builder.add_to_call(self._builder.call_count - 1, arguments=text)
            case {"end": dict(end)}:
                self._end = end
            case {"answer": dict(answer)}:
                self._end = payload
                yield from self._whole(answer)

    def response(self) -> LLMResponse:
        if self._end is None:
            raise ProviderProtocolError(self._provider, "its answer has no end")
        tokens = self._end.get("tokens")
        return self._builder.response(
            FINISH_REASONS.get(str(self._end.get("why")), "stop"),
            Usage(
                prompt_tokens=count_of(tokens, "in"),
                completion_tokens=count_of(tokens, "out"),
                cached_tokens=count_of(tokens, "cached"),
            ),
        )

    def _whole(self, answer: dict[str, Any]) -> Iterator[StreamEvent]:
        for name in ("thought", "text"):
            yield from self.feed({"add": name, "value": answer.get(name)})
        for call in answer.get("calls") or ():
            yield from self.feed({"add": "call", **call})
            yield from self.feed({"add": "input", "value": json.dumps(call.get("input"))})

    def _call(self, ref: str, name: str) -> Iterator[StreamEvent]:
        delta = self._builder.add_to_call(self._builder.open_call(), call_id=ref, name=name)
        if delta is not None:
            yield delta
