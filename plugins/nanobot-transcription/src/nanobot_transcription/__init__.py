"""Voice to text over any OpenAI-compatible transcription endpoint, as a plugin of nanobot."""

from __future__ import annotations

__all__: list[str] = []
