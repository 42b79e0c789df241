"""A server for programs that speak the protocol of OpenAI."""

from __future__ import annotations

__all__: list[str] = []
