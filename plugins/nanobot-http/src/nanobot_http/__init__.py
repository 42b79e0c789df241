"""One HTTP server in the gateway, on which plugins mount their routes."""

from __future__ import annotations

__all__: list[str] = []
