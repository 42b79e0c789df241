"""A channel without an account: signed HTTP in, HTTP callback out."""

from __future__ import annotations

__all__: list[str] = []
