"""Who a message comes from: what people choose for themselves makes nobody another sender."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core import InboundMessage
from nanobot_core.errors import BusError
from tests.gateways import Platform, running, write_config

pytestmark = pytest.mark.anyio


async def test_an_id_with_the_owners_name_behind_a_bar_is_not_the_owner(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, owner=["chatty:boss"])
        async with running(tmp_path):
            await platform.say("/plugins", chat="1", sender="mallory|boss")
            await platform.say("/plugins", chat="2", sender="mallory")
            await platform.shows("for the owner only", chat="2")
            await platform.say("/plugins", chat="3", sender="boss")
            await platform.shows("- chatty", chat="3")
    assert platform.texts("1") == []


async def test_a_plugin_that_hands_on_such_an_id_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, owner=["chatty:boss"])
    async with running(tmp_path) as bot:
        gateway = (await bot.plugins.context_for("chatty")).gateway
        assert gateway is not None
        for sender, chat in (("mallory|boss", "1"), ("mallory", "1\n2")):
            forged = InboundMessage(
                channel="chatty", sender_id=sender, chat_id=chat, content="/plugins"
            )
            with pytest.raises(BusError, match="not stored: the"):
                await gateway.publish(forged)
