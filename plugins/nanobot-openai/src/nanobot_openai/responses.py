"""The provider for OpenAI's Responses API, and the choice between it and chat completions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from nanobot_core import ChatRequest, LLMProvider, LLMResponse, ModelInfo, StreamEvent
from nanobot_core.providers import (
    Endpoint,
    FailureReader,
    HTTPProvider,
    key_hint,
    resolve_endpoint,
)
from nanobot_openai.provider import OpenAIProvider
from nanobot_openai.responses_request import ResponsesWire
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from typing import Literal

    from nanobot_core import PluginContext, ProviderSpec
    from nanobot_openai.responses_answer import ResponsesReader
    from nanobot_openai.settings import OpenAISettings

_NO_OTHER_API = re.compile(r"codex|-pro(-\d|$)|deep-research|computer-use|gpt-daybreak")
"""Models that OpenAI serves only there, by its model pages and Python package in November 2026."""
_NO_TOOLS_IN_CHAT = re.compile(r"gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)(?!.*-chat)")
"""Models that OpenAI's chat completions refuse as soon as they reason and a request has tools.

Services with the same models may accept that, and may not have the other API.
"""
_OPENAI_HOST = re.compile(r"(.+\.)?api\.openai\.com|.+\.openai\.azure\.com")


class ResponsesProvider(HTTPProvider):
    """A service with the Responses API.

    Args:
        spec: the provider's row of the table.
        endpoint: where the service is.
        failures: turns what the service reports into errors.
        wire: the form of its requests and answers.
    """

    path: ClassVar[str] = "/responses"

    def __init__(
        self, spec: ProviderSpec, endpoint: Endpoint, failures: FailureReader, wire: ResponsesWire
    ) -> None:
        super().__init__(spec, endpoint, failures)
        self._wire = wire

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of ``POST /responses``."""
        return self._wire.encode(request, stream=stream)

    def reader(self) -> ResponsesReader:
        """Return a reader of responses."""
        return self._wire.reader(self.failures)


class OpenAIService(LLMProvider):
    """A service with both APIs: each request goes to the one that serves its model.

    Args:
        chat: the provider for chat completions.
        responses: the provider for the Responses API.
        api: the API for all requests; ``auto`` chooses by the model.
    """

    def __init__(
        self,
        chat: OpenAIProvider,
        responses: ResponsesProvider,
        api: Literal["auto", "chat", "responses"],
    ) -> None:
        self.name = chat.name
        self.longest_call_s = chat.longest_call_s
        self._chat = chat
        self._responses = responses
        self._api = api

    def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one streamed call; see `LLMProvider.chat_stream`."""
        return self.provider_for(request.model).chat_stream(request)

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call that is answered whole; see `LLMProvider.chat`."""
        return await self.provider_for(request.model).chat(request)

    async def list_models(self) -> Sequence[ModelInfo]:
        """Return the models that the service lists; see `LLMProvider.list_models`."""
        return await self._chat.list_models()

    async def warm_up(self) -> None:
        """Prepare the API that requests will use, as far as that is known before a request."""
        await (self._responses if self._api == "responses" else self._chat).warm_up()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        try:
            await self._chat.aclose()
        finally:
            await self._responses.aclose()

    def provider_for(self, model: str) -> HTTPProvider:
        """Return the provider that serves `model`."""
        is_for_responses = self._api == "responses"
        if self._api == "auto" and self.name == "openai":
            host = urlsplit(self._chat.endpoint.base).hostname or ""
            is_for_responses = _needs_responses(model.lower(), host)
        return self._responses if is_for_responses else self._chat


def _needs_responses(model: str, host: str) -> bool:
    if _NO_OTHER_API.search(model):
        return True
    return bool(_NO_TOOLS_IN_CHAT.match(model) and _OPENAI_HOST.fullmatch(host))


def build_service(
    ctx: PluginContext, spec: ProviderSpec, settings: OpenAISettings
) -> OpenAIService:
    """Return the service that `spec` describes, as `settings` and the environment set it up.

    Raises:
        ConfigError: the key or the base URL is missing, or a value cannot be sent.
    """
    path = ResponsesProvider.path if settings.api == "responses" else OpenAIProvider.path
    endpoint = resolve_endpoint(ctx, spec, settings, path=path)
    failures = FailureReader(
        provider=spec.name,
        key_hint=key_hint(spec),
        secrets=endpoint.secrets,
        clock=ctx.clock,
        words=WORDS,
    )
    account = f"{endpoint.base} {endpoint.headers.get('authorization')}"
    wire = ResponsesWire(spec.name, account, summary=settings.reasoning_summary)
    return OpenAIService(
        OpenAIProvider(spec, endpoint, failures, alternating_roles=settings.alternating_roles),
        ResponsesProvider(spec, endpoint, failures, wire),
        settings.api,
    )
