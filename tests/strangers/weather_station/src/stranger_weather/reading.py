"""The tool ``read_weather``."""

from __future__ import annotations

from nanobot_core import JsonObject, PluginContext, Tool, ToolContext
from stranger_weather.settings import WeatherSettings

ICE_POINT_K = 273


class ReadWeatherTool(Tool):
    """Reads the thermometer."""

    name = "read_weather"
    description = "Read the temperature at the station, some hours ago if wanted."
    parameters: JsonObject = {  # noqa: RUF012 - declared by the base class
        "type": "object",
        "properties": {"hours_ago": {"type": "integer", "minimum": 0, "maximum": 48}},
    }
    read_only = True

    def __init__(self, ctx: PluginContext) -> None:
        self._settings = ctx.settings(WeatherSettings)

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        """Return the temperature."""
        hours = arguments.get("hours_ago", 0)
        kelvin = self._settings.unit == "kelvin"
        degrees = f"{20 + ICE_POINT_K} K" if kelvin else "20 °C"
        return f"{self._settings.place}: {degrees}, {hours} hours ago"
