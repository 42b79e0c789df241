"""What people say in recordings, as text beside what they write."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

from nanobot_core.messages import InboundMessage

TRANSCRIPTION_LIMIT_S = 120.0
"""Seconds that one recording may take."""
Transcribe = Callable[[Path], Awaitable[str]]
_ALSO_AUDIO = frozenset({".oga", ".ogg", ".opus"})
"""Endings of voice messages that `mimetypes` does not know everywhere."""


async def with_speech(message: InboundMessage, transcribe: Transcribe | None) -> str:
    """Return the text of `message` with what its recordings say.

    A recording that cannot be transcribed stays what it is, an attached file.
    """
    if transcribe is None:
        return message.content
    passages = [message.content] if message.content else []
    for path in filter(_is_recording, map(Path, message.media)):
        try:
            async with asyncio.timeout(TRANSCRIPTION_LIMIT_S):
                spoken = (await transcribe(path)).strip()
        except Exception as error:  # noqa: BLE001 - isolation point: a plugin's code
            from loguru import logger

            reason = str(error) or type(error).__name__
            logger.bind(session=message.session_key).warning("recording left as it is: {}", reason)
            continue
        if spoken:
            passages.append(f"[voice message] {spoken}")
    return "\n\n".join(passages)


def _is_recording(path: Path) -> bool:
    kind = mimetypes.guess_type(path.name)[0] or ""
    return kind.startswith("audio/") or path.suffix.lower() in _ALSO_AUDIO
