"""The sections of the providers with a sign-in."""

from __future__ import annotations

from typing import Literal

from nanobot_core import ProviderSettings


class CodexSettings(ProviderSettings):
    """The section ``providers.openai_codex``.

    Attributes:
        auth_base: where people sign in to ChatGPT.
        callback_ports: ports for the redirect of the browser, tried in order; the service accepts
            only these two.
        reasoning_summary: form of the summary of its reasoning that the model writes, which
            channels can show; ``null`` asks for none.
    """

    auth_base: str = "https://auth.openai.com"
    callback_ports: tuple[int, ...] = (1455, 1457)
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = "auto"


class CopilotSettings(ProviderSettings):
    """The section ``providers.github_copilot``.

    Attributes:
        github_base: where people sign in; another host for GitHub Enterprise.
        github_api: GitHub's API, which gives the tokens for Copilot.
    """

    github_base: str = "https://github.com"
    github_api: str = "https://api.github.com"
