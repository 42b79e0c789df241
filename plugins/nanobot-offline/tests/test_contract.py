from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from nanobot_core.testing import (
    FakeClock,
    FakePluginContext,
    ProviderContract,
    ServedProvider,
    ServiceBehaviour,
)
from nanobot_offline.plugin import contribute_providers
from nanobot_offline.provider import create_provider
from nanobot_offline.settings import OfflineSettings

_SCRIPTS = {
    ServiceBehaviour.ANSWER: (
        f"- - think: {ProviderContract.THOUGHT!r}\n  - text: {ProviderContract.TEXT!r}\n"
    ),
    ServiceBehaviour.CALL: f"- call: lookup\n  arguments: {ProviderContract.ARGUMENTS!r}\n",
    ServiceBehaviour.ECHO: '- - delay_s: 1\n  - text: "{user}"\n',
    ServiceBehaviour.RATE_LIMITED: (
        f"- error: RateLimited\n  retry_after_s: {ProviderContract.RETRY_AFTER_S}\n"
    ),
    ServiceBehaviour.OVERLOADED: "- error: Overloaded\n",
    ServiceBehaviour.REFUSED_KEY: "- error: AuthenticationFailed\n",
    ServiceBehaviour.REFUSED_REQUEST: "- error: BadRequest\n",
    ServiceBehaviour.TOO_LONG: "- error: ContextTooLong\n",
    ServiceBehaviour.GARBAGE: "- error: ProviderProtocolError\n",
    ServiceBehaviour.CUT: "- - text: some text\n  - error: Unreachable\n",
    ServiceBehaviour.SILENT: "- - text: some text\n  - delay_s: 1000\n",
    ServiceBehaviour.STALLED: "- - text: some text\n  - error: ProviderTimeout\n",
    ServiceBehaviour.ABSENT: "- error: Unreachable\n",
}


class TestOfflineProvider(ProviderContract):
    """A script plays the service."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path

    def serve(self, behaviour: ServiceBehaviour) -> AbstractAsyncContextManager[ServedProvider]:
        return _serving(self._tmp_path, behaviour)


@asynccontextmanager
async def _serving(tmp_path: Path, behaviour: ServiceBehaviour) -> AsyncIterator[ServedProvider]:
    clock = FakeClock()

    async def client_gone() -> None:
        assert clock.sleeper_count == 0

    async def echo() -> None:
        await clock.wait_for_sleepers(ProviderContract.CALLS_AT_ONCE)
        await clock.advance(1)

    async with FakePluginContext(tmp_path, clock=clock) as context:
        steps = _SCRIPTS[behaviour] * ProviderContract.CALLS_AT_ONCE
        await asyncio.to_thread((context.workspace / "script.yaml").write_text, steps, "utf-8")
        (spec,) = contribute_providers(context)
        if behaviour is ServiceBehaviour.ECHO:
            context.spawn(echo(), name="echo")
        provider = create_provider(context, spec, OfflineSettings(script="script.yaml"))
        yield ServedProvider(provider=provider, client_gone=client_gone)
