"""The suites of every channel, on a local Parley."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelContract, ChannelDay, StandInPlatform, load_stand_in

LocalParley = load_stand_in(Path(__file__).with_name("local_parley.py"))


class TestParleyChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        from nanobot_parley.channel import build_channel

        return StandInPlatform(LocalParley(), build_channel, tmp_path)


class TestParleyDay(ChannelDay):
    stand_in = LocalParley
