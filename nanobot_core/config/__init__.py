"""Configuration: models, loading, the origin of each value, and edits that keep the file."""

from __future__ import annotations

__all__: list[str] = []
