"""Providers of the plugin, alone and before a scripted service on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import LLMProvider, ProviderSettings
from nanobot_core.testing import FakePluginContext, OpenAIServer, Reply, Responder, echo
from nanobot_openai.provider import build_provider
from nanobot_openai.vendors import VENDORS


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., LLMProvider]:
    """Builds a provider as the host does: ``build(vendor, environment=…, **section)``."""
    specs = {spec.name: spec for spec in VENDORS}

    def build(
        vendor: str = "custom", *, environment: Mapping[str, str] | None = None, **section: Any
    ) -> LLMProvider:
        ctx = FakePluginContext(tmp_path, environment=environment or {})
        return build_provider(ctx, specs[vendor], ProviderSettings.model_validate(section))

    return build


@pytest.fixture
def serving(
    build: Callable[..., LLMProvider],
) -> Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, OpenAIServer]]]:
    """A provider before a scripted service: ``serving(*replies, vendor=…, **section)``."""

    @asynccontextmanager
    async def serving(
        *replies: Reply, default: Responder = echo, vendor: str = "custom", **section: Any
    ) -> AsyncIterator[tuple[LLMProvider, OpenAIServer]]:
        async with OpenAIServer(replies, default=default) as server:
            section = {"api_base": server.url, "api_key": "sk-test"} | section
            provider = build(vendor, **section)
            try:
                yield provider, server
            finally:
                await provider.aclose()

    return serving
