"""The gateway's commands as slash commands."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nanobot_core import shorten

if TYPE_CHECKING:
    from nanobot_core.chat import Records
    from nanobot_discord.client import Client

_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_MOST_COMMANDS = 100
_SUMMARY_CHARS = 100
_TEXT_OPTION = {"type": 3, "name": "text", "description": "what follows the command"}


async def offer_commands(client: Client, records: Records, offered: Mapping[str, str]) -> None:
    """Register the gateway's commands with Discord, if they have changed.

    Raises:
        CallFailed: Discord did not accept them.
    """
    commands: list[dict[str, Any]] = [
        {
            "name": name,
            "description": shorten(" ".join(summary.split()) or name, _SUMMARY_CHARS),
            "options": [_TEXT_OPTION],
        }
        for name, summary in offered.items()
        if _NAME.fullmatch(name)
    ][:_MOST_COMMANDS]
    application = await client.application()
    # Discord counts new registrations.
    key = f"commands of {application.id}"
    digest = hashlib.sha256(json.dumps(commands).encode()).hexdigest()
    with suppress(OSError):
        if await records.get(key) == digest:
            return
    await client.set_commands(application.id, commands)
    with suppress(OSError):
        await records.put(key, digest)
