"""The owner lists and changes plugins of a running gateway with ``/plugins``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from nanobot_core import Nanobot
from tests.gateways import running

pytestmark = pytest.mark.anyio

BASE = """\
from nanobot_core import on

@on.before_turn
def ready(event): ...
"""
NEEDY = """\
from nanobot_core import PluginFacts, on

@on.describe_plugin
def facts(): return PluginFacts(requires=("base",))

@on.before_turn
def ready(event): ...
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name, code in (("base", BASE), ("needy", NEEDY)):
        (folder / f"{name}.py").write_text(code)
    settings = {
        "plugins": {"policy": "listed", "local": ["base.py", "needy.py"]},
        "gateway": {"port": 0},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return folder


@pytest.fixture
async def bot(home: Path) -> AsyncIterator[Nanobot]:
    async with running(home) as bot:
        yield bot


async def say(bot: Nanobot, text: str) -> str:
    """Return the reply or the error."""
    outcome = await bot.run(text)
    return outcome.reply or outcome.error or ""


def states(text: str) -> dict[str, str]:
    """Return the state of each plugin in a list."""
    found = {}
    for line in text.splitlines():
        name, _, state = line.removeprefix("- ").partition(": ")
        found[name] = state.partition(";")[0]
    return found


@pytest.mark.promise(20)
async def test_plugins_are_listed_disabled_and_enabled(bot: Nanobot, home: Path) -> None:
    before = states(await say(bot, "/plugins"))
    off = await say(bot, "/plugins disable needy")
    without = states(await say(bot, "/plugins list"))
    on_again = await say(bot, "/plugins enable needy")
    reloaded = await say(bot, "/plugins reload base")

    assert (before["base"], before["needy"]) == ("active", "active")
    assert off == "disabled: needy"
    assert (without["base"], without["needy"]) == ("active", "disabled")
    assert on_again == "enabled: needy"
    assert reloaded == "reloaded: base"
    assert yaml.safe_load((home / "config.yaml").read_text())["plugins"]["enabled"] == ["needy"]


@pytest.mark.promise(30)
async def test_what_others_require_is_disabled_only_together_with_them(
    bot: Nanobot, home: Path
) -> None:
    refused = await say(bot, "/plugins disable base")
    unchanged = yaml.safe_load((home / "config.yaml").read_text())["plugins"]
    both = await say(bot, "/plugins disable base --cascade")

    assert "'needy' requires it" in refused
    assert "--cascade" in refused
    assert "disabled" not in unchanged
    assert set(both.removeprefix("disabled: ").split(", ")) == {"needy", "base"}


@pytest.mark.promise(20)
async def test_nothing_is_installed_and_no_unknown_id_is_written(bot: Nanobot, home: Path) -> None:
    before = (home / "config.yaml").read_text()

    answers = [
        await say(bot, f"/plugins {words}")
        for words in ("enable needyy", "disable nothing", "add web", "install web", "enable")
    ]

    assert "did you mean 'needy'?" in answers[0]
    assert "it is not installed" in answers[1]
    assert all(answer.startswith("Use /plugins list") for answer in answers[2:])
    assert (home / "config.yaml").read_text() == before
