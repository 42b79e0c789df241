"""What people say in recordings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import InboundMessage, NanobotError
from nanobot_core.turns import speech
from nanobot_core.turns.speech import with_speech

pytestmark = pytest.mark.anyio


def message(content: str, *media: str) -> InboundMessage:
    return InboundMessage(channel="t", sender_id="1", chat_id="1", content=content, media=media)


async def hear(path: Path) -> str:
    return f" heard {path.name} \n"


async def test_recordings_are_heard_in_order_behind_the_words() -> None:
    found = await with_speech(message("look", "a.ogg", "photo.png", "b.MP3", "c.oga"), hear)
    assert found.split("\n\n") == [
        "look",
        "[voice message] heard a.ogg",
        "[voice message] heard b.MP3",
        "[voice message] heard c.oga",
    ]


async def test_a_recording_without_words_stands_alone() -> None:
    assert await with_speech(message("", "a.ogg"), hear) == "[voice message] heard a.ogg"


async def test_without_a_transcriber_recordings_stay_files() -> None:
    assert await with_speech(message("look", "a.ogg"), None) == "look"


@pytest.mark.parametrize(
    "error", [NanobotError("no"), OSError("gone"), RuntimeError("a bug"), TimeoutError()]
)
async def test_a_recording_that_cannot_be_heard_stays_what_it_is(error: Exception) -> None:
    async def fail(path: Path) -> str:
        if path.name == "a.ogg":
            raise error
        return await hear(path)

    found = await with_speech(message("look", "a.ogg", "b.ogg"), fail)
    assert found == "look\n\n[voice message] heard b.ogg"


async def test_silence_adds_nothing() -> None:
    async def silent(path: Path) -> str:
        return " \n"

    assert await with_speech(message("look", "a.ogg"), silent) == "look"


async def test_a_transcriber_that_hangs_does_not_hold_up_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speech, "TRANSCRIPTION_LIMIT_S", 0.01)

    async def hang(path: Path) -> str:
        await asyncio.Event().wait()
        return ""

    assert await with_speech(message("look", "a.ogg"), hang) == "look"
