"""``nanobot pairing``: let strangers in."""

from __future__ import annotations

import json

from nanobot_core import InboundMessage
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.clock import SystemClock
from tests.integration.cli.conftest import CommandLine


def request(nanobot: CommandLine, sender: str = "5|eve") -> str:
    store = PairingStore(nanobot.home / "gateway" / "pairing.json", SystemClock())
    asked = store.request(
        InboundMessage(channel="telegram", sender_id=sender, chat_id="1", content="hi")
    )
    assert asked is not None
    return asked.code


def test_nobody_waits_at_first(bare: CommandLine) -> None:
    assert bare("pairing", "list").stdout == "No pending requests and no approved senders.\n"
    assert json.loads(bare("pairing", "list", "--json").stdout) == {"pending": [], "approved": []}


def test_a_code_lets_in_once_and_can_be_taken_back(bare: CommandLine) -> None:
    code = request(bare)
    listed = json.loads(bare("pairing", "list", "--json").stdout)
    assert [item["code"] for item in listed["pending"]] == [code]

    assert "can now write on telegram" in bare("pairing", "approve", code).stdout
    assert "unknown or expired code" in bare("pairing", "approve", code, code=1).stderr
    (let_in,) = json.loads(bare("pairing", "list", "--json").stdout)["approved"]
    assert let_in["channel"] == "telegram"

    bare("pairing", "revoke", "telegram", "5")
    assert "is not approved" in bare("pairing", "revoke", "telegram", "5", code=1).stderr
    assert json.loads(bare("pairing", "list", "--json").stdout)["approved"] == []
