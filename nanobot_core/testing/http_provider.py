"""The contract of providers for a service behind HTTP, with the services that its tests need."""

from __future__ import annotations

import asyncio
import itertools
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from nanobot_core.contracts.provider import LLMProvider
from nanobot_core.testing.model_server import (
    ModelServer,
    RecordedRequest,
    Reply,
    Responder,
    ScriptedCall,
)
from nanobot_core.testing.provider import ProviderContract, ServedProvider, ServiceBehaviour

_PART = Reply(text="words " * 1_000, stop_after_bytes=3_000)
"""Some text, and then nothing more."""


class HTTPProviderContract(ProviderContract):
    """`ProviderContract` before a `ModelServer`.

    Subclass it as ``TestMyProvider`` and supply a server and a provider.
    """

    TOO_LONG: ClassVar[Reply] = Reply(
        status=400, body=b'{"error": {"code": "context_length_exceeded"}}'
    )
    """How the service refuses a prompt that exceeds the context window."""

    @abstractmethod
    def make_server(self, *replies: Reply) -> ModelServer:
        """Return a server of the service's protocol."""

    @abstractmethod
    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        """Return the provider with `section` as its settings, among them ``api_base``."""

    @pytest.fixture(autouse=True)
    def _use_folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    @asynccontextmanager
    async def serve(self, behaviour: ServiceBehaviour) -> AsyncIterator[ServedProvider]:
        """Return a provider that uses a service which does as `behaviour` says."""
        # A test that asks twice finds the same reply again.
        server = self.make_server(*[self._reply(behaviour)] * 2)
        if behaviour is ServiceBehaviour.ECHO:
            server = self.make_server()
            server.default = _echo_together(server, self.CALLS_AT_ONCE)
        async with AsyncExitStack() as running:
            await running.enter_async_context(server)
            provider = self.make_provider(
                self._folder,
                api_base=server.url,
                api_key="sk-test",
                timeout_s=0.2 if behaviour is ServiceBehaviour.STALLED else 30,
            )
            if behaviour is ServiceBehaviour.ABSENT:
                await running.aclose()

            async def client_gone() -> None:
                await server.requests[0].disconnected.wait()

            try:
                yield ServedProvider(provider=provider, client_gone=client_gone)
            finally:
                await provider.aclose()

    def _reply(self, behaviour: ServiceBehaviour) -> Reply:
        wait = {"retry-after": str(self.RETRY_AFTER_S)}
        replies = {
            ServiceBehaviour.ANSWER: Reply(text=self.TEXT, reasoning=self.THOUGHT, chunk_chars=7),
            ServiceBehaviour.CALL: Reply(
                calls=(ScriptedCall(name="lookup", arguments=json.dumps(self.ARGUMENTS)),)
            ),
            ServiceBehaviour.RATE_LIMITED: Reply(status=429, body=b"{}", headers=wait),
            ServiceBehaviour.OVERLOADED: Reply(status=503, body=b"<html>busy</html>"),
            ServiceBehaviour.REFUSED_KEY: Reply(status=401, body=b"{}"),
            ServiceBehaviour.REFUSED_REQUEST: Reply(status=400, body=b"{}"),
            ServiceBehaviour.TOO_LONG: self.TOO_LONG,
            ServiceBehaviour.GARBAGE: Reply(body=b"<html>hello</html>", content_type="text/html"),
            ServiceBehaviour.CUT: _PART,
        }
        return replies.get(behaviour, replace(_PART, stop="stall"))


def _echo_together(server: ModelServer, count: int) -> Responder:
    """Return an echo that answers only once `count` requests have come in."""
    numbers = itertools.count(1)
    all_here = asyncio.Event()

    def answer(request: RecordedRequest) -> Reply:
        if next(numbers) == count:
            all_here.set()
        return replace(server.echo(request), gate=all_here)

    return answer
