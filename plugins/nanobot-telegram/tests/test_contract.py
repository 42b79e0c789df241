"""The contract of channels, with the local Bot API."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, StandInPlatform, load_stand_in
from nanobot_telegram.channel import build_channel

LocalTelegram = load_stand_in(Path(__file__).with_name("local_telegram.py"))


class TestTelegramChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalTelegram(), build_channel, tmp_path)
