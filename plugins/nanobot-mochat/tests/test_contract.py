"""The suites of all channels."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, ChannelDay, StandInPlatform, load_stand_in
from nanobot_mochat.channel import build_channel

LocalMochat = load_stand_in(Path(__file__).with_name("local_mochat.py"))


class TestMochatChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(LocalMochat(), build_channel, tmp_path)


class TestMochatDay(ChannelDay):
    stand_in = LocalMochat
