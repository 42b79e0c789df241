"""Models behind any OpenAI-compatible endpoint, as a plugin of nanobot."""

from __future__ import annotations

__all__: list[str] = []
