"""Encrypted rooms on a real homeserver: Synapse on the loopback, people with matrix-nio.

It runs where Synapse is installed: in this environment, or in that of the interpreter which
`NANOBOT_SYNAPSE_PYTHON` names.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from nanobot_core import Channel, OutboundMessage, SystemClock
from nanobot_core.testing import FakePluginContext, RecordingInbox
from nanobot_matrix.channel import build_channel

pytest.importorskip("vodozemac", reason="the extra 'e2e' is not installed")
pytest.importorskip("cryptography", reason="the extra 'e2e' is not installed")
nio: Any = pytest.importorskip("nio", reason="matrix-nio[e2e] is not installed")
Client: TypeAlias = Any
"""matrix-nio may be missing."""

from nanobot_matrix.signature import devices_of  # noqa: E402 - it needs the extra
from nanobot_matrix.wire import DeviceKeys  # noqa: E402 - after the checks above

PYTHON = os.environ.get("NANOBOT_SYNAPSE_PYTHON", sys.executable)
HAS_SYNAPSE = sys.executable != PYTHON or importlib.util.find_spec("synapse") is not None
SECRET = "for the tests"
PASSWORD = "open sesame"
AGENT = "@nano:localhost"
ANNA = "@anna:localhost"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HAS_SYNAPSE, reason="Synapse is not installed"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def config(folder: Path, port: int) -> str:
    listener = f"{{port: {port}, type: http, bind_addresses: ['127.0.0.1'], x_forwarded: false,"
    return "\n".join(
        (
            "server_name: localhost",
            f"pid_file: {folder}/pid",
            f"listeners: [{listener} resources: [{{names: [client, media], compress: false}}]}}]",
            f"database: {{name: sqlite3, args: {{database: {folder}/synapse.db}}}}",
            f"media_store_path: {folder}/media",
            f"signing_key_path: {folder}/signing.key",
            f"registration_shared_secret: '{SECRET}'",
            "report_stats: false",
            "trusted_key_servers: []",
            "rc_message: {per_second: 1000, burst_count: 1000}",
        )
    )


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("synapse"), free_port()
    file = folder / "homeserver.yaml"
    file.write_text(config(folder, port))
    command = [PYTHON, "-m", "synapse.app.homeserver", "-c", str(file)]
    subprocess.run([*command, "--generate-keys"], check=True, cwd=folder, timeout=60)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                try:
                    if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                        break
                except httpx.TransportError:
                    assert process.poll() is None, (folder / "log").read_text()
                    signal.sigtimedwait([], 0.1)
            for name in ("nano", "anna"):
                register(url, name)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def register(url: str, name: str) -> None:
    place = f"{url}/_synapse/admin/v1/register"
    nonce = httpx.get(place, trust_env=False).json()["nonce"]
    signed = "\0".join((nonce, name, PASSWORD, "notadmin")).encode()
    body = {
        "nonce": nonce,
        "username": name,
        "password": PASSWORD,
        "admin": False,
        "mac": hmac.new(SECRET.encode(), signed, hashlib.sha1).hexdigest(),
    }
    assert httpx.post(place, json=body, trust_env=False).status_code == 200


@asynccontextmanager
async def person(url: str, folder: Path) -> AsyncIterator[Any]:
    """Yield the client of Anna, which receives all the time."""
    folder.mkdir(exist_ok=True)
    settings = nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=True)
    client = nio.AsyncClient(url, ANNA, store_path=str(folder), config=settings)
    client.said, client.files = [], []
    await client.login(PASSWORD, device_name="phone")
    client.add_event_callback(lambda room, event: client.said.append(event), nio.RoomMessageText)
    client.add_event_callback(
        lambda room, event: client.files.append(event) if event.sender == AGENT else None,
        nio.RoomEncryptedFile,
    )
    receiving = asyncio.create_task(client.sync_forever(timeout=5_000, full_state=True))
    try:
        yield client
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await client.close()


@asynccontextmanager
async def running(url: str, folder: Path, inbox: RecordingInbox) -> AsyncIterator[Channel]:
    settings: dict[str, Any] = {
        "homeserver": url,
        "user_id": AGENT,
        "password": PASSWORD,
        "allow_from": [ANNA],
        "e2ee_enabled": True,
    }
    ctx = FakePluginContext(folder, settings=settings, plugin_id="matrix", clock=SystemClock())
    channel = build_channel(ctx)
    async with asyncio.timeout(120), ctx, asyncio.TaskGroup() as group:
        group.create_task(channel.start(inbox))
        try:
            yield channel
        finally:
            await channel.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.05)


async def say(client: Client, room: str, text: str) -> None:
    content = {"msgtype": "m.text", "body": text}
    sent = await client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
    assert isinstance(sent, nio.RoomSendResponse), sent


async def send_file(client: Client, room: str, content: bytes) -> None:
    uploaded, keys = await client.upload(
        io.BytesIO(content), content_type="text/plain", encrypt=True, filesize=len(content)
    )
    body = {"msgtype": "m.file", "body": "a.txt", "file": {**keys, "url": uploaded.content_uri}}
    sent = await client.room_send(room, "m.room.message", body, ignore_unverified_devices=True)
    assert isinstance(sent, nio.RoomSendResponse), sent


async def opened_file(url: str, client: Client) -> bytes:
    (event,) = client.files
    place = event.url.removeprefix("mxc://")
    found = await asyncio.to_thread(
        httpx.get,
        f"{url}/_matrix/client/v1/media/download/{place}",
        headers={"Authorization": f"Bearer {client.access_token}"},
        trust_env=False,
    )
    keys = (event.key["k"], event.hashes["sha256"], event.iv)
    opened: bytes = nio.crypto.attachments.decrypt_attachment(found.content, *keys)
    return opened


async def test_an_encrypted_chat_on_synapse(synapse: str, tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with person(synapse, tmp_path / "anna") as anna:
        async with running(synapse, tmp_path / "nano", inbox) as channel:
            await until(lambda: bool(channel.account))
            assert "fingerprint" in channel.account
            asked = await anna.send(
                "POST",
                "/_matrix/client/v3/keys/query",
                json.dumps({"device_keys": {AGENT: []}}),
                {"Authorization": f"Bearer {anna.access_token}"},
            )
            (device,) = devices_of(AGENT, DeviceKeys.model_validate(await asked.json()))
            assert device.master
            made = await anna.room_create(
                invite=[AGENT],
                is_direct=True,
                initial_state=[nio.EnableEncryptionBuilder().as_dict()],
            )
            room = made.room_id
            await until(lambda: room in anna.rooms and AGENT in anna.rooms[room].users)
            await until(lambda: anna.rooms[room].encrypted)
            await until(lambda: not anna.rooms[room].invited_users)
            await say(anna, room, "hello")
            await inbox.wait_for_stored(1)
            chat = inbox.stored[0].chat_id
            await channel.send(OutboundMessage(channel="matrix", chat_id=chat, content="**hi**"))
            await until(lambda: any(event.body == "hi" for event in anna.said))
            assert next(event for event in anna.said if event.body == "hi").decrypted
            await send_file(anna, room, b"their file")
            await inbox.wait_for_stored(2)
            (path,) = inbox.stored[1].media
            assert await asyncio.to_thread(Path(path).read_bytes) == b"their file"
            plan = tmp_path / "plan.txt"
            plan.write_bytes(b"the plan")
            await channel.send(
                OutboundMessage(channel="matrix", chat_id=chat, content="", media=(str(plan),))
            )
            await until(lambda: bool(anna.files))
            assert await opened_file(synapse, anna) == b"the plan"
        await say(anna, room, "while it was down")
        async with running(synapse, tmp_path / "nano", inbox) as channel:
            await inbox.wait_for_stored(3)
            await channel.send(OutboundMessage(channel="matrix", chat_id=chat, content="back"))
            await until(lambda: any(event.body == "back" for event in anna.said))
    assert [message.content for message in inbox.stored] == ["hello", "", "while it was down"]
