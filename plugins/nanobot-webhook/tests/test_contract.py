"""The channel keeps the contract of channels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from nanobot_core.testing import ChannelContract, ChannelPlatform

_Serve = Callable[[Path], AbstractAsyncContextManager[ChannelPlatform]]


class TestWebhookChannel(ChannelContract):
    @pytest.fixture(autouse=True)
    def _use(self, serve_platform: _Serve) -> None:
        self._serve = serve_platform

    def serve(self, tmp_path: Path) -> AbstractAsyncContextManager[ChannelPlatform]:
        return self._serve(tmp_path)
