"""Section ``weather``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nanobot_core import PluginSettings


class WeatherSettings(PluginSettings):
    """Where the station stands.

    Attributes:
        place: name of the place.
        altitude_m: metres above the sea.
        unit: unit of temperatures.
    """

    place: str = "Nowhere"
    altitude_m: int = Field(default=0, ge=-500, le=9000)
    unit: Literal["celsius", "kelvin"] = "celsius"
