"""Entry point: an implementation of every kind of hook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    ContextBlock,
    Deny,
    Health,
    LazyTool,
    PluginFacts,
    SettingsSection,
    SlashCommand,
    on,
)

if TYPE_CHECKING:
    from nanobot_core import (
        ChatRequest,
        ContentReady,
        ContextRequested,
        Decision,
        LLMResponse,
        ModelCallRequested,
        ModelRequested,
        PluginContext,
        StopCause,
        ToolCallFinished,
        ToolCallProposed,
        TurnStarted,
    )


class WeatherPlugin:
    """One instance belongs to one application; it records its events in `log`."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._ctx: PluginContext | None = None

    # contribute

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """State what the code cannot tell."""
        return PluginFacts(capabilities=("reads a thermometer",))

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Say where the settings stand."""
        return (SettingsSection("weather", "stranger_weather.settings:WeatherSettings"),)

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[LazyTool]:
        """Give `read_weather`."""
        return (LazyTool("read_weather", "stranger_weather.reading:ReadWeatherTool"),)

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Give ``nanobot weather``."""
        app = "stranger_weather.commands:app"
        return (CliGroup(name="weather", summary="Look at the weather station.", app=app),)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Give ``/weather``."""
        handler = "stranger_weather.commands:answer"
        return (SlashCommand(name="weather", summary="say how it is outside", handler=handler),)

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Give the check of the mast."""
        return (Check(name="mast", run="stranger_weather.commands:check_mast"),)

    # own

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        """Keep the context."""
        self._ctx = ctx
        self.log.append("start")

    @on.check_health
    async def check_health(self, ctx: PluginContext) -> Health:
        """Say that all is well."""
        return Health(ok=True, message="the station answers")

    @on.stop
    async def stop(self, ctx: PluginContext, reason: StopCause) -> None:
        """Leave what was heard where a test finds it."""
        text = "\n".join([*self.log, f"stop {reason}"])
        (ctx.data_dir / "heard.txt").write_text(text, encoding="utf-8")

    # observe

    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None:
        """Hear of a turn."""
        self.log.append("observe")

    # detached

    @on.after_execute_tool
    async def after_execute_tool(self, event: ToolCallFinished) -> None:
        """Hear of a tool call, later."""
        self.log.append(f"detached {event.call.name}")

    # chain

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        """Sign the answer."""
        self.log.append("chain")
        return f"{event.content}\n-- the weather station"

    # gate

    @on.authorize_tool_call
    async def authorize_tool_call(self, event: ToolCallProposed) -> Decision | None:
        """Refuse to look at the future of the past."""
        self.log.append(f"gate {event.call.name}")
        if event.call.arguments.get("hours_ago") == 13:
            return Deny("the thermometer was broken at that hour")
        return None

    # first

    @on.choose_model
    def choose_model(self, event: ModelRequested) -> str | None:
        """Have no opinion."""
        self.log.append("first")
        return None

    # gather

    @on.gather_context
    async def gather_context(self, event: ContextRequested) -> Iterable[ContextBlock] | None:
        """Tell the model that there is a station."""
        self.log.append("gather")
        return (ContextBlock(name="Weather", text="There is a station.", placement="stable"),)

    # wrap

    @on.wrap_model_call
    async def wrap_model_call(
        self,
        event: ModelCallRequested,
        call_next: Callable[[ChatRequest], Awaitable[LLMResponse]],
    ) -> LLMResponse:
        """Stand around the model call."""
        seen = any("There is a station." in str(each.content) for each in event.request.messages)
        self.log.append(f"wrap {seen}")
        return await call_next(event.request)
