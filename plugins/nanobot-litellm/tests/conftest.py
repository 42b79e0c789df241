"""Providers of the plugin, alone and before a scripted service on the loopback."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import LLMProvider
from nanobot_core.testing import (
    AnthropicServer,
    FakePluginContext,
    GeminiServer,
    ModelServer,
    OpenAIServer,
    Reply,
    Responder,
)
from nanobot_litellm.provider import build_provider
from nanobot_litellm.settings import LiteLLMSettings
from nanobot_litellm.vendors import VENDORS

_SERVICES: Mapping[type[ModelServer], str] = {
    AnthropicServer: "anthropic",
    GeminiServer: "gemini",
    OpenAIServer: "openai",
}


@pytest.fixture(scope="session")
def library() -> Iterator[None]:
    """Import LiteLLM before the tests whose limits of time do not allow for it."""
    from nanobot_litellm.library import load_library

    load_library()
    # The collector would go through all of LiteLLM's objects in each test that calls it.
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def build(tmp_path: Path, library: None) -> Callable[..., LLMProvider]:
    """Builds a provider as the host does: ``build(name, environment=…, **section)``."""
    specs = {spec.name: spec for spec in VENDORS}

    def build(
        name: str = "litellm", *, environment: Mapping[str, str] | None = None, **section: Any
    ) -> LLMProvider:
        ctx = FakePluginContext(tmp_path, environment=environment or {})
        return build_provider(ctx, specs[name], LiteLLMSettings.model_validate(section))

    return build


@pytest.fixture
def serving(
    build: Callable[..., LLMProvider],
) -> Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, ModelServer]]]:
    """A provider before a scripted service: ``serving(*replies, kind=GeminiServer, **section)``."""

    @asynccontextmanager
    async def serving(
        *replies: Reply,
        default: Responder | None = None,
        kind: type[ModelServer] = GeminiServer,
        **section: Any,
    ) -> AsyncIterator[tuple[LLMProvider, ModelServer]]:
        async with kind(replies, default=default) as server:
            # The model of the tests has no name that LiteLLM knows.
            options = {"custom_llm_provider": _SERVICES[kind]}
            # LiteLLM adds the version only for this one.
            base = server.origin if kind is AnthropicServer else server.url
            known = {"api_base": base, "api_key": "sk-test", "options": options}
            provider = build(**known | section)
            try:
                yield provider, server
            finally:
                await provider.aclose()

    return serving
