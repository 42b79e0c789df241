"""The services, a row of data for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionService:
    """Defaults of a service.

    Attributes:
        base: base URL; empty if the owner must set it.
        host: host of that URL, for the owner to read before it is used.
        model: model to ask for.
        key_variable: environment variable that holds the key.
        needs_key: it requires a key.
    """

    base: str = ""
    host: str = ""
    model: str
    key_variable: str
    needs_key: bool = True


SERVICES: Mapping[str, TranscriptionService] = {
    "groq": TranscriptionService(
        base="https://api.groq.com/openai/v1",
        host="api.groq.com",
        model="whisper-large-v3",
        key_variable="GROQ_API_KEY",
    ),
    "openai": TranscriptionService(
        base="https://api.openai.com/v1",
        host="api.openai.com",
        model="gpt-4o-mini-transcribe",
        key_variable="OPENAI_API_KEY",
    ),
    # Local servers take this name for the model they were started with, or have it as an alias.
    "custom": TranscriptionService(
        model="whisper-1", key_variable="TRANSCRIPTION_API_KEY", needs_key=False
    ),
}
"""Name, as in ``transcription.provider``, to service."""
