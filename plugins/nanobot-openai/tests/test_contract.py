"""The provider keeps the contract of all providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import LLMProvider
from nanobot_core.testing import HTTPProviderContract, OpenAIServer, Reply


class TestOpenAIProvider(HTTPProviderContract):
    @pytest.fixture(autouse=True)
    def _take(self, build: Callable[..., LLMProvider]) -> None:
        self._build = build

    def make_server(self, *replies: Reply) -> OpenAIServer:
        return OpenAIServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        return self._build(**section)
