"""The sections of the plugin's providers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nanobot_core import ProviderSettings


class LiteLLMSettings(ProviderSettings):
    """The section of a provider of this plugin, ``providers.<name>``.

    Attributes:
        options: further arguments of LiteLLM for each call, such as ``api_version``,
            ``aws_region_name``, ``vertex_project`` or ``vertex_location``.
    """

    # These may contain keys as plain text.
    options: Annotated[dict[str, str | int | float | bool], Field(repr=False)] = Field(
        default_factory=dict
    )
