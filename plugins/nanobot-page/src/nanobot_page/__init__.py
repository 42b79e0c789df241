"""A page in the browser: chat with the agent and run the gateway."""

from __future__ import annotations

__all__: list[str] = []
