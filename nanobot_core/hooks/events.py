"""Hook events that speak of contracts, and so stand above ``nanobot_core.events``."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot_core.contracts.provider import ChatRequest
from nanobot_core.events import TurnInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRequested:
    """A model call with its whole request."""

    turn: TurnInfo
    iteration: int
    provider: str
    request: ChatRequest
