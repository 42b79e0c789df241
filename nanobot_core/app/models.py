"""ConfiguredModels: the models and presets of the configuration, with their providers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.agent.run import Model, ModelChoice
from nanobot_core.app.model_list import list_models
from nanobot_core.app.model_table import ModelTable
from nanobot_core.config.environment import environment
from nanobot_core.config.models import AgentDefaults, ProviderSettings
from nanobot_core.config.validation import validate_section
from nanobot_core.contracts.login import ProviderLogin
from nanobot_core.contracts.provider import LLMProvider, ModelInfo, ProviderSpec
from nanobot_core.errors import FOREIGN_ERRORS, NoProvider, PluginRejected
from nanobot_core.plugins.examine import settings_model
from nanobot_core.plugins.loader import make_object
from nanobot_core.plugins.manifest import known_fields
from nanobot_core.providers.match import ProviderMatch, ProviderRow, match_provider
from nanobot_core.sign_in import read_sign_in, token_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.messages import JsonObject
    from nanobot_core.plugins.context import HostContext
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.tasks import Spawn


class ConfiguredModels:
    """The models that the configuration makes available.

    Args:
        host: the plugins, which contribute providers.
        loaded: the present configuration.
        environ: environment variables; ``None`` means those of the process.
        spawn: starts tasks that the application owns.

    Attributes:
        table: what is known of models.
    """

    def __init__(
        self,
        host: PluginHost,
        loaded: LoadedConfig,
        environ: Mapping[str, str] | None = None,
        *,
        spawn: Spawn,
    ) -> None:
        self._host = host
        self._spawn = spawn
        self._loaded = loaded
        self._environ = environ
        self.table: ModelTable = ModelTable(loaded.home / "models")
        self._providers: dict[str, tuple[HostContext, LLMProvider]] = {}
        """Name to provider, with the context of the plugin instance that created it."""
        self._models: dict[str | None, Model] = {}
        self._choices: dict[str | None, ModelChoice] = {}
        self._warmed_up: set[str | None] = set()
        self._found_for: Hooks | None = None
        self._creating = asyncio.Lock()

    def rows(self) -> list[ProviderRow]:
        """Return the table of providers, installed and enabled, by plugin."""
        return [
            self._row(spec_from(declaration.detail), plugin)
            for plugin, declaration in self._host.declared("providers")
        ]

    def _row(self, spec: ProviderSpec, plugin: str) -> ProviderRow:
        section = self._loaded.settings.section(f"providers.{spec.name}") or {}
        variables = environment(spec.api_key_env, self._environ)
        key = section.get("api_key") or section.get("apiKey") or next(iter(variables.values()), "")
        base = section.get("api_base") or section.get("apiBase")
        sign_in = None
        if spec.login:
            data_dir = self._loaded.home / "plugins" / plugin
            sign_in = read_sign_in(token_file(data_dir, spec.name))
        return ProviderRow(spec, plugin, str(key or ""), str(base or ""), sign_in)

    def match(self, name: str | None) -> ProviderMatch:
        """Return which provider serves a model or preset; ``None`` means the configured default.

        Raises:
            NoProvider: none can; the error says which setting to add.
        """
        settings, rows = self._loaded.settings, self.rows()
        defaults = settings.agents.defaults
        name = name or defaults.model
        preset = settings.preset(name)
        model = preset.model if preset else name
        forced = preset.provider if preset and preset.provider else defaults.provider
        is_chosen = preset.provider is not None if preset else name == defaults.model
        if forced and not is_chosen and (own := _own_prefix(model, rows)):
            forced = own
        if preset is None:
            return match_provider(model, forced, rows)
        found = match_provider(model, forced, rows)
        return replace(found, steps=(f"'{name}' is a preset of model '{model}'", *found.steps))

    def defaults_of(self, name: str | None) -> AgentDefaults:
        """Return ``agents.defaults`` with what the preset of this name sets."""
        defaults = self._loaded.settings.agents.defaults
        preset = self._loaded.settings.preset(name or defaults.model)
        if preset is None:
            return defaults.model_copy(update={"model": name}) if name else defaults
        return defaults.model_copy(update=preset.model_dump(exclude_none=True))

    @property
    def default(self) -> str | None:
        """The configured model or preset."""
        return self._loaded.settings.agents.defaults.model

    @property
    def presets(self) -> Mapping[str, str]:
        """The name of each preset with that of its model."""
        return {
            name: preset if isinstance(preset, str) else preset.model
            for name, preset in self._loaded.settings.models.items()
        }

    async def names(self) -> Sequence[str]:
        """Return the names of presets and of all known models that can be used."""
        listed = await asyncio.to_thread(list_models, self, self._loaded.settings)
        return [model.name for model in listed if not model.problem]

    def key_source(self, row: ProviderRow) -> str:
        """Return where the key of a provider comes from, or an empty string if it has none."""
        section = self._loaded.settings.section(f"providers.{row.spec.name}") or {}
        if section.get("api_key") or section.get("apiKey"):
            return f"providers.{row.spec.name}.api_key"
        variables = environment(row.spec.api_key_env, self._environ)
        return f"the environment variable {next(iter(variables))}" if variables else ""

    async def choice(self, name: str | None) -> ModelChoice:
        """Return what a run needs of a model; see `ModelChoices`."""
        self._forget_former_plugins()
        if name not in self._choices:
            await self.info(name)
            self._choices[name] = self.known_choice(name)
        return self._choices[name]

    def known_choice(self, name: str | None) -> ModelChoice:
        """Return the same as far as it is known without reading a file."""
        if name in self._choices:
            return self._choices[name]
        defaults, info = self.defaults_of(name), self._known_info(name)
        known_window = info.window_tokens if info else None
        configured = defaults.context_window_tokens
        return ModelChoice(
            name=name or self._loaded.settings.agents.defaults.model,
            fallback_models=tuple(defaults.fallback_models or ()),
            max_tokens=_max_tokens(defaults, info),
            context_window_tokens=min(configured, known_window or configured),
            documents="documents" in ((info.abilities if info else None) or ()),
        )

    def warm_up(self, name: str | None) -> None:
        """Prepare the provider of a model, once; see `ModelChoices`."""
        self._forget_former_plugins()
        if name not in self._warmed_up:
            self._warmed_up.add(name)
            self._spawn(self._warm_up(name), name="provider warm-up")

    async def _warm_up(self, name: str | None) -> None:
        # What fails here fails again in the model call, which reports it.
        with suppress(*FOREIGN_ERRORS):
            model = await self.model(name)
            await model.provider.warm_up()

    async def info(self, name: str | None) -> ModelInfo | None:
        """Return the facts about a model, or ``None`` if it is unknown or not served."""
        try:
            match = self.match(name)
        except NoProvider:
            return None
        if not self.table.is_read(match.row.spec):
            await asyncio.to_thread(self.table.models, match.row.spec)
        return self.table.find(match.row.spec, match.model)

    def _known_info(self, name: str | None) -> ModelInfo | None:
        try:
            match = self.match(name)
        except NoProvider:
            return None
        spec = match.row.spec
        return self.table.find(spec, match.model) if self.table.is_read(spec) else None

    async def model(self, name: str | None) -> Model:
        """Return a model that can be called; see `ModelSource`."""
        self._forget_former_plugins()
        if name not in self._models:
            self._models[name] = await self._find(name)
        return self._models[name]

    async def _find(self, name: str | None) -> Model:
        match, defaults = self.match(name), self.defaults_of(name)
        spec, info = match.row.spec, await self.info(name)
        provider = await self.provider(match.row)
        overrides: JsonObject = {}
        for part, fields in spec.model_overrides:
            if part in match.model:
                overrides |= fields
        return Model(
            name=defaults.model or match.model,
            wire_name=match.model,
            provider=provider,
            provider_name=spec.name,
            plugin=match.row.plugin,
            overrides=overrides,
            json_schema=spec.json_schema,
            info=info,
            max_tokens=_max_tokens(defaults, info),
            temperature=defaults.temperature,
            reasoning_effort=defaults.reasoning_effort,
        )

    def _forget_former_plugins(self) -> None:
        # Each generation of plugins has its own table of providers.
        if self._found_for is not self._host.hooks:
            self._models, self._choices, self._found_for = {}, {}, self._host.hooks
            self._warmed_up = set()

    def reconfigure(self, loaded: LoadedConfig) -> None:
        """Use another configuration from the next model call on."""
        self._loaded = loaded
        self._models, self._choices, self._warmed_up = {}, {}, set()
        self.table.forget()

    async def provider(self, row: ProviderRow) -> LLMProvider:
        """Return the provider of a row; it is created once.

        Raises:
            PluginError: its plugin cannot run.
            ConfigError: its section is invalid.
        """
        async with self._creating:
            name = row.spec.name
            context = await self._host.context_for(row.plugin)
            former = self._providers.get(name)
            if former is None or former[0] is not context:
                settings = await asyncio.to_thread(self._settings_of, row)
                made = await make_object(
                    row.plugin,
                    row.spec.factory,
                    LLMProvider,  # type: ignore[type-abstract]  # used for isinstance only
                    context,
                    row.spec,
                    settings,
                )
                context.on_dispose(made.aclose)
                self._providers[name] = (context, made)
            return self._providers[name][1]

    async def provider_login(self, row: ProviderRow) -> ProviderLogin:
        """Return what signs in to the provider of `row`, which has `ProviderSpec.login`.

        Raises:
            PluginError: the plugin cannot be activated, or what it names is not a sign-in.
            ConfigError: its settings are wrong.
        """
        context = await self._host.context_for(row.plugin)
        settings = await asyncio.to_thread(self._settings_of, row)
        return await make_object(
            row.plugin,
            row.spec.login,
            ProviderLogin,  # type: ignore[type-abstract]  # used for isinstance only
            context,
            row.spec,
            settings,
        )

    def _settings_of(self, row: ProviderRow) -> ProviderSettings:
        model = settings_model(row.plugin, row.spec.settings)
        if not issubclass(model, ProviderSettings):
            raise PluginRejected(
                row.plugin, f"'{row.spec.settings}' is not a subclass of ProviderSettings"
            )
        return validate_section(self._loaded, f"providers.{row.spec.name}", model, owner=row.plugin)


def _max_tokens(defaults: AgentDefaults, info: ModelInfo | None) -> int:
    known = info.max_answer_tokens if info else None
    return min(defaults.max_tokens, known or defaults.max_tokens)


def _own_prefix(name: str | None, rows: Sequence[ProviderRow]) -> str | None:
    """Return the provider that a model's name begins with, if it has a key or a base URL."""
    prefix, slash, _ = (name or "").replace("-", "_").partition("/")
    for row in rows:
        if slash and row.spec.name == prefix:
            has_base = row.base or row.spec.default_base is not None
            return prefix if row.key or (not row.spec.needs_key and has_base) else None
    return None


def spec_from(detail: JsonObject) -> ProviderSpec:
    """Return the provider specification that a manifest declares."""
    fields = {
        key: tuple(tuple(item) if isinstance(item, list) else item for item in value)
        if isinstance(value, list)
        else value
        for key, value in known_fields(ProviderSpec, detail).items()
    }
    return ProviderSpec(**fields)  # type: ignore[arg-type]  # created from a ProviderSpec when the manifest was built
