"""The provider: one attempt at a chat completion, streamed or whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nanobot_core import (
    AnswerTooLong,
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Overloaded,
    ProviderProtocolError,
    StreamEvent,
)
from nanobot_openai.answer import FAILED_REASONS, Answer, parse_payload
from nanobot_openai.dialect import dialect_of
from nanobot_openai.encoding import BodyEncoder
from nanobot_openai.endpoint import Endpoint, key_hint, resolve_endpoint
from nanobot_openai.failure import FailureReader
from nanobot_openai.mapping import MessageMapper, body_of
from nanobot_openai.sse import EventParser, EventTooLargeError, ServerEvent

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec
    from nanobot_openai.client import Client, Response

_EVENT_BYTES = 8_000_000
_LONGEST_CALL = 10
"""Times the limit on silence that one answer may take, however little comes at a time."""
_DONE = "[DONE]"


class OpenAIProvider(LLMProvider):
    """An OpenAI-compatible service.

    Args:
        spec: the vendor's row of the table.
        failures: turns what the service says into errors.
    """

    def __init__(self, spec: ProviderSpec, endpoint: Endpoint, failures: FailureReader) -> None:
        self.name = spec.name
        self._spec = spec
        self._dialect = dialect_of(spec.name)
        if endpoint.alternating_roles:
            self._dialect = replace(self._dialect, alternating=True)
        self.longest_call_s = _LONGEST_CALL * endpoint.timeout_s
        self._endpoint = endpoint
        self._failures = failures
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._encoder = BodyEncoder()
        self._mapper = MessageMapper(spec.name, self._dialect)

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one streamed call; see `LLMProvider.chat_stream`."""
        client = await self._open()
        answer = Answer(self.name, self._dialect.cost_field)
        async with client.post(self._body(request, stream=True)) as response:
            if response.media_type in ("text/event-stream", ""):
                parser = EventParser(_EVENT_BYTES)
                is_done = False
                while not is_done and (piece := await response.read_piece()):
                    for payload in self._payloads(parser, piece):
                        is_done = payload is None
                        if payload is None:
                            break
                        for event in answer.feed(payload):
                            yield event
                if is_done:
                    await response.drain()
                elif answer.finish_reason is None:
                    reason = "the stream ended before the answer was complete"
                    raise ProviderProtocolError(self.name, reason)
            else:
                # Some services answer whole, or with an error, whatever was asked for.
                for event in answer.feed(await self._read_whole(response)):
                    yield event
        yield Completed(self._complete(answer))

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call that is answered whole; see `LLMProvider.chat`."""
        client = await self._open()
        answer = Answer(self.name, self._dialect.cost_field)
        async with client.post(self._body(request, stream=False)) as response:
            for _ in answer.feed(await self._read_whole(response)):
                pass
        return self._complete(answer)

    async def warm_up(self) -> None:
        """Import the HTTP library and load certificates, in a thread."""
        await self._open()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        if self._client is not None:
            await self._client.aclose()

    async def _open(self) -> Client:
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    # In an empty context: for a proxy the client warms up in a loop of its own,
                    # and sniffio would take it for the one that runs here.
                    self._client = await asyncio.to_thread(
                        Context().run, _open_client, self._endpoint, self._failures
                    )
        return self._client

    def _body(self, request: ChatRequest, *, stream: bool) -> bytes:
        tools = self._encoder.schemas(request.tools)
        body = body_of(request, spec=self._spec, mapper=self._mapper, stream=stream, tools=tools)
        return self._encoder.encode(body)

    def _payloads(self, parser: EventParser, piece: bytes) -> Iterator[dict[str, Any] | None]:
        """Yield the chunks that `piece` completes; ``None`` is the service's mark of the end.

        Raises:
            ProviderError: the stream holds an error or something that is not a chunk.
        """
        try:
            for event in parser.feed(piece):
                yield None if event.data.strip() == _DONE else self._payload(event)
        except EventTooLargeError as error:
            raise AnswerTooLong(self.name, str(error)) from error

    def _payload(self, event: ServerEvent) -> dict[str, Any]:
        payload: object = None
        with suppress(ValueError, RecursionError):
            payload = parse_payload(event.data)
        if event.type == "error":
            raise self._failures.from_error(payload)
        return self._checked(payload)

    async def _read_whole(self, response: Response) -> dict[str, Any]:
        if "json" not in response.media_type:
            found = self._failures.clean(response.media_type) or "nothing"
            reason = f"expected JSON or events in its answer, found {found}"
            raise ProviderProtocolError(self.name, reason)
        return self._checked(await response.read_json())

    def _checked(self, payload: object) -> dict[str, Any]:
        failure = self._failures.from_payload(payload)
        if failure is not None:
            raise failure
        if not isinstance(payload, dict):
            raise ProviderProtocolError(
                self.name, "its answer holds something that is not an object"
            )
        return payload

    def _complete(self, answer: Answer) -> LLMResponse:
        if answer.finish_reason in FAILED_REASONS:
            reason = f"it gave up within the answer ({answer.finish_reason})"
            raise Overloaded(self.name, reason)
        if not answer.begun:
            raise ProviderProtocolError(self.name, "its answer holds no choice")
        return answer.response()


def build_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> OpenAIProvider:
    """Return the provider that `spec` describes, as `settings` and the environment set it up.

    Raises:
        ConfigError: the key or the base URL is missing, or a value cannot be sent.
    """
    endpoint = resolve_endpoint(ctx, spec, settings)
    failures = FailureReader(
        provider=spec.name, key_hint=key_hint(spec), secrets=endpoint.secrets, clock=ctx.clock
    )
    return OpenAIProvider(spec, endpoint, failures)


def _open_client(endpoint: Endpoint, failures: FailureReader) -> Client:
    from nanobot_openai.client import Client

    return Client(endpoint, failures)
