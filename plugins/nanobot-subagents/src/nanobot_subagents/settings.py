"""Settings."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from nanobot_core import PluginSettings


class SubagentToolsSettings(PluginSettings):
    """Section ``subagents.tools``: a run can use at most these of its requester's tools.

    Attributes:
        allow: patterns of the tools that a run may use.
        deny: patterns of those among them that it may not.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ("message", "cron")


class SubagentsSettings(PluginSettings):
    """Section ``subagents``.

    Attributes:
        max_running: runs at the same time.
        max_running_per_session: runs at the same time for one session.
        max_waiting: runs that wait for a place; more are refused.
        max_depth: levels of runs; with 1, a run cannot delegate.
        max_iterations: model calls of a run.
        max_tokens: tokens, sent and received, of all model calls of a run together.
        timeout_s: seconds that a run may take, the time it waits for a person included.
        model: model or preset instead of that of the session.
        max_result_chars: characters of a background run's result that the agent reads; the whole
            is in a file then.
        keep: newest ended runs whose conversations are kept.
        tools: see `SubagentToolsSettings`.
    """

    max_running: PositiveInt = 8
    max_running_per_session: PositiveInt = 4
    max_waiting: int = Field(default=16, ge=0, le=1_000)
    max_depth: int = Field(default=1, ge=1, le=5)
    max_iterations: PositiveInt = 15
    max_tokens: PositiveInt = 500_000
    timeout_s: PositiveFloat = 1_800
    model: str | None = None
    max_result_chars: int = Field(default=12_000, ge=500, le=1_000_000)
    keep: int = Field(default=50, ge=0, le=10_000)
    tools: SubagentToolsSettings = SubagentToolsSettings()
