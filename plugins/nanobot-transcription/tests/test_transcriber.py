"""What a service is sent, and what comes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import AuthenticationFailed, BadRequest, JsonObject
from nanobot_core.testing import FakePluginContext
from nanobot_transcription.transcriber import build_transcriber

if TYPE_CHECKING:
    from conftest import Serving


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(20):
        yield


async def test_a_recording_becomes_text(serving: Serving) -> None:
    async with serving() as desk:
        assert await desk.transcriber.transcribe(desk.recording) == "hello there"


async def test_the_service_gets_the_recording_byte_for_byte(serving: Serving) -> None:
    async with serving() as desk:
        data = b"OggS" + os.urandom(2_000_000)
        desk.recording.write_bytes(data)
        await desk.transcriber.transcribe(desk.recording)

        (upload,) = desk.service.uploads
        assert upload.data == data
        assert upload.path == "/v1/audio/transcriptions"
        assert upload.headers["authorization"] == "Bearer sk-canary"
        assert upload.fields == {"model": "whisper-1", "response_format": "json"}


async def test_a_telegram_voice_message_is_called_ogg_and_reports_nothing_of_the_sender(
    serving: Serving,
) -> None:
    async with serving() as desk:
        assert desk.recording.name == "voice message of Ann.oga"
        await desk.transcriber.transcribe(desk.recording)
        assert desk.service.uploads[0].filename == "recording.ogg"
        assert desk.service.uploads[0].media_type == "audio/ogg"


async def test_model_and_language_are_those_of_the_settings(serving: Serving) -> None:
    async with serving(model="large", language="de") as desk:
        await desk.transcriber.transcribe(desk.recording)
        fields = desk.service.uploads[0].fields
        assert fields == {"model": "large", "language": "de", "response_format": "json"}


async def test_a_local_server_is_asked_without_a_key(serving: Serving) -> None:
    async with serving(apiKey="") as desk:
        await desk.transcriber.transcribe(desk.recording)
        assert "authorization" not in desk.service.uploads[0].headers


async def test_silence_is_an_empty_text(serving: Serving) -> None:
    async with serving({"body": b'{"text": "  "}'}) as desk:
        assert await desk.transcriber.transcribe(desk.recording) == ""


async def test_text_of_all_scripts_comes_back(serving: Serving) -> None:
    body = '{"text": "Grüße, 你好, שלום", "segments": []}'.encode()
    async with serving({"body": body}) as desk:
        assert await desk.transcriber.transcribe(desk.recording) == "Grüße, 你好, שלום"


async def test_many_recordings_at_once_are_sent_four_at_a_time(serving: Serving) -> None:
    stalled: JsonObject = {"stop_after_bytes": 0, "stop": "stall"}
    async with serving(*[stalled] * 4) as desk, asyncio.TaskGroup() as group:
        calls = [group.create_task(desk.transcriber.transcribe(desk.recording)) for _ in range(12)]
        await desk.service.wait_for_attempts(4)
        for _ in range(200):
            await asyncio.sleep(0)
        assert desk.service.attempts == 4

        for call in calls[:4]:
            call.cancel()
        await asyncio.wait(calls)

        assert [call.result() for call in calls[4:]] == ["hello there"] * 8


@pytest.mark.parametrize("problem", ["missing", "folder", "pipe", "empty", "large", "unreadable"])
async def test_what_is_not_a_recording_is_refused_before_anything_is_sent(
    serving: Serving, tmp_path: Path, problem: str
) -> None:
    path = tmp_path / problem
    if problem == "folder":
        path.mkdir()
    elif problem == "pipe":
        os.mkfifo(path)
    elif problem == "unreadable":
        path.symlink_to(path)
    elif problem != "missing":
        path.write_bytes(b"" if problem == "empty" else b"OggS" + b"x" * 997)
    async with serving(maxBytes=1_000) as desk:
        with pytest.raises(BadRequest, match="the recording"):
            await desk.transcriber.transcribe(path)
        assert desk.service.attempts == 0


async def test_a_recording_of_the_largest_size_is_sent(serving: Serving, tmp_path: Path) -> None:
    path = tmp_path / "a.ogg"
    path.write_bytes(b"OggS" + b"x" * 996)
    async with serving(maxBytes=1_000) as desk:
        assert await desk.transcriber.transcribe(path)


async def test_without_a_key_the_error_says_where_to_set_it(tmp_path: Path) -> None:
    transcriber = build_transcriber(FakePluginContext(tmp_path, settings={"provider": "groq"}))
    with pytest.raises(AuthenticationFailed, match=r"transcription\.api_key or GROQ_API_KEY"):
        await transcriber.transcribe(tmp_path / "a.ogg")


async def test_connections_are_kept_and_closed_with_the_plugin(serving: Serving) -> None:
    async with serving() as desk:
        for _ in range(3):
            await desk.transcriber.transcribe(desk.recording)
        assert len(desk.service.connections) == 1
        await desk.transcriber.aclose()
        await desk.service.wait_for_no_connections()
