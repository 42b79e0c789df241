"""A plugin that makes the waits between attempts at a model call short; the attempts stay."""

from __future__ import annotations

from nanobot_core import TurnStarted, on
from nanobot_core.agent import model_call


@on.before_turn
def hurry(event: TurnStarted) -> None:
    model_call.RETRY_DELAYS_S = (0.01, 0.01, 0.01)
