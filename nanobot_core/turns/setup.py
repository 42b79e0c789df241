"""TurnSetup: what turns take from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.agent.run import AgentRunSpec, ModelChoice, ModelChoices

if TYPE_CHECKING:
    from nanobot_core.agent.loop import AgentRunner
    from nanobot_core.agent.request import RequestBuilder
    from nanobot_core.config.models import Settings
    from nanobot_core.events import TurnInfo
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.paths import PathGuard
    from nanobot_core.tools.registry import ToolRegistry
    from nanobot_core.turns.reach import Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSetup:
    """Everything that turns take from the configuration; a reload replaces it as a whole.

    Attributes:
        settings: the configuration.
        reach: limits the file access of senders.
        models: what is known of models.
        runner: the agent.
        requests: builds requests.
    """

    settings: Settings
    reach: Reach
    models: ModelChoices
    runner: AgentRunner
    requests: RequestBuilder

    def run_spec(
        self,
        turn: TurnInfo,
        hooks: Hooks,
        tools: ToolRegistry,
        files: PathGuard,
        choice: ModelChoice,
    ) -> AgentRunSpec:
        """Return a run of the agent as configured, without messages."""
        defaults, limits = self.settings.agents.defaults, self.settings.tools
        return AgentRunSpec(
            turn=turn,
            messages=(),
            tools=tools,
            hooks=hooks,
            files=files,
            results=self.reach.results,
            model=choice.name,
            fallback_models=choice.fallback_models,
            max_iterations=defaults.max_tool_iterations,
            max_tokens=choice.max_tokens,
            context_window_tokens=choice.context_window_tokens,
            stream=defaults.streaming,
            tool_timeout_s=limits.timeout_s,
            max_tool_result_chars=limits.max_tool_result_chars,
            max_parallel=limits.max_parallel,
            max_repeats=limits.max_repeats,
            summary_instruction=self.requests.instructions.text("summary"),
        )
