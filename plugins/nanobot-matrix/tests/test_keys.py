"""Keys and files as others may send them, the vault, and the check of nanobot doctor."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core.chat import CallFailed
from nanobot_core.testing import FakePluginContext
from nanobot_matrix import wire
from nanobot_matrix.attachment import SealedFile, open_file, seal_file
from nanobot_matrix.check import check_encryption

pytest.importorskip("vodozemac", reason="the extra 'e2e' is not installed")
pytest.importorskip("cryptography", reason="the extra 'e2e' is not installed")

from vodozemac import GroupSession, InboundGroupSession

from nanobot_matrix import unread
from nanobot_matrix.megolm import ReceivedKeys, Rule, Why
from nanobot_matrix.olm import OwnDevice, Whisper
from nanobot_matrix.roster import Roster
from nanobot_matrix.signature import devices_of, is_signed
from nanobot_matrix.vault import Keys, Vault

pytestmark = pytest.mark.anyio
AGENT, ANNA = "@nano:example.org", "@anna:example.org"
MEGOLM, OLM = "m.megolm.v1.aes-sha2", "m.olm.v1.curve25519-aes-sha2"
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["\ud800", "A" * 43, ANNA, "PHONE", "ed25519:PHONE", "curve25519:PHONE", MEGOLM, OLM, "v2"]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def objects(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), JSON, max_size=len(names))


@given(JSON)
def test_any_devices_are_unknown_unless_they_are_signed(found: object) -> None:
    keys = {ANNA: found}
    answer = wire.DeviceKeys(device_keys=keys, master_keys=keys, self_signing_keys=keys)
    assert devices_of(ANNA, answer) == []


@given(objects("signatures", "unsigned", "keys"), TEXTS)
def test_nothing_is_signed_by_chance(found: dict[str, Any], key: str) -> None:
    assert not is_signed(found, ANNA, "PHONE", key)


@given(objects("algorithm", "rotation_period_msgs", "rotation_period_ms"))
def test_any_rule_of_a_room_is_within_bounds(content: dict[str, Any]) -> None:
    rule = Rule.read(content)
    assert 1 <= rule.messages <= 10_000
    assert 3_600 <= rule.period_s <= 28 * 86_400


@given(objects("url", "key", "iv", "hashes", "v"))
def test_any_file_is_read_or_left_out(found: dict[str, Any]) -> None:
    file = SealedFile.read(found)
    assert file is None or SealedFile.parse(file.ref) == file


@given(st.binary(max_size=300), st.integers(1, 50))
async def test_a_file_is_read_as_it_was_written(content: bytes, size: int) -> None:
    sealed, file = seal_file(content)

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(sealed), size):
            yield sealed[at : at + size]

    assert b"".join([part async for part in open_file(file, parts())]) == content


def opened(file: Path) -> tuple[Vault, Any]:
    return Vault(file), partial(OwnDevice.open, user_id=AGENT, device_id="NANO")


@settings(max_examples=60)
@given(
    objects("algorithm", "sender_key", "ciphertext"),
    objects("algorithm", "session_id", "ciphertext", "m.relates_to"),
    objects("algorithm", "room_id", "session_id", "session_key", "sender_key"),
)
async def test_no_content_of_others_breaks_the_vault(
    olm: dict[str, Any], megolm: dict[str, Any], key: dict[str, Any]
) -> None:
    with TemporaryDirectory() as folder:
        vault, begin = opened(Path(folder) / "keys.db")
        own = await vault.run(begin)
        received = ReceivedKeys(own, Roster(AGENT, {}, listed_only=False))

        def received_all(keys: Keys) -> None:
            with pytest.raises(ValueError, match=r"."):
                own.decrypt(keys, wire.ToDevice(sender=ANNA, content=olm), 1)
            for kind in ("m.room_key", "m.forwarded_room_key"):
                with pytest.raises(ValueError, match=r"."):
                    received.add(keys, Whisper(ANNA, "A", "B", kind, key))
            event = wire.Event(event_id="$e", sender=ANNA, content=megolm)
            assert received.open(keys, "!room", event) in {Why.FORGED, Why.NO_KEY}
            unread.keep(keys, "!room", event, Why.NO_KEY.value, 1)
            (waiting,) = unread.waiting(keys, 2)
            assert waiting.event == event

        try:
            await vault.run(received_all)
        finally:
            await vault.aclose()


async def test_a_forwarded_key_counts_only_from_the_device_that_made_it(tmp_path: Path) -> None:
    vault, begin = opened(tmp_path / "keys.db")
    received = ReceivedKeys(await vault.run(begin), Roster(AGENT, {}, listed_only=False))
    exported = InboundGroupSession(GroupSession().session_key).export_at(0)
    assert exported is not None
    session = InboundGroupSession.import_session(exported)
    content = {
        "algorithm": MEGOLM,
        "room_id": "!room",
        "session_id": session.session_id,
        "session_key": exported.to_base64(),
        "sender_key": "A",
        "sender_claimed_ed25519_key": "B",
    }
    for sender_key, ed25519 in (("C", "B"), ("A", "D")):
        other = Whisper(ANNA, sender_key, ed25519, "m.forwarded_room_key", content)
        with pytest.raises(CallFailed, match="another device"):
            await vault.run(partial(received.add, whisper=other))
    maker = Whisper(ANNA, "A", "B", "m.forwarded_room_key", content)
    assert await vault.run(partial(received.add, whisper=maker))
    assert not await vault.run(partial(received.add, whisper=maker))
    await vault.aclose()


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    vault, _ = opened(tmp_path / "keys.db")

    def fill(keys: Keys) -> list[unread.Unread]:
        for number in range(700):
            event = wire.Event(event_id=f"${number}", sender=ANNA)
            unread.keep(keys, f"!room{number % 10}", event, Why.NO_KEY.value, number)
        for number in range(100):
            event = wire.Event(event_id=f"$one{number}", sender=ANNA)
            unread.keep(keys, "!one", event, Why.NO_KEY.value, 700 + number)
        return unread.waiting(keys, 800)

    found = await vault.run(fill)
    await vault.aclose()
    assert len(found) <= 300
    assert [each.event.event_id for each in found if each.room == "!one"] == [
        f"$one{number}" for number in range(50, 100)
    ]


async def test_a_failed_operation_changes_nothing(tmp_path: Path) -> None:
    vault, begin = opened(tmp_path / "keys.db")
    own = await vault.run(begin)

    def fail(keys: Keys) -> None:
        own.new_keys(keys, 0, 1, has_fallback=False)
        raise OSError(28, "No space left on device")

    before = await vault.run(lambda keys: keys.value("account"))
    with pytest.raises(CallFailed, match="No space left"):
        await vault.run(fail)
    assert await vault.run(lambda keys: keys.value("account")) == before
    await vault.aclose()


async def test_two_vaults_share_a_file(tmp_path: Path) -> None:
    one, begin = opened(tmp_path / "keys.db")
    other, _ = opened(tmp_path / "keys.db")
    found = await asyncio.gather(*(vault.run(begin) for vault in (one, other, one, other)))
    await one.aclose()
    await other.aclose()
    assert len(set(found)) == 1


async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "keys.db"
    file.write_bytes(b"damaged" * 1_000)
    vault, begin = opened(file)
    with pytest.raises(CallFailed, match=r"keys\.db"):
        await vault.run(begin)
    await vault.aclose()
    assert file.read_bytes() == b"damaged" * 1_000


async def test_the_check_counts_what_waits(tmp_path: Path) -> None:
    async with FakePluginContext(tmp_path, settings={}, plugin_id="matrix") as ctx:
        assert (await check_encryption(ctx)).status == "ok"
        vault, begin = opened(ctx.data_dir / "keys-1.db")
        await vault.run(begin)

        def keep(keys: Keys) -> None:
            unread.keep(keys, "!room", wire.Event(event_id="$e"), Why.NO_KEY.value, 1)
            unread.count(keys, "!room")

        await vault.run(keep)
        for _ in range(2):
            found = await check_encryption(ctx)
            assert found.status == "warning"
            assert "1 so far, 1 waiting for a key" in found.message
            # Without a gateway, no one has the file open.
            await vault.aclose()
        file = ctx.data_dir / "keys-2.db"
        file.write_bytes(b"damaged" * 1_000)
        assert (await check_encryption(ctx)).status == "error"


async def test_a_link_is_not_opened(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as database:
        database.execute("CREATE TABLE x (y)")
    (tmp_path / "keys.db").symlink_to(tmp_path / "theirs.db")
    vault, begin = opened(tmp_path / "keys.db")
    with pytest.raises(CallFailed, match=r"keys\.db"):
        await vault.run(begin)
    await vault.aclose()
