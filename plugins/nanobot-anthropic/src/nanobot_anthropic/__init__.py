"""Claude models by Anthropic's Messages API, as a plugin of nanobot."""

from __future__ import annotations

__all__: list[str] = []
