"""The provider, alone and before a scripted service on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_anthropic.plugin import SPEC
from nanobot_anthropic.provider import build_provider
from nanobot_core import LLMProvider, ProviderSettings
from nanobot_core.testing import AnthropicServer, FakePluginContext, Reply, Responder


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., LLMProvider]:
    """Builds the provider as the host does: ``build(environment=…, **section)``."""

    def build(*, environment: Mapping[str, str] | None = None, **section: Any) -> LLMProvider:
        ctx = FakePluginContext(tmp_path, environment=environment or {})
        section = {"api_key": "sk-test"} | section
        return build_provider(ctx, SPEC, ProviderSettings.model_validate(section))

    return build


@pytest.fixture
def serving(
    build: Callable[..., LLMProvider],
) -> Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, AnthropicServer]]]:
    """The provider before a scripted service: ``serving(*replies, **section)``."""

    @asynccontextmanager
    async def serving(
        *replies: Reply, default: Responder | None = None, **section: Any
    ) -> AsyncIterator[tuple[LLMProvider, AnthropicServer]]:
        async with AnthropicServer(replies, default=default) as server:
            provider = build(**({"api_base": server.url} | section))
            try:
                yield provider, server
            finally:
                await provider.aclose()

    return serving
