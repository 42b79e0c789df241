"""All problems of a configuration that a start would find.

No agent and no plugin is started; of plugins only the settings models are imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nanobot_core.config.sections import has_values, unknown_sections
from nanobot_core.config.validation import in_order, nearest_key, validate_section
from nanobot_core.errors import ConfigInvalid, PluginError
from nanobot_core.plugins.published import Published

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.errors import ConfigProblem
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.manifest import Manifest


def find_problems(loaded: LoadedConfig, catalogue: Catalogue) -> list[ConfigProblem]:
    """Return all findings about a configuration, by file and line. Blocks.

    Args:
        loaded: the configuration.
        catalogue: the installed plugins.
    """
    return in_order(
        [
            *loaded.findings,
            *_section_problems(loaded, catalogue),
            *section_names(loaded, catalogue),
            *_missing_plugins(loaded, catalogue),
            *_idle_budgets(loaded, catalogue),
            *_provider_problems(loaded, catalogue),
            *_preset_problems(loaded, catalogue),
            *_owner_problems(loaded),
            *_memory_problems(loaded, catalogue),
            *_prompt_problems(loaded, catalogue),
        ]
    )


def section_names(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield a problem for each section that no installed plugin reads."""
    known = {
        path
        for selection in catalogue.selections.values()
        if selection.plugin.manifest is not None
        for path in section_models(selection.plugin.manifest)
    }
    yield from unknown_sections(
        loaded, known, lambda: Published.load(loaded.home / "cache").sections
    )


def section_models(manifest: Manifest) -> dict[str, str]:
    """Return the key path of each section of a plugin, with its model as ``module:name``.

    The model is empty for a plugin that cannot be imported here, because it runs isolated.
    """
    models = {section.path: section.model for section in manifest.settings}
    for provider in manifest.of_kind("providers"):
        models[f"providers.{provider.name}"] = str(provider.detail.get("settings") or "")
    return models


def _section_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    from nanobot_core.plugins.examine import settings_model
    from nanobot_core.plugins.loader import load_entry

    for selection in catalogue.selections.values():
        plugin = selection.plugin
        if not selection.enabled or plugin.manifest is None or plugin.isolation is not None:
            continue
        for path, dotted in section_models(plugin.manifest).items():
            section = loaded.value_at(path)
            if not dotted or section is None:
                continue
            warnings: list[ConfigProblem] = []
            try:
                if plugin.file:  # its module has no name before it is loaded from there
                    load_entry(plugin)
                model = settings_model(plugin.id, dotted)
                validate_section(
                    loaded,
                    path,
                    model,
                    owner=plugin.id,
                    finds_all=True,
                    on_warning=warnings.append,
                )
            except ConfigInvalid as error:
                yield from error.problems
            except PluginError as error:
                yield loaded.problem(path, f"cannot be checked: {error}", remedy=error.remedy)
            yield from warnings


def _missing_plugins(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield an error for each required plugin that is not installed, and a warning for others."""
    plugins = loaded.settings.plugins
    for selection in catalogue.missing:
        plugin_id = selection.plugin.id
        is_required = plugin_id in plugins.required
        key = "required" if is_required else "enabled"
        yield loaded.problem(
            f"plugins.{key}[{getattr(plugins, key).index(plugin_id)}]",
            "expected the id of an installed plugin",
            found=plugin_id,
            remedy=selection.condition.remedy,
            level="error" if is_required else "warning",
        )


def _idle_budgets(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield a warning for budgets that no plugin keeps."""
    manifests = [plugin.manifest for plugin in catalogue.enabled() if plugin.manifest is not None]
    kept = any("budgets" in section_models(manifest) for manifest in manifests)
    if has_values(loaded.value_at("budgets")) and not kept:
        package = Published.load(loaded.home / "cache").sections["budgets"]
        remedy = f"run nanobot plugins add {package}, or enable its plugin"
        expected = "no enabled plugin keeps budgets, so this section has no effect"
        yield loaded.problem("budgets", expected, remedy=remedy, level="warning")


def _provider_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    wanted = loaded.settings.agents.defaults.provider
    installed = {declaration.name for _, declaration in catalogue.declared("providers")}
    if wanted is None or {wanted, wanted.replace("-", "_")} & installed:
        return
    published = Published.load(loaded.home / "cache")
    package = published.sections.get(f"providers.{wanted}")
    near = nearest_key(wanted, installed)
    if package:
        remedy = f"run nanobot plugins add {package}, or enable its plugin"
    elif near:
        remedy = f"did you mean '{near}'?"
    else:
        remedy = "see nanobot providers list"
    path = "agents.defaults.provider"
    yield loaded.problem(
        path, "expected a provider of an enabled plugin", found=wanted, remedy=remedy
    )


def _preset_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield presets that name another preset as their model, and misspelt names of presets."""
    presets = loaded.settings.models
    keywords = [
        str(word)
        for _, declaration in catalogue.declared("providers")
        for word in (declaration.name, *(declaration.detail.get("keywords") or ()))
    ]
    sections = loaded.settings.providers.values()
    # A server of the owner may have a model of any name.
    may_be_any = loaded.settings.agents.defaults.provider or any(
        section.get("api_base") or section.get("apiBase") for section in sections
    )
    named = [("agents.defaults.model", loaded.settings.agents.defaults.model)]
    named += _listed("agents.defaults", loaded.settings.agents.defaults.fallback_models)
    for name in presets:
        preset, path = loaded.settings.preset(name), f"models.{name}"
        if name == "default" or preset is None:
            expected = "expected another name, because '/model default' means the configured model"
            yield loaded.problem(path, expected)
            continue
        own = path if isinstance(presets[name], str) else f"{path}.model"
        if preset.model in presets:
            expected = "expected the name of a model, not of a preset"
            yield loaded.problem(own, expected, found=preset.model)
        named.append((own, preset.model))
        named += _listed(path, preset.fallback_models or [])
    for path, model in named:
        near = nearest_key(model, presets) if model and model not in presets else None
        if near and model and not any(word in model.lower() for word in ("/", *keywords)):
            expected = "expected the name of a model or preset"
            yield loaded.problem(
                path,
                expected,
                found=model,
                remedy=f"did you mean '{near}'?",
                level="warning" if may_be_any else "error",
            )


def _listed(path: str, models: Sequence[str]) -> list[tuple[str, str | None]]:
    return [(f"{path}.fallback_models[{index}]", model) for index, model in enumerate(models)]


def _owner_problems(loaded: LoadedConfig) -> Iterator[ConfigProblem]:
    """Yield a warning for each owner whose messages no channel accepts."""
    from nanobot_core.channels.access import is_listed

    channels = loaded.value_at("channels")
    sections = channels if isinstance(channels, dict) else {}
    lists: dict[str, list[str]] = {}
    for name, section in sections.items():
        if isinstance(section, dict) and section.get("enabled") is not False:
            allowed = section.get("allow_from", section.get("allowFrom"))
            if not isinstance(allowed, list) or not allowed:
                return  # paired users are not part of the configuration
            lists[name] = [str(entry) for entry in allowed]
    for index, entry in enumerate(loaded.settings.owner):
        prefix, colon, rest = entry.partition(":")
        named = {prefix: lists[prefix]} if colon and prefix in lists else lists
        identity = rest if colon and prefix in lists else entry
        if lists and not any(is_listed(f"{identity}|{identity}", each) for each in named.values()):
            yield loaded.problem(
                f"owner[{index}]",
                f"'{entry}' is the owner, and no channel lists them under allow_from",
                remedy="their messages are rejected; add them to allow_from",
                level="warning",
            )


def _memory_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield a warning if none of several memory backends is chosen."""
    names = sorted(declaration.name for _, declaration in catalogue.declared("memory"))
    if loaded.settings.memory.backend is None and len(names) > 1:
        yield loaded.problem(
            "memory.backend",
            f"expected one of {', '.join(names)}, because several backends are installed",
            remedy="nothing is remembered until one is chosen; 'none' means that on purpose",
            level="warning",
        )


def _prompt_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the owner's prompt texts."""
    from nanobot_core.prompts import prompt_problems

    packages = {
        plugin_id: selection.plugin.target.partition(":")[0].rpartition(".")[0]
        for plugin_id, selection in catalogue.selections.items()
    }
    yield from prompt_problems(loaded.home / "prompts", packages)
