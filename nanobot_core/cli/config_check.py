"""Everything that is wrong with a configuration, told without importing a plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING

from nanobot_core.cli.options import Options, load_catalogue
from nanobot_core.cli.schema_check import schema_problems
from nanobot_core.config.environment import (
    process_environment,
    resolve_config_path,
    resolve_home,
)
from nanobot_core.config.loading import LoadedConfig, in_order, load_config
from nanobot_core.config.models import ProviderSettings, Settings
from nanobot_core.config.secrets import find_secrets, maskable
from nanobot_core.config.sections import unknown_sections, validate_section
from nanobot_core.config.source import parse_source, read_text
from nanobot_core.config.tree import Origin, parse_path, resolve
from nanobot_core.config.validation import nearest_key
from nanobot_core.errors import ConfigInvalid, ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.plugins.catalogue import Catalogue

_CORE_PROVIDER_MODEL = "nanobot_core:ProviderSettings"


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """What a check found.

    Attributes:
        file: the file that was read, or ``None`` where there is none.
        problems: what must change, by file and line.
        warnings: what has no effect.
    """

    file: str | None
    problems: tuple[ConfigProblem, ...]
    warnings: tuple[ConfigProblem, ...]


def check_config(
    options: Options, overrides: Mapping[str, JsonValue] | None = None
) -> ConfigReport:
    """Return all problems of the core's part and of every installed plugin's sections.

    Args:
        options: the options given.
        overrides: key path to value, over everything else.

    Raises:
        ConfigUnreadable: the file cannot be parsed at all.
    """
    problems: list[ConfigProblem] = []
    try:
        loaded = load_config(options.config, profile=options.profile, overrides=overrides)
    except ConfigInvalid as error:
        problems += error.problems
        loaded = _as_written(options)
    catalogue = load_catalogue(options, loaded)
    # Plugins without a manifest are described by a child process, which is not this one.
    catalogue.examine_undescribed(loaded.home / "cache")
    problems += _section_problems(loaded, catalogue)
    problems += _unknown_problems(loaded, catalogue)
    file = str(loaded.path) if loaded.path else None
    return ConfigReport(file, tuple(in_order(problems)), loaded.warnings)


def plugin_sections(catalogue: Catalogue) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield (plugin id, key path, JSON Schema) of every section that an installed plugin claims."""
    for selection in catalogue.selections.values():
        manifest = selection.plugin.manifest
        for section in manifest.settings if manifest else ():
            yield selection.plugin.id, section.path, section.schema


def known_sections(catalogue: Catalogue) -> set[str]:
    """Return the key paths of all sections of installed plugins, those of providers included."""
    known = {path for _, path, _ in plugin_sections(catalogue)}
    for selection in catalogue.selections.values():
        manifest = selection.plugin.manifest
        for item in manifest.of_kind("providers") if manifest else ():
            known.add(f"providers.{item.name}")
    return known


def _as_written(options: Options) -> LoadedConfig:
    """The file's own values, so that a mistake in the core's part does not hide those of others."""
    environ = process_environment()
    home = resolve_home(environ)
    path = resolve_config_path(options.config, environ, home)
    if not path.is_file():
        return LoadedConfig(Settings(), {}, {}, None, home, frozenset())
    source = parse_source(read_text(path), str(path), is_json=path.suffix.lower() == ".json")
    origins = {key: Origin(str(path), line) for key, line in source.lines.items()}
    secrets = maskable(find_secrets(source.tree))
    return LoadedConfig(Settings(), source.tree, origins, path, home, secrets)


def _section_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    for plugin, path, schema in plugin_sections(catalogue):
        found, section = resolve(loaded.tree, parse_path(path))
        if len(found) == len(parse_path(path)) and section is not None:
            yield from schema_problems(loaded.places, plugin, found, schema, section)
    for selection in catalogue.selections.values():
        manifest = selection.plugin.manifest
        for item in manifest.of_kind("providers") if manifest else ():
            if item.detail.get("settings") == _CORE_PROVIDER_MODEL:
                yield from _provider_problems(loaded, item.name, selection.plugin.id)


def _provider_problems(loaded: LoadedConfig, name: str, plugin: str) -> tuple[ConfigProblem, ...]:
    try:
        validate_section(loaded, f"providers.{name}", ProviderSettings, owner=plugin)
    except ConfigInvalid as error:
        return error.problems
    return ()


def _unknown_problems(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[ConfigProblem]:
    known = _published_sections()
    for unknown in unknown_sections(loaded, known_sections(catalogue)):
        package = known.get(unknown.path)
        near = unknown.nearest or nearest_key(unknown.path, known)
        if package:
            remedy = f"run python3 -m pip install {package}"
        elif near:
            remedy = f"did you mean '{near}'?"
        else:
            remedy = "install the plugin that reads it, or remove it"
        yield loaded.problem(
            unknown.path, "expected a section of an installed plugin", remedy=remedy
        )


def _published_sections() -> dict[str, str]:
    """Return section to distribution for published plugins, from the list that comes with us."""
    text = resources.files("nanobot_core.plugins").joinpath("known-plugins.json").read_text("utf-8")
    sections: dict[str, str] = json.loads(text)["sections"]
    return sections
