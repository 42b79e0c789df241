"""Settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from nanobot_core import PluginSettings


class DreamSettings(PluginSettings):
    """Section ``memory.dream``.

    Attributes:
        every_hours: hours between two runs as a job; 0 switches the job off.
        model: model to use instead of the configured one.
        skills: whether Dream may write skills: not at all, as proposals for the owner, or at once.
        batch: history entries of one run.
    """

    every_hours: NonNegativeFloat = 2
    model: str | None = None
    skills: Literal["off", "propose", "write"] = "propose"
    batch: PositiveInt = 20


class MemorySettings(PluginSettings):
    """Section ``memory``, without the keys of the core (``backend`` and ``scope``).

    Attributes:
        model: model that writes summaries, instead of the configured one.
        file_tokens: tokens that each of the memory files may have.
        history_tokens: tokens of recent history in the system prompt.
        history_days: age at which history is archived; 0 means never.
        history_megabytes: size at which the oldest history that Dream has read is archived; 0
            means never.
        dream: see `DreamSettings`.
    """

    model: str | None = None
    file_tokens: PositiveInt = 2_000
    history_tokens: PositiveInt = 3_000
    history_days: int = Field(default=365, ge=0, le=36_500)
    history_megabytes: NonNegativeFloat = 20
    dream: DreamSettings = DreamSettings()
