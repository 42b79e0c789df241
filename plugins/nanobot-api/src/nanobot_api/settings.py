"""The settings section ``gateway.api``."""

from __future__ import annotations

from pydantic import Field

from nanobot_core import PluginSettings


class ApiSettings(PluginSettings):
    """Limits of the server; the limits of a program are those of its key."""

    max_body_bytes: int = Field(default=16 * 1024 * 1024, ge=1_024)
    """Largest request body in bytes, pictures included."""
    max_running: int = Field(default=110, ge=1)
    """Requests that are answered at the same time."""
    keep_responses_days: float = Field(default=30, gt=0)
    """Days after which a stored response can no longer be continued."""
