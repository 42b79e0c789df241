"""A plugin that answers from a script, for whole agents without a model service."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from weakref import WeakValueDictionary

from nanobot_core.contracts.context import PluginContext
from nanobot_core.contracts.provider import ProviderSpec
from nanobot_core.hooks import specs as on
from nanobot_core.testing.fake_provider import FakeProvider, FakeStep

_numbers = itertools.count(1)
_providers: WeakValueDictionary[str, FakeProvider] = WeakValueDictionary()
"""By name of the provider: a factory is a dotted name and knows no instance."""


class ScriptedPlugin:
    """Contributes one provider that takes a step of the script with each request.

    Configure ``agents.defaults.model`` to be `model`, and give it to a started agent::

        plugin = ScriptedPlugin("Hello!")
        async with Nanobot(load_config(None, home=..., overrides={...: plugin.model})) as bot:
            await bot.plugins.register(plugin, "scripted")

    Attributes:
        provider: the provider, with its requests.
        model: name of the model that it serves, unique to this plugin.

    Args:
        steps: the script.
        json_schema: the model can be made to answer by a JSON Schema.
    """

    def __init__(self, *steps: FakeStep, json_schema: bool = False) -> None:
        self._name = f"scripted{next(_numbers)}"
        self._json_schema = json_schema
        self.model: str = f"{self._name}/model"
        self.provider: FakeProvider = FakeProvider(*steps, name=self._name)
        _providers[self._name] = self.provider

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        """Contribute the provider."""
        yield ProviderSpec(
            name=self._name,
            factory="tests.scripted_provider:create_provider",
            needs_key=False,
            default_base="script:",
            json_schema=self._json_schema,
        )


def create_provider(ctx: PluginContext, spec: ProviderSpec, settings: object) -> FakeProvider:
    """Return the provider of the plugin that contributed `spec`."""
    return _providers[spec.name]
