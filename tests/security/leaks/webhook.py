"""Chats by webhook: what the program on the other side says and gets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from nanobot_webhook.signature import decode_key, sign
from tests.security.leaks.canaries import PLANTED
from tests.security.leaks.world import GatewayHome

LIMIT_S = 30.0


def say(world: GatewayHome, text: str, *, secret: str = "", **data: Any) -> str:
    """Post a message as who knows the webhook's secret; return the whole answer to the request."""
    content = {"chat_id": "room", "sender_id": "owner", "content": text, **data}
    body = json.dumps({"type": "message.created", "data": content}).encode()
    message_id, now = uuid4().hex, int(time.time())
    key = decode_key(secret or PLANTED["secret of the webhook"])
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": sign(key, message_id, now, body),
    }
    return world.get("/webhook", method="POST", content=body, headers=headers)


def heard(world: GatewayHome, chat_id: str) -> list[str]:
    """Return the texts that a chat has got."""
    data = [json.loads(body)["data"] for body in world.services.heard]
    return [one["content"] for one in data if one["chat_id"] == chat_id]


def shown(world: GatewayHome, chat_id: str, count: int = 1) -> list[str]:
    """Wait until a chat has got `count` texts, and return all."""
    wait(lambda: len(heard(world, chat_id)) >= count)
    return heard(world, chat_id)


def wait(holds: Callable[[], bool]) -> None:
    """Wait for what happens in another process, which nothing here can await."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
