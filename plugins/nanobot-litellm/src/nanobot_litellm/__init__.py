"""Models behind any service that LiteLLM knows, as a plugin of nanobot."""

from __future__ import annotations

__all__: list[str] = []
