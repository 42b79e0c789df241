"""The day of every channel, on the local Slack."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelDay, load_stand_in


class TestSlackDay(ChannelDay):
    stand_in = load_stand_in(Path(__file__).with_name("local_slack.py"))
