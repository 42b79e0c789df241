"""From a model's name to a provider: created once, checked, named where it is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import ConfigInvalid, PluginLoadFailed, PluginRejected, ProviderSpec, on
from nanobot_core.testing import FakeProvider
from tests.integration.conftest import agent, started
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio

NOT_CALLABLE = "x"


class NoSettings:
    pass


def make_text(ctx: object, spec: object, settings: object) -> str:
    return "text"


def make_error(ctx: object, spec: object, settings: object) -> str:
    raise ValueError("bad day")


def make_config_error(ctx: object, spec: object, settings: object) -> str:
    raise ConfigInvalid([])


def make(ctx: object, spec: ProviderSpec, settings: object) -> FakeProvider:
    return FakeProvider("hello")


class Brings:
    """A plugin with one provider ``odd``."""

    def __init__(self, factory: str, settings: str = "nanobot_core:ProviderSettings") -> None:
        self.spec = ProviderSpec(
            name="odd",
            factory=f"{__name__}:{factory}",
            settings=settings,
            api_key_env=("ODD_KEY",),
            model_overrides=(("big", {"temperature": 1.0}),),
        )

    @on.contribute_providers
    def contribute_providers(self, ctx: object) -> list[ProviderSpec]:
        return [self.spec]


@pytest.mark.parametrize(
    ("factory", "error"),
    [
        ("NOT_CALLABLE", PluginRejected),
        ("make_text", PluginRejected),
        ("make_error", PluginLoadFailed),
        ("make_config_error", ConfigInvalid),
        ("absent", PluginLoadFailed),
    ],
)
async def test_a_factory_that_is_wrong_is_told_with_its_plugin(
    tmp_path: Path, factory: str, error: type[Exception]
) -> None:
    keys = {"providers__odd__api_key": "sk-1"}
    async with started(tmp_path, ScriptedPlugin(), Brings(factory), **keys) as bot:
        with pytest.raises(error):
            await bot.models.model("odd/big-1")


async def test_a_provider_is_created_once_and_gets_its_overrides(tmp_path: Path) -> None:
    keys = {"providers__odd__api_key": "sk-1"}
    async with started(tmp_path, ScriptedPlugin(), Brings("make"), **keys) as bot:
        one, two = await asyncio.gather(
            bot.models.model("odd/big-1"), bot.models.model("odd/small-1")
        )
    assert one.provider is two.provider
    assert (one.overrides, two.overrides) == ({"temperature": 1.0}, {})
    assert (one.name, one.wire_name, one.plugin) == ("odd/big-1", "big-1", "kit0")


async def test_a_provider_that_fails_to_close_does_not_keep_others_open(tmp_path: Path) -> None:
    one, two = ScriptedPlugin(), ScriptedPlugin()

    async def fail() -> None:
        raise LookupError("does not close")

    bot = agent(tmp_path, one)
    await bot.plugins.register(one, "one")
    await bot.plugins.register(two, "two")
    async with bot:
        await bot.models.model(one.model)
        await bot.models.model(two.model)
        two.provider.aclose = fail  # type: ignore[method-assign]  # one that fails
    assert one.provider.closed
