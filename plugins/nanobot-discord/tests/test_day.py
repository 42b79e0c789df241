"""The scripted day, on the local Discord."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.testing import ChannelDay, load_stand_in


class TestDiscordDay(ChannelDay):
    stand_in = load_stand_in(Path(__file__).with_name("local_discord.py"))
