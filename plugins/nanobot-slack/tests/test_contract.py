"""The contract of channels, with the local Slack."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_slack.channel import build_channel

LocalSlack = load_stand_in(Path(__file__).with_name("local_slack.py"))


class TestSlackChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalSlack(), build_channel, tmp_path)
