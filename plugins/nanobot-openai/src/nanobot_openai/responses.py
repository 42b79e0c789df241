"""The provider for OpenAI's Responses API, and the choice between it and chat completions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias
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
from nanobot_openai.words import WORDS

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSpec
    from nanobot_openai.responses_answer import ResponsesReader
    from nanobot_openai.responses_request import ResponsesWire
    from nanobot_openai.settings import OpenAISettings

API: TypeAlias = Literal["auto", "chat", "responses"]

_NO_OTHER_API = re.compile(r"codex|-pro(-\d|$)|deep-research|computer-use|gpt-daybreak")
"""Models that OpenAI serves only there, by its model pages and Python package in November 2026."""
_NO_TOOLS_IN_CHAT = re.compile(r"gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)(?!.*-chat)")
"""Models that OpenAI's chat completions refuse as soon as they reason and a request has tools.

Services with the same models may accept that, and may not have the other API.
"""
_CURRENT_MODEL = "gpt-5.6"
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
        make_responses: returns the provider for the Responses API, which is made when it is needed.
        api: the API for all requests; ``auto`` chooses by the model.
    """

    def __init__(
        self, chat: OpenAIProvider, make_responses: Callable[[], ResponsesProvider], api: API
    ) -> None:
        self.name = chat.name
        self.longest_call_s = chat.longest_call_s
        self._chat = chat
        self._make_responses = make_responses
        self._responses: ResponsesProvider | None = None
        self._api = api
        host = urlsplit(chat.endpoint.base).hostname or ""
        self._is_openai = _OPENAI_HOST.fullmatch(host) is not None

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
        """Prepare the API of the service's current models."""
        await self.provider_for(_CURRENT_MODEL).warm_up()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        try:
            await self._chat.aclose()
        finally:
            if self._responses is not None:
                await self._responses.aclose()

    def provider_for(self, model: str) -> HTTPProvider:
        """Return the provider that serves `model`."""
        is_for_responses = self._api == "responses"
        if self._api == "auto" and self.name == "openai":
            is_for_responses = self._needs_responses(model.lower())
        if not is_for_responses:
            return self._chat
        if self._responses is None:
            self._responses = self._make_responses()
        return self._responses

    def _needs_responses(self, model: str) -> bool:
        if _NO_OTHER_API.search(model):
            return True
        return self._is_openai and _NO_TOOLS_IN_CHAT.match(model) is not None


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

    def make_responses() -> ResponsesProvider:
        # Most services need no more than chat completions, and the import would delay a request.
        from nanobot_openai.responses_request import ResponsesWire

        account = f"{endpoint.base} {endpoint.headers.get('authorization')}"
        wire = ResponsesWire(spec.name, account, summary=settings.reasoning_summary)
        return ResponsesProvider(spec, endpoint, failures, wire)

    chat = OpenAIProvider(spec, endpoint, failures, alternating_roles=settings.alternating_roles)
    return OpenAIService(chat, make_responses, settings.api)
