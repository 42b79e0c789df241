"""The contract of channels, with the local Feishu."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_feishu.channel import build_channel

LocalFeishu = load_stand_in(Path(__file__).with_name("local_feishu.py"))


class TestFeishuChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalFeishu(), build_channel, tmp_path)
