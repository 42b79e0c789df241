"""A third party's provider, as the cookbook shows it, on what providers behind HTTP share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import LLMProvider, Nanobot, ProviderSettings
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.testing import FakePluginContext, HTTPProviderContract, Reply, ScriptedCall
from nanobot_core.tools import tool
from tests.strangers import acme
from tests.strangers.acme_server import AcmeServer

pytest.importorskip("httpx")  # nanobot-core[http]

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


@tool(read_only=True)
def look(at: str) -> str:
    """Look."""
    return f"{at}: a door"


class TestAcme(HTTPProviderContract):
    TOO_LONG = Reply(status=400, body=b'{"error": {"code": "too_many_words"}}')

    def make_server(self, *replies: Reply) -> AcmeServer:
        return AcmeServer(replies)

    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        ctx = FakePluginContext(folder)
        (spec,) = acme.contribute_providers(ctx)
        return acme.make_provider(ctx, spec, ProviderSettings.model_validate(section))


async def test_a_turn_with_a_tool_runs_through_it(tmp_path: Path) -> None:
    call = ScriptedCall(name="look", arguments='{"at": "north"}')
    async with AcmeServer([Reply(text="I look.", calls=(call,)), Reply(text="A door.")]) as server:
        values = {
            "agents.defaults.model": "acme-large",
            "agents.defaults.workspace": str(tmp_path / "workspace"),
            "providers.acme.api_base": server.url,
            "providers.acme.api_key": "sk-test",
        }
        loaded = load_config(None, environ={}, overrides=values, home=tmp_path)
        catalogue = Catalogue([], loaded.settings.plugins)
        bot = Nanobot(loaded, environ={}, catalogue=catalogue)
        async with asyncio.timeout(20), bot:
            await bot.plugins.register(acme, "acme")
            bot.tools.register(look)
            outcome = await bot.run("what do you see?")
    assert (outcome.reply, outcome.usage.prompt_tokens) == ("A door.", 20)
    turns = server.requests[1].body["turns"]
    assert [turn["by"] for turn in turns] == ["system", "user", "assistant", "tool"]
    assert turns[-1]["text"] == "north: a door"


@pytest.mark.parametrize("page", ["cookbook", "provider"])
def test_the_pages_state_its_length(page: str) -> None:
    lines = len(Path(acme.__file__).read_text("utf-8").splitlines())
    text = (ROOT / f"docs/plugins/{page}.md").read_text("utf-8")
    assert f"{lines} lines" in text
