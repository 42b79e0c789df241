"""WhatsApp as a channel of nanobot."""

from __future__ import annotations

__all__: list[str] = []
