"""What the plugin stores on disk."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from nanobot_mcp.offers import Offer, OfferStore, tool_offer
from nanobot_mcp.process import ServerLog
from nanobot_mcp.settings import ServerSettings

SERVER = ServerSettings(command="program", args=("--key", "x"))
OFFERS: tuple[Offer, ...] = (tool_offer("a", "A tool.", {"type": "object"}, {"read_only": True}),)


def test_offers_are_found_again_for_the_same_server_only(tmp_path: Path) -> None:
    store = OfferStore(tmp_path / "offers")
    assert store.load("a", SERVER) is None

    store.save("a", SERVER, OFFERS)

    assert store.load("a", SERVER) == OFFERS
    assert store.load("a", ServerSettings(command="program")) is None
    assert store.load("b", SERVER) is None
    (file,) = (tmp_path / "offers").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "{}", '{"key": 1}', "\udcff".encode("utf-8", "surrogatepass")]
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: str | bytes) -> None:
    store = OfferStore(tmp_path)
    store.save("a", SERVER, OFFERS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage.encode() if isinstance(damage, str) else damage)

    assert store.load("a", SERVER) is None


def test_damaged_offers_count_as_none(tmp_path: Path) -> None:
    store = OfferStore(tmp_path)
    store.save("a", SERVER, OFFERS)
    (file,) = tmp_path.iterdir()
    record = json.loads(file.read_text())
    del record["offers"][0]["name"]
    file.write_text(json.dumps(record))

    assert store.load("a", SERVER) is None


def test_the_log_is_private_and_never_larger_than_twice_its_size(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "logs" / "a.log", 1_000)
    for number in range(1_000):
        log.write(f"line {number}\n".encode())
    log.write(b"x" * 5_000)

    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["a.log", "a.log.1"]
    assert all(file.stat().st_size <= 1_000 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)


def test_a_log_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")

    ServerLog(tmp_path / "logs" / "a.log", 1_000).write(b"words")
