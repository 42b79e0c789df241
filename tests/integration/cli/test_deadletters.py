"""``nanobot deadletters``: messages that could not be delivered or answered."""

from __future__ import annotations

import asyncio
import json

from nanobot_core import OutboundMessage
from nanobot_core.app.lock import gateway_lock
from nanobot_core.bus.sqlite import SqliteBus
from tests.integration.cli.conftest import CommandLine


def bury(nanobot: CommandLine, *texts: str) -> None:
    async def work() -> None:
        folder = nanobot.home / "gateway"
        folder.mkdir(exist_ok=True)
        bus = await SqliteBus.open(folder / "bus.sqlite")
        for text in texts:
            message = OutboundMessage(
                channel="away", chat_id="1", content=text, idempotency_key=text
            )
            await bus.publish_outbound(message)
            await bus.bury(await bus.receive_outbound("away"), "nobody is there")
        await bus.aclose()

    asyncio.run(work())


def test_letters_are_listed_sent_again_and_dropped(nanobot: CommandLine) -> None:
    bury(nanobot, "one", "two")
    letters = json.loads(nanobot("deadletters", "list", "--json").stdout)
    assert {letter["message"]["content"] for letter in letters} == {"one", "two"}
    shown = nanobot("deadletters", "list").stdout
    assert "away:1\tnobody is there\tone" in shown

    nanobot("deadletters", "retry", letters[0]["id"])
    nanobot("deadletters", "drop", letters[1]["id"])

    assert nanobot("deadletters", "list").stdout == "No dead letters.\n"
    again = nanobot("deadletters", "drop", letters[1]["id"], code=1)
    assert "unknown dead letter" in again.stderr


def test_the_queue_is_not_opened_beside_a_gateway_that_starts(nanobot: CommandLine) -> None:
    with gateway_lock(nanobot.home / "gateway"):
        done = nanobot("deadletters", "list", code=1)

    assert "already uses" in done.stderr
