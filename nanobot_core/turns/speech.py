"""Transcriptions of voice messages, added to the text of a message."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

from nanobot_core.messages import InboundMessage
from nanobot_core.turns.failure import or_instead

TRANSCRIPTION_LIMIT_S = 120.0
"""Seconds that one recording may take."""
NOT_TRANSCRIBED = "a recording was not transcribed"
Transcribe = Callable[[Path], Awaitable[str]]
_ALSO_AUDIO = frozenset({".oga", ".ogg", ".opus"})
"""Endings of voice messages that `mimetypes` does not know everywhere."""


async def with_speech(message: InboundMessage, transcribe: Transcribe | None) -> str:
    """Return the text of `message` with the transcriptions of its recordings.

    A recording that cannot be transcribed remains an attached file.
    """
    if transcribe is None:
        return message.content
    spoken = [
        await or_instead("", _spoken_in(path, transcribe), NOT_TRANSCRIBED)
        for path in filter(_is_recording, map(Path, message.media))
    ]
    passages = [message.content, *(f"[voice message] {text}" for text in spoken if text)]
    return "\n\n".join(filter(None, passages))


async def _spoken_in(recording: Path, transcribe: Transcribe) -> str:
    async with asyncio.timeout(TRANSCRIPTION_LIMIT_S):
        return (await transcribe(recording)).strip()


def _is_recording(path: Path) -> bool:
    kind = mimetypes.guess_type(path.name)[0] or ""
    return kind.startswith("audio/") or path.suffix.lower() in _ALSO_AUDIO
