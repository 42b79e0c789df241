"""The contract of channels, with the local DingTalk."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_dingtalk.channel import build_channel

LocalDingTalk = load_stand_in(Path(__file__).with_name("local_dingtalk.py"))


class TestDingTalkChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalDingTalk(), build_channel, tmp_path)
