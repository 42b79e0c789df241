"""The day of every channel, on the local WhatsApp."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core.testing import ChannelDay, load_stand_in


class TestWhatsAppDay(ChannelDay):
    stand_in = load_stand_in(Path(__file__).with_name("local_whatsapp.py"))


@pytest.mark.long
class TestBridgeDay(ChannelDay):
    stand_in = load_stand_in(Path(__file__).with_name("bridge_server.py"))
