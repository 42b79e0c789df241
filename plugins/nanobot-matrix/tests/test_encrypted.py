"""The suites of all channels, in encrypted rooms with clients of matrix-nio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanobot_core.testing import ChannelContract, ChannelDay, StandInPlatform, load_stand_in
from nanobot_matrix.channel import build_channel

pytest.importorskip("vodozemac", reason="the extra 'e2e' is not installed")
pytest.importorskip("cryptography", reason="the extra 'e2e' is not installed")
pytest.importorskip("nio.crypto", reason="matrix-nio[e2e] is not installed")
SealedMatrix: Any = load_stand_in(Path(__file__).with_name("sealed_matrix.py"))


class TestEncryptedMatrixChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(SealedMatrix(), build_channel, tmp_path)


class TestEncryptedMatrixDay(ChannelDay):
    stand_in = SealedMatrix
