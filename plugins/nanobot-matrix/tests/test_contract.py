"""The suites of all channels."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, ChannelDay, StandInPlatform, load_stand_in
from nanobot_matrix.channel import build_channel

LocalMatrix = load_stand_in(Path(__file__).with_name("local_matrix.py"))


class TestMatrixChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalMatrix(), build_channel, tmp_path)


class TestMatrixDay(ChannelDay):
    stand_in = LocalMatrix
