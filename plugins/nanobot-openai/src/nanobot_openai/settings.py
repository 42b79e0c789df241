"""The section of a provider that has both of OpenAI's APIs."""

from __future__ import annotations

from typing import Literal

from nanobot_core import ProviderSettings


class OpenAISettings(ProviderSettings):
    """The section of a provider with chat completions and the Responses API.

    Attributes:
        api: the API for requests. ``auto`` uses the Responses API for the models of OpenAI that
            need it, and chat completions for all others.
        reasoning_summary: with the Responses API, the form of the summary of its reasoning that the
            model writes, which channels can show. OpenAI refuses it for some models until the
            organization is verified. ``null`` asks for none.
    """

    api: Literal["auto", "chat", "responses"] = "auto"
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
