"""Mode bridge: the contract of channels, and what is special about a bridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest
from pydantic import ValidationError

from nanobot_core import (
    Button,
    Channel,
    DeliveryError,
    LoginPrompt,
    OutboundMessage,
    SystemClock,
)
from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import (
    ChannelContract,
    FakeGateway,
    FakePluginContext,
    RecordingInbox,
    StandInPlatform,
    load_stand_in,
)
from nanobot_whatsapp.bridge_frames import MessageFrame, identity_of, read_frame
from nanobot_whatsapp.bridge_line import failure_of
from nanobot_whatsapp.channel import build_channel
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.timing import TimeLimits

LocalBridge: TypeAlias = Any
_LOCAL = load_stand_in(Path(__file__).with_name("bridge_server.py"))
_QUICK = TimeLimits(refusal_s=0.05, qr_s=0.2, scan_s=0.2, call_s=2.0)
_PHONE = "4915100000001"
_CHAT = f"{_PHONE}@s.whatsapp.net"


def build(ctx: FakePluginContext) -> Channel:
    return build_channel(ctx, _QUICK)


class TestBridgeChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return StandInPlatform(_LOCAL(), build, tmp_path)


@pytest.fixture
async def bridge() -> AsyncIterator[LocalBridge]:
    async with _LOCAL() as bridge:
        yield bridge


class Running:
    """A channel that runs.

    Attributes:
        failures: errors that ended it.
        ended: it has ended.
    """

    def __init__(self, channel: ChatChannel, inbox: RecordingInbox) -> None:
        self.channel = channel
        self.inbox = inbox
        self.failures: list[CallFailed] = []
        self.ended = asyncio.Event()

    async def run(self) -> None:
        try:
            await self.channel.start(self.inbox)
        except CallFailed as error:
            self.failures.append(error)
        finally:
            self.ended.set()

    async def send(self, content: str, chat_id: str = _CHAT, **fields: Any) -> None:
        await self.channel.send(
            OutboundMessage(channel="whatsapp", chat_id=chat_id, content=content, **fields)
        )


@asynccontextmanager
async def opened(
    bridge: LocalBridge, folder: Path, limits: TimeLimits = _QUICK, **section: Any
) -> AsyncIterator[Running]:
    ctx = FakePluginContext(
        folder,
        settings=bridge.section() | section,
        plugin_id="whatsapp",
        clock=SystemClock(),
        gateway=FakeGateway(),
    )
    running = Running(build_channel(ctx, limits), RecordingInbox())
    async with asyncio.timeout(10), ctx, asyncio.TaskGroup() as group:
        task = group.create_task(running.run())
        try:
            async with asyncio.timeout(5):
                while not running.inbox.contacts and not task.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            yield running
        finally:
            await running.channel.stop()


async def test_a_wrong_token_is_one_sentence(bridge: LocalBridge, tmp_path: Path) -> None:
    async with opened(bridge, tmp_path, bridge_token="wrong") as running:
        pass

    (failure,) = running.failures
    assert failure.cause is Cause.CREDENTIALS
    assert "channels.whatsapp.bridge_token" in failure.reason
    assert "wrong" not in failure.reason.replace("not accept", "")


async def test_the_handshake_has_no_origin(bridge: LocalBridge, tmp_path: Path) -> None:
    async with opened(bridge, tmp_path):
        assert "origin" not in {name.lower() for name in bridge.headers}


async def test_a_bridge_without_a_phone_is_reported(bridge: LocalBridge, tmp_path: Path) -> None:
    bridge.qr = "2@code"
    async with opened(bridge, tmp_path) as running:
        await running.ended.wait()

    assert "nanobot channels login whatsapp" in running.failures[0].reason


async def test_one_command_is_sent_at_a_time(bridge: LocalBridge, tmp_path: Path) -> None:
    async with opened(bridge, tmp_path) as running:
        bridge.outcomes.append(None)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(running.send("one"))
            await asyncio.sleep(0.05)
            group.create_task(running.send("two"))
            await asyncio.sleep(0.05)
            assert [command["text"] for command in bridge.commands] == ["one"]
            await bridge.broadcast({"type": "sent", "to": _CHAT})
        assert first.done()

    assert [command["text"] for command in bridge.commands] == ["one", "two"]


async def test_a_result_of_an_abandoned_command_does_not_count_for_the_next(
    bridge: LocalBridge, tmp_path: Path
) -> None:
    async with opened(bridge, tmp_path) as running:

        async def refused() -> None:
            with pytest.raises(DeliveryError, match="no such number"):
                await running.send("two")

        bridge.outcomes += [None, None]
        async with asyncio.TaskGroup() as group:
            first = group.create_task(running.send("one"))
            await asyncio.sleep(0.05)
            first.cancel()
            second = group.create_task(refused())
            await asyncio.sleep(0.05)
            await bridge.broadcast({"type": "sent", "to": _CHAT})
            await asyncio.sleep(0.05)
            assert not second.done()
            await bridge.broadcast({"type": "error", "error": "Error: no such number"})

    assert second.done()


async def test_a_command_without_a_result_ends_the_connection(
    bridge: LocalBridge, tmp_path: Path
) -> None:
    limits = TimeLimits(refusal_s=0.05, call_s=0.05)
    async with opened(bridge, tmp_path, limits) as running:
        bridge.outcomes.append(None)
        with pytest.raises(DeliveryError, match="did not answer in time") as raised:
            await running.send("one")
        await running.ended.wait()

    assert raised.value.retryable


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("Error: Not connected", Cause.UNREACHABLE),
        ("Error: Connection Closed", Cause.UNREACHABLE),
        ("Error: Timed Out", Cause.UNREACHABLE),
        ("Error: Connection lost", Cause.UNREACHABLE),
        ("Error: rate-overlimit", Cause.UNREACHABLE),
        ("Error: ENOENT: no such file", Cause.REFUSED),
        ("", Cause.REFUSED),
    ],
)
def test_errors_of_the_bridge_have_a_cause(error: str, cause: Cause) -> None:
    assert failure_of(error).cause is cause


async def test_files_are_accepted_from_one_folder(bridge: LocalBridge, tmp_path: Path) -> None:
    folder, outside = tmp_path / "media", tmp_path / "secret.txt"
    folder.mkdir()
    outside.write_bytes(b"secret")
    (folder / "wa_1.ogg").write_bytes(b"OggS")
    (folder / "link").symlink_to(outside)
    async with opened(bridge, tmp_path, bridge_media_dir=str(folder)) as running:
        for number, path in enumerate(
            (folder / "wa_1.ogg", outside, folder / "link", folder / ".." / "secret.txt", folder)
        ):
            frame = {"id": str(number), "sender": _CHAT, "content": "[Voice Message]"}
            await bridge.broadcast({"type": "message", **frame, "media": [str(path)]})
        await running.inbox.wait_for_stored(5)

    accepted, *refused = running.inbox.stored
    assert (accepted.content, Path(accepted.media[0]).read_bytes()) == ("", b"OggS")
    assert all(not message.media for message in refused)
    assert all("bridge_media_dir" in message.content for message in refused)


async def test_files_and_buttons_are_sent(bridge: LocalBridge, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    async with opened(bridge, tmp_path) as running:
        await running.send("see", media=(str(tmp_path / "a.png"),))
        await running.send("read", media=(str(tmp_path / "a.pdf"),))
        await running.send("Run?", buttons=((Button("Allow", "/approve 1"),),))
        with pytest.raises(DeliveryError, match="not a chat"):
            await running.send("hello", chat_id="status@broadcast")

    shown = [(each.text, [file.name for file in each.files]) for each in bridge.shown(_CHAT)]
    assert shown == [
        ("see", ["a.png"]),
        ("read", []),
        ("", ["a.pdf"]),
        ("Run?\n\nAllow: write /approve 1", []),
    ]


async def test_a_hidden_number_is_the_same_person(bridge: LocalBridge, tmp_path: Path) -> None:
    frame = {"type": "message", "content": "hi"}
    async with opened(bridge, tmp_path) as running:
        await bridge.broadcast({**frame, "id": "1", "sender": "77@lid"})
        await bridge.broadcast({**frame, "id": "2", "sender": "77@lid", "pn": _CHAT})
        await running.inbox.wait_for_stored(2)
    async with opened(bridge, tmp_path) as again:
        await bridge.broadcast({**frame, "id": "3", "sender": "77:4@lid"})
        await again.inbox.wait_for_stored(1)

    found = [(m.sender_id, m.chat_id) for m in (*running.inbox.stored, *again.inbox.stored)]
    assert found == [("77@lid", "77@lid"), (_PHONE, "77@lid"), (_PHONE, "77@lid")]


_GROUP = "120363000000000001@g.us"


@pytest.mark.parametrize(
    ("fields", "sender_id", "is_addressed"),
    [
        ({"participant": _CHAT}, _PHONE, False),
        ({"participant": "77@lid", "pn": _PHONE}, _PHONE, False),
        ({"participant": "77@lid"}, "77@lid", False),
        ({"participant": f"{_PHONE}:12@s.whatsapp.net", "wasMentioned": True}, _PHONE, True),
        ({"participant": _CHAT, "isReplyToBot": True}, _PHONE, True),
        ({"pn": _GROUP}, _GROUP, False),
        ({}, _GROUP, False),
    ],
)
def test_a_message_of_a_group_is_its_authors(
    fields: dict[str, Any], sender_id: str, is_addressed: bool
) -> None:
    frame = MessageFrame.model_validate(
        {"id": "1", "sender": _GROUP, "isGroup": True, "content": "hi", **fields}
    )
    received = read_frame(frame, identity_of(frame).sender_id())

    assert received is not None
    assert (received.message.sender_id, received.message.chat_id) == (sender_id, _GROUP)
    assert (received.message.is_group, received.message.is_addressed) == (True, is_addressed)


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": "@4915100000009 /status", "wasMentioned": True}, "/status"),
        ({"content": "hi", "isForwarded": True}, "[forwarded from an unknown sender]\nhi"),
        ({"content": "[Image]", "media": ["/m/a.jpg"]}, ""),
        ({"content": "[Voice Message]", "media": None}, "[Voice Message]"),
        ({"content": "hi", "fromMe": True}, None),
        ({"content": "hi", "sender": "status@broadcast"}, None),
        ({"content": "hi", "sender": "1@newsletter"}, None),
        ({"content": ""}, None),
    ],
)
def test_frames_become_messages(fields: dict[str, Any], content: str | None) -> None:
    frame = MessageFrame.model_validate({"id": "1", "sender": _CHAT, **fields})
    received = read_frame(frame, _PHONE)

    assert (received.message.content if received else None) == content


async def test_garbage_from_the_bridge_is_dropped(bridge: LocalBridge, tmp_path: Path) -> None:
    async with opened(bridge, tmp_path) as running:
        for content in ("{", "[]", "7", '{"type": "message"}', '{"type": "new"}', '{"type": 7}'):
            await bridge.broadcast(content)
        await bridge.broadcast({"type": "message", "id": "1", "sender": "a b", "content": "x"})
        await bridge.broadcast({"type": "status", "status": "disconnected"})
        await bridge.broadcast({"type": "error", "error": "x"})
        await bridge.say("after")
        await running.inbox.wait_for_stored(1)

    assert [message.content for message in running.inbox.attempts] == ["after"]


class Prompt(LoginPrompt):
    """A person who looks at codes and does nothing else."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    async def scan(self, text: str) -> None:
        self.codes.append(text)

    async def note(self, text: str) -> None: ...

    async def show(self, address: str, *, code: str = "", limit_s: float) -> None: ...

    async def pasted(self) -> str:
        raise NotImplementedError


class TestLogin:
    """``nanobot channels login whatsapp``: signs in outside a gateway."""

    LIMITS: ClassVar[TimeLimits] = _QUICK

    @pytest.fixture(autouse=True)
    def given_prompt(self) -> None:
        self.prompt = Prompt()

    async def login(self, bridge: LocalBridge, folder: Path) -> str:
        ctx = FakePluginContext(folder, settings=bridge.section(), clock=SystemClock())
        channel = build_channel(ctx, self.LIMITS)
        try:
            return await channel.login(self.prompt)
        finally:
            await channel.stop()

    async def test_the_code_is_shown_until_it_is_scanned(
        self, bridge: LocalBridge, tmp_path: Path
    ) -> None:
        bridge.qr = "2@code"
        async with asyncio.TaskGroup() as group:
            login = group.create_task(self.login(bridge, tmp_path))
            await asyncio.sleep(0.1)
            await bridge.scan()

        assert "linked to a phone now" in login.result()
        assert self.prompt.codes == ["2@code"]

    async def test_a_code_that_nobody_scans_is_an_error(
        self, bridge: LocalBridge, tmp_path: Path
    ) -> None:
        bridge.qr = "2@code"
        with pytest.raises(CallFailed, match="not scanned"):
            await self.login(bridge, tmp_path)

    async def test_without_a_code_the_phone_is_linked(
        self, bridge: LocalBridge, tmp_path: Path
    ) -> None:
        assert "linked to a phone already" in await self.login(bridge, tmp_path)


@pytest.mark.parametrize(
    "url", ["ws://bridge.example.org:3001", "wss://127.0.0.1", "http://localhost:3001", "x"]
)
def test_the_bridge_is_on_this_computer(url: str) -> None:
    with pytest.raises(ValidationError, match="this computer"):
        WhatsAppSettings.model_validate({"bridge_url": url})


async def test_a_bridge_that_does_not_run_is_one_sentence(
    bridge: LocalBridge, tmp_path: Path
) -> None:
    async with opened(bridge, tmp_path, bridge_url="ws://127.0.0.1:9") as running:
        pass

    assert "start it, or correct channels.whatsapp.bridge_url" in running.failures[0].reason


def test_a_bridge_needs_a_token(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={"mode": "bridge"})
    with pytest.raises(CallFailed, match="BRIDGE_TOKEN"):
        asyncio.run(build_channel(ctx).login())
