"""Senders of messages: names that people choose for themselves do not change who they are."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from nanobot_core import Assignment, Requester
from nanobot_core.errors import BusError
from tests.gateways import Platform, running, until, write_config

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


async def test_work_for_an_id_that_cannot_be_seen_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path)
    async with running(tmp_path) as bot:
        gateway = (await bot.plugins.context_for("chatty")).gateway
        assert gateway is not None
        for sender, chat in (("mallory\u202e", "1"), ("mallory", "1\n2")):
            requester = Requester(channel="chatty", sender_id=sender, chat_id=chat)
            work = Assignment(plugin="p", id="1", source="service", requester=requester)
            with pytest.raises(BusError, match="not stored: the"):
                await gateway.assign(work, "hello")


async def test_strangers_use_up_nothing_of_a_program_that_signs(tmp_path: Path) -> None:
    pytest.importorskip("nanobot_http")
    signature = pytest.importorskip("nanobot_webhook.signature")
    key = bytes(range(32))
    webhook: dict[str, Any] = {
        "secret": f"whsec_{base64.b64encode(key).decode()}",
        "callback_url": "http://127.0.0.1:9/",
        "allow_from": ["thermostat"],
        "pairing": False,
    }
    data = {"chat_id": "kitchen", "sender_id": "thermostat", "content": "31 degrees"}
    body = json.dumps({"type": "message.created", "data": data}).encode()
    now = int(time.time())
    signed = {"webhook-id": "msg_1", "webhook-timestamp": str(now)}
    signed["webhook-signature"] = signature.sign(key, "msg_1", now, body)
    strangers: tuple[dict[str, str], ...] = (
        {"origin": "https://evil.example"},
        {},
        {**signed, "webhook-signature": "v1,forged"},
    )
    write_config(
        tmp_path,
        plugins=["http", "webhook"],
        gateway={"http": {"requests_per_minute": 4}},
        channels={"webhook": webhook},
    )
    async with running(tmp_path):
        await until(lambda: bool(list(tmp_path.glob("**/http/address"))))
        (file,) = tmp_path.glob("**/http/address")
        async with httpx.AsyncClient(
            base_url=file.read_text().strip(), trust_env=False, timeout=10
        ) as client:
            for headers in strangers:
                for _ in range(5):
                    answer = await client.post("/webhook", content=body, headers=headers)
                    assert answer.status_code in {401, 403, 429}
            answer = await client.post("/webhook", content=body, headers=signed)
            assert (answer.status_code, answer.json()) == (200, {"stored": True})
