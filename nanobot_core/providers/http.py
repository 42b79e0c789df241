"""HTTPProvider: one attempt at an answer from a service behind HTTP, streamed or whole."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar

from nanobot_core.contracts.provider import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    ModelInfo,
    StreamEvent,
)
from nanobot_core.errors import AnswerTooLong, ProviderProtocolError
from nanobot_core.providers.answer import MAX_EVENT_BYTES, AnswerReader, parse_payload
from nanobot_core.providers.sse import EventParser, EventTooLargeError, ServerEvent

if TYPE_CHECKING:
    from nanobot_core.contracts.provider import ProviderSpec
    from nanobot_core.providers.client import ServiceClient, ServiceResponse
    from nanobot_core.providers.endpoint import Endpoint
    from nanobot_core.providers.failure import FailureReader

_LONGEST_CALL = 10
"""Times the limit on silence that one answer may take, however little comes at a time."""
_DONE = "[DONE]"
"""Mark of the end in OpenAI's protocol, which many services follow."""


class HTTPProvider(LLMProvider):
    """A model service that takes a POST and answers with JSON or with server-sent events of JSON.

    A subclass writes the body of a request and reads an answer. Connections, limits of time and
    size, the event stream and the errors of HTTP are handled here.

    Attributes:
        path: where requests are posted, below the endpoint's base URL.
        models_path: where the service lists its models, or ``None`` if it does not.
        spec: the provider's row of the table.
        endpoint: where the service is, and what goes with each request.
        failures: turns what the service reports into errors.
    """

    path: ClassVar[str] = "/chat/completions"
    models_path: ClassVar[str | None] = "/models"

    def __init__(self, spec: ProviderSpec, endpoint: Endpoint, failures: FailureReader) -> None:
        self.name: str = spec.name
        self.spec: ProviderSpec = spec
        self.endpoint: Endpoint = endpoint
        self.failures: FailureReader = failures
        self.longest_call_s: float = _LONGEST_CALL * endpoint.timeout_s
        self._client: ServiceClient | None = None
        self._opening = asyncio.Lock()

    @abstractmethod
    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of `request`, JSON."""

    @abstractmethod
    def reader(self) -> AnswerReader:
        """Return a reader for one answer."""

    async def headers(self, request: ChatRequest | None) -> Mapping[str, str]:
        """Return further headers of one request, such as a token that has to be refreshed.

        Args:
            request: the model call; ``None`` for the list of models.

        Raises:
            ProviderError: there is no valid token.
        """
        return {}

    def read_models(self, payload: object) -> Sequence[ModelInfo]:
        """Return the models in the service's list, by default in OpenAI's form."""
        found = payload.get("data") if isinstance(payload, dict) else None
        rows = found if isinstance(found, list) else ()
        ids = [row.get("id") for row in rows if isinstance(row, dict)]
        return [ModelInfo(name=name) for name in ids if isinstance(name, str) and name]

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one streamed call; see `LLMProvider.chat_stream`."""
        client = await self._open()
        reader = self.reader()
        body = self.encode(request, stream=True)
        headers = await self.headers(request)
        async with client.post(self.path, body, headers) as response:
            if response.media_type in ("text/event-stream", ""):
                parser = EventParser(MAX_EVENT_BYTES)
                has_ended = False
                while not has_ended and (piece := await response.read_piece()):
                    for payload in self._payloads(parser, piece):
                        for event in () if payload is None else reader.feed(payload):
                            yield event
                        has_ended = payload is None or reader.has_ended
                        if has_ended:
                            break
                if has_ended:
                    await response.drain()
                elif not reader.is_complete:
                    reason = "the stream ended before the answer was complete"
                    raise ProviderProtocolError(self.name, reason)
            else:
                # Some services answer whole, or with an error, whatever was asked for.
                for event in reader.feed(await self._read_whole(response)):
                    yield event
        yield Completed(reader.response())

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call that is answered whole; see `LLMProvider.chat`."""
        client = await self._open()
        reader = self.reader()
        body = self.encode(request, stream=False)
        headers = await self.headers(request)
        async with client.post(self.path, body, headers) as response:
            for _ in reader.feed(await self._read_whole(response)):
                pass
        return reader.response()

    async def list_models(self) -> Sequence[ModelInfo]:
        """Return the models that the service lists; see `LLMProvider.list_models`."""
        if self.models_path is None:
            return ()
        client = await self._open()
        async with client.get(self.models_path, await self.headers(None)) as response:
            return self.read_models(self._checked(await response.read_json()))

    async def warm_up(self) -> None:
        """Import the HTTP library and load certificates, in a thread."""
        await self._open()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        if self._client is not None:
            await self._client.aclose()

    async def _open(self) -> ServiceClient:
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    # In an empty context: for a proxy the client warms up in a loop of its own,
                    # and sniffio would take it for the one that runs here.
                    self._client = await asyncio.to_thread(
                        Context().run, _open_client, self.endpoint, self.failures
                    )
        return self._client

    def _payloads(self, parser: EventParser, piece: bytes) -> Iterator[dict[str, Any] | None]:
        """Yield the JSON objects that `piece` completes; ``None`` is the mark of the end.

        Raises:
            ProviderError: the stream holds an error or something that is not a JSON object.
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
            raise self.failures.from_error(payload)
        return self._checked(payload)

    async def _read_whole(self, response: ServiceResponse) -> dict[str, Any]:
        if "json" not in response.media_type:
            found = self.failures.clean(response.media_type) or "nothing"
            reason = f"expected JSON or events in its answer, found {found}"
            raise ProviderProtocolError(self.name, reason)
        return self._checked(await response.read_json())

    def _checked(self, payload: object) -> dict[str, Any]:
        failure = self.failures.from_payload(payload)
        if failure is not None:
            raise failure
        if not isinstance(payload, dict):
            raise ProviderProtocolError(
                self.name, "its answer holds something that is not an object"
            )
        return payload


def _open_client(endpoint: Endpoint, failures: FailureReader) -> ServiceClient:
    from nanobot_core.providers.client import ServiceClient

    return ServiceClient(endpoint, failures)
