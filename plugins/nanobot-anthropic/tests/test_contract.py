"""The provider keeps the contract of all providers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from nanobot_core import LLMProvider
from nanobot_core.testing import (
    AnthropicServer,
    ProviderContract,
    RecordedRequest,
    Reply,
    ScriptedCall,
    ServedProvider,
    ServiceBehaviour,
    anthropic_error,
)

_RETRY_AFTER = {"retry-after": str(ProviderContract.RETRY_AFTER_S)}
_TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
_REPLIES = {
    ServiceBehaviour.ANSWER: Reply(
        text=ProviderContract.TEXT, reasoning=ProviderContract.THOUGHT, chunk_chars=7
    ),
    ServiceBehaviour.CALL: Reply(
        calls=(ScriptedCall(name="lookup", arguments=json.dumps(ProviderContract.ARGUMENTS)),)
    ),
    ServiceBehaviour.RATE_LIMITED: replace(
        anthropic_error(429, "rate_limit_error", "slow down"), headers=_RETRY_AFTER
    ),
    ServiceBehaviour.OVERLOADED: anthropic_error(529, "overloaded_error", "Overloaded"),
    ServiceBehaviour.REFUSED_KEY: anthropic_error(401, "authentication_error", "invalid x-api-key"),
    ServiceBehaviour.REFUSED_REQUEST: anthropic_error(400, "invalid_request_error", "refused"),
    ServiceBehaviour.TOO_LONG: anthropic_error(400, "invalid_request_error", _TOO_LONG),
    ServiceBehaviour.GARBAGE: Reply(body=b"<html>welcome</html>", content_type="text/html"),
    ServiceBehaviour.CUT: Reply(text="words " * 100, stop_after_bytes=1_500, stop="close"),
    ServiceBehaviour.SILENT: Reply(text="words " * 100, stop_after_bytes=1_500, stop="stall"),
    ServiceBehaviour.STALLED: Reply(text="words " * 100, stop_after_bytes=1_500, stop="stall"),
}


class _Together(AnthropicServer):
    """Repeats the user's text, but only once `CALLS_AT_ONCE` requests have come in."""

    def __init__(self, script: list[Reply]) -> None:
        super().__init__(script)
        self._numbers = itertools.count(1)
        self._all_here = asyncio.Event()

    def echo(self, request: RecordedRequest) -> Reply:
        if next(self._numbers) == ProviderContract.CALLS_AT_ONCE:
            self._all_here.set()
        return replace(super().echo(request), gate=self._all_here)


class TestAnthropicProvider(ProviderContract):
    @pytest.fixture(autouse=True)
    def _take(
        self,
        serving: Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, AnthropicServer]]],
        build: Callable[..., LLMProvider],
    ) -> None:
        self._serving, self._build = serving, build

    @asynccontextmanager
    async def serve(self, behaviour: ServiceBehaviour) -> AsyncIterator[ServedProvider]:
        if behaviour is ServiceBehaviour.ABSENT:
            async with self._serving() as (_, server):
                address = server.url
            provider = self._build(api_base=address)
            yield ServedProvider(provider=provider, client_gone=_never)
            await provider.aclose()
            return
        timeout_s = 0.2 if behaviour is ServiceBehaviour.STALLED else 30
        # The echo needs no script; a test that asks twice finds the same reply again.
        replies = [_REPLIES[behaviour]] * 2 if behaviour in _REPLIES else []
        async with _Together(replies) as server:
            provider = self._build(api_base=server.url, timeout_s=timeout_s)

            async def client_gone() -> None:
                await server.requests[0].disconnected.wait()

            yield ServedProvider(provider=provider, client_gone=client_gone)
            await provider.aclose()


async def _never() -> None:
    raise AssertionError("nothing was called")
