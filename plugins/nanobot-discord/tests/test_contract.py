"""The contract of channels, with the local Discord."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_discord.channel import build_channel

LocalDiscord = load_stand_in(Path(__file__).with_name("local_discord.py"))


class TestDiscordChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalDiscord(), build_channel, tmp_path)
