"""Transcription provider: speech to text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from nanobot_core.record import dataclass


class TranscriptionProvider(ABC):
    """Turns recordings into text."""

    @abstractmethod
    async def transcribe(self, recording: Path) -> str:
        """Return the spoken text of `recording`; empty if no one speaks.

        Raises:
            ProviderError: the service gave no text.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriberSpec:
    """A transcription provider as a plugin contributes it.

    Attributes:
        name: value for ``agents.defaults.transcriber``.
        factory: ``package.module:name`` of a callable ``(ctx)`` returning the provider.
    """

    name: str
    factory: str
