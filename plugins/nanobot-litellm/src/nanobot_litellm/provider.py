"""The provider: one attempt at a model call through LiteLLM, streamed or whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nanobot_core import (
    ChatRequest,
    Completed,
    JsonObject,
    LLMProvider,
    LLMResponse,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    StreamEvent,
    Unreachable,
)
from nanobot_core.providers import Endpoint, FailureReader, key_hint, resolve_endpoint
from nanobot_litellm.answer import Answer
from nanobot_litellm.failure import WORDS, failure_of
from nanobot_litellm.mapping import arguments_of
from nanobot_litellm.settings import LiteLLMSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec
    from nanobot_litellm.exchange import Connections, Exchange
    from nanobot_litellm.library import Library

_LONGEST_CALL = 10
"""Times the limit on silence that one answer may take, however little comes at a time."""
_ANY_SERVICE = "https://service.invalid"
"""Stands for the base URL that LiteLLM knows."""
_KEY = "x-litellm-key"
"""Only a place for the key: LiteLLM has the header of each service."""
_NOT_ENDED = (ProviderTimeout, Unreachable)
_SECRET_OPTIONS = ("key", "secret", "token", "credential", "password")


@dataclass(frozen=True, slots=True)
class _Open:
    """What a call needs, once it is imported and open."""

    library: Library
    connections: Connections


class LiteLLMProvider(LLMProvider):
    """A model service behind LiteLLM.

    Args:
        spec: the provider's row of the table.
        endpoint: limits, proxy and secrets.
        failures: turns what the service reports into errors.
        access: arguments of LiteLLM that say how to reach the service.
        options: further arguments, from the section.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        endpoint: Endpoint,
        failures: FailureReader,
        access: JsonObject,
        options: JsonObject,
    ) -> None:
        self.name = spec.name
        self.longest_call_s = _LONGEST_CALL * endpoint.timeout_s
        self._spec = spec
        self._endpoint = endpoint
        self._failures = failures
        self._access = access
        self._options = options
        self._opened: _Open | None = None
        self._opening = asyncio.Lock()

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Make one streamed call; see `LLMProvider.chat_stream`."""
        opened = await self._open()
        exchange, answer = self._begin(opened)
        arguments = self._arguments(request)
        try:
            async with aclosing(opened.library.stream(arguments, exchange)) as pieces:
                async for piece in pieces:
                    for event in answer.feed(piece):
                        yield event
        except Exception as error:  # noqa: BLE001  # isolation point: LiteLLM raises anything
            # A complete answer is not lost with its connection.
            if not (exchange.is_finished and isinstance(exchange.failure, _NOT_ENDED)):
                raise self._failure_of(error, exchange) from None
        if not exchange.is_finished:
            reason = "the stream ended before the answer was complete"
            raise ProviderProtocolError(self.name, reason)
        yield Completed(self._complete(opened, answer, request))

    async def chat(self, request: ChatRequest) -> LLMResponse:
        """Make one call that is answered whole; see `LLMProvider.chat`."""
        opened = await self._open()
        exchange, answer = self._begin(opened)
        try:
            payload = await opened.library.call(self._arguments(request), exchange)
            for _ in answer.feed(payload):
                pass
        except Exception as error:  # noqa: BLE001  # isolation point: LiteLLM raises anything
            raise self._failure_of(error, exchange) from None
        return self._complete(opened, answer, request)

    async def warm_up(self) -> None:
        """Import LiteLLM, in a thread."""
        await self._open()

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        if self._opened is not None:
            await self._opened.connections.aclose()

    async def _open(self) -> _Open:
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    # In an empty context, so that nothing that LiteLLM keeps belongs to a turn.
                    self._opened = await asyncio.to_thread(
                        Context().run, _open, self._endpoint, self._failures
                    )
        return self._opened

    def _begin(self, opened: _Open) -> tuple[Exchange, Answer]:
        from nanobot_litellm.exchange import Exchange

        return Exchange(opened.connections), Answer(self.name)

    def _arguments(self, request: ChatRequest) -> JsonObject:
        arguments = arguments_of(request, self._spec, self._options)
        # The connections bound each wait; this bounds what LiteLLM does without them.
        return {**arguments, **self._access, "timeout": self.longest_call_s}

    def _failure_of(self, error: Exception, exchange: Exchange) -> ProviderError:
        if exchange.failure is not None:
            return exchange.failure
        if isinstance(error, ProviderError):
            return error
        return failure_of(error, exchange.failures, is_answered=exchange.is_answered)

    def _complete(self, opened: _Open, answer: Answer, request: ChatRequest) -> LLMResponse:
        if not answer.begun:
            raise ProviderProtocolError(self.name, "its answer holds no choice")
        return answer.response(opened.library.price_usd(request.model, answer.usage))


def build_provider(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> LiteLLMProvider:
    """Return the provider that `spec` describes, as `settings` and the environment configure it.

    Raises:
        ConfigError: the key is missing, or a value cannot be sent.
    """
    # LiteLLM knows the addresses of the services.
    known = replace(spec, default_base=spec.default_base or _ANY_SERVICE)
    # Without a key, LiteLLM looks for the variable of the service.
    endpoint = resolve_endpoint(ctx, known, settings, key_header=_KEY, finds_keys=True)
    headers = dict(endpoint.headers)
    access: JsonObject = {}
    if key := headers.pop(_KEY, ""):
        access["api_key"] = key
    if settings.api_base:
        access["api_base"] = settings.api_base.strip().rstrip("/")
    if headers:
        access["extra_headers"] = dict(headers)
    options: JsonObject = dict(settings.options) if isinstance(settings, LiteLLMSettings) else {}
    hidden = [
        str(value)
        for name, value in options.items()
        if any(part in name.lower() for part in _SECRET_OPTIONS)
    ]
    failures = FailureReader(
        provider=spec.name,
        key_hint=key_hint(spec),
        secrets=tuple(sorted({*endpoint.secrets, *filter(None, hidden)}, key=len, reverse=True)),
        clock=ctx.clock,
        words=WORDS,
    )
    return LiteLLMProvider(spec, endpoint, failures, access, options)


def _open(endpoint: Endpoint, failures: FailureReader) -> _Open:
    """Import LiteLLM and open the connections, in a thread.

    Raises:
        ProviderError: LiteLLM cannot be imported.
    """
    from nanobot_litellm.exchange import Connections
    from nanobot_litellm.library import load_library

    try:
        library = load_library()
    except ImportError as error:
        reason = f"LiteLLM cannot be imported ({error}); install nanobot-litellm again"
        raise ProviderError(failures.provider, reason) from error
    return _Open(library, Connections(endpoint, failures))
