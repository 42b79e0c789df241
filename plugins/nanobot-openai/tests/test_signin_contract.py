"""The providers with a sign-in keep the contract of all providers."""

from __future__ import annotations

from pathlib import Path

from nanobot_core import LLMProvider, Tokens, token_file
from nanobot_core.testing import (
    FakePluginContext,
    HTTPProviderContract,
    OpenAIServer,
    Reply,
    ResponsesServer,
)
from nanobot_openai.codex import build_codex
from nanobot_openai.copilot import build_copilot
from nanobot_openai.signin_settings import CodexSettings, CopilotSettings
from nanobot_openai.vendors import VENDORS

SPECS = {spec.name: spec for spec in VENDORS}


def signed_in(folder: Path, name: str) -> FakePluginContext:
    """Return the context of a person with a token that does not expire."""
    ctx = FakePluginContext(folder, plugin_id="openai")
    tokens = Tokens(access="token-of-the-test", details={"account_id": "account-1"})
    token_file(ctx.data_dir, name).replace(tokens.to_json())
    return ctx


class TestCodex(HTTPProviderContract):
    def make_server(self, *replies: Reply) -> ResponsesServer:
        return ResponsesServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        settings = CodexSettings.model_validate(section)
        return build_codex(signed_in(folder, "openai_codex"), SPECS["openai_codex"], settings)


class TestCopilot(HTTPProviderContract):
    def make_server(self, *replies: Reply) -> OpenAIServer:
        return OpenAIServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        settings = CopilotSettings.model_validate(section)
        ctx = signed_in(folder, "github_copilot")
        return build_copilot(ctx, SPECS["github_copilot"], settings)
