"""The contract of channels, with the local QQ."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_qq.channel import build_channel

LocalQQ = load_stand_in(Path(__file__).with_name("local_qq.py"))


class TestQQChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        stand_in = LocalQQ()
        # The suite sends without a message to answer.
        vars(stand_in)["takes_active"] = True
        return StandInPlatform(stand_in, build_channel, tmp_path)
