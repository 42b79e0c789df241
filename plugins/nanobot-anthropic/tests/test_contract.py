"""The provider keeps the contracts of all providers, and of those for a service behind HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import LLMProvider
from nanobot_core.testing import (
    AnthropicServer,
    HTTPFaultContract,
    HTTPProviderContract,
    Reply,
    anthropic_error,
)


class _Anthropic:
    """Supplies both contracts with the service and the provider."""

    @pytest.fixture(autouse=True)
    def _take(self, build: Callable[..., LLMProvider]) -> None:
        self._build = build

    def make_server(self, *replies: Reply) -> AnthropicServer:
        return AnthropicServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        return self._build(**section)


class TestAnthropicProvider(_Anthropic, HTTPProviderContract):
    TOO_LONG = anthropic_error(
        400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
    )


class TestFaults(_Anthropic, HTTPFaultContract):
    pass
