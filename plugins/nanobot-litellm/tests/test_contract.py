"""The provider keeps the contract of all providers, before two kinds of service."""

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
    GeminiServer,
    ModelServer,
    OpenAIServer,
    ProviderContract,
    RecordedRequest,
    Reply,
    Responder,
    ScriptedCall,
    ServedProvider,
    ServiceBehaviour,
)


def _error(status: int, message: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": status}}).encode()
    return Reply(status=status, body=body)


_ANSWER = Reply(text=ProviderContract.TEXT, reasoning=ProviderContract.THOUGHT, chunk_chars=7)
_REPLIES = {
    ServiceBehaviour.ANSWER: _ANSWER,
    ServiceBehaviour.CALL: Reply(
        calls=(ScriptedCall(name="lookup", arguments=json.dumps(ProviderContract.ARGUMENTS)),)
    ),
    ServiceBehaviour.RATE_LIMITED: Reply(
        status=429, body=b"{}", headers={"retry-after": str(ProviderContract.RETRY_AFTER_S)}
    ),
    ServiceBehaviour.OVERLOADED: Reply(status=503, body=b"<html>busy</html>"),
    ServiceBehaviour.REFUSED_KEY: _error(401, "no"),
    ServiceBehaviour.REFUSED_REQUEST: _error(400, "no"),
    ServiceBehaviour.TOO_LONG: _error(400, "The input exceeds the maximum number of tokens"),
    ServiceBehaviour.GARBAGE: Reply(body=b"<html>welcome</html>", content_type="text/html"),
    ServiceBehaviour.CUT: Reply(text="words " * 100, stop_after_bytes=1_500, stop="close"),
    ServiceBehaviour.SILENT: Reply(text="words " * 100, stop_after_bytes=1_500, stop="stall"),
    ServiceBehaviour.STALLED: Reply(text="words " * 100, stop_after_bytes=1_500, stop="stall"),
}


class _Contract(ProviderContract):
    kind: type[ModelServer]

    @pytest.fixture(autouse=True)
    def _take(
        self,
        serving: Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, ModelServer]]],
        build: Callable[..., LLMProvider],
    ) -> None:
        self._serving, self._build = serving, build

    @asynccontextmanager
    async def serve(self, behaviour: ServiceBehaviour) -> AsyncIterator[ServedProvider]:
        if behaviour is ServiceBehaviour.ABSENT:
            async with self._serving(kind=self.kind) as (provider, server):
                await server.__aexit__()
                yield ServedProvider(provider=provider, client_gone=_never)
            return
        timeout_s = 0.2 if behaviour is ServiceBehaviour.STALLED else 30
        # The echo needs no script; a test that asks twice finds the same reply again.
        replies = [_REPLIES[behaviour]] * 2 if behaviour in _REPLIES else []
        default = _echo_together(self.kind, self.CALLS_AT_ONCE)
        async with self._serving(
            *replies, default=default, kind=self.kind, timeout_s=timeout_s
        ) as (provider, server):

            async def client_gone() -> None:
                await server.requests[0].disconnected.wait()

            yield ServedProvider(provider=provider, client_gone=client_gone)


class TestGemini(_Contract):
    kind = GeminiServer


class TestOpenAI(_Contract):
    kind = OpenAIServer


async def _never() -> None:
    raise AssertionError("nothing was called")


def _echo_together(kind: type[ModelServer], count: int) -> Responder:
    """Return an echo that answers nobody before `count` requests have come in."""
    numbers = itertools.count(1)
    all_here = asyncio.Event()
    server = kind()

    def answer(request: RecordedRequest) -> Reply:
        if next(numbers) == count:
            all_here.set()
        return replace(server.echo(request), gate=all_here)

    return answer
