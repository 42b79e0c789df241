"""Which memory a message reads and adds to."""

from __future__ import annotations

import pytest

from nanobot_core import OWNERS_MEMORY, InboundMessage
from nanobot_core.turns.memory import Sharing, memory_of

OWNER, GUEST = "1|ada", "2|eve"


@pytest.mark.parametrize(
    ("sharing", "sender", "is_group", "expected"),
    [
        ("sender", OWNER, False, OWNERS_MEMORY),
        ("sender", OWNER, True, "chat/telegram:-7"),
        ("sender", GUEST, False, "sender/telegram:2"),
        ("sender", GUEST, True, "chat/telegram:-7"),
        ("chat", OWNER, False, "chat/telegram:-7"),
        ("chat", GUEST, True, "chat/telegram:-7"),
        ("channel", OWNER, False, "channel/telegram"),
        ("channel", GUEST, True, "channel/telegram"),
        ("shared", GUEST, True, OWNERS_MEMORY),
    ],
)
def test_a_chat_message(sharing: Sharing, sender: str, is_group: bool, expected: str) -> None:
    message = InboundMessage(
        channel="telegram", sender_id=sender, chat_id="-7", content="", is_group=is_group
    )
    assert memory_of(message, "chat", sharing, is_owner=sender == OWNER) == expected


@pytest.mark.parametrize("sharing", ["sender", "chat", "channel", "shared"])
def test_the_terminal_of_the_owner_has_the_owners_memory(sharing: Sharing) -> None:
    message = InboundMessage(channel="cli", sender_id="me", chat_id="direct", content="")
    assert memory_of(message, "cli", sharing, is_owner=True) == OWNERS_MEMORY


def test_an_api_caller_who_is_not_the_owner_has_a_memory_of_their_own() -> None:
    message = InboundMessage(channel="api", sender_id="x", chat_id="y", content="")
    assert memory_of(message, "api", "sender", is_owner=False) == "sender/api:x"
