"""The contract of channels, with the local WhatsApp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nanobot_core import Channel
from nanobot_core.testing import ChannelContract, FakePluginContext, StandInPlatform, load_stand_in
from nanobot_whatsapp.channel import build_channel
from nanobot_whatsapp.webhook import build_app


class TestWhatsAppChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        local: Any = load_stand_in(Path(__file__).with_name("local_whatsapp.py"))()

        def build(ctx: FakePluginContext) -> Channel:
            local.app = build_app(ctx)
            return build_channel(ctx)

        return StandInPlatform(local, build, tmp_path)
