"""Sections of plugins: validated for the plugin that claims them, and those that none claims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from pydantic import BaseModel

from nanobot_core.config.loading import LoadedConfig, in_order
from nanobot_core.config.models import (
    ChannelsSettings,
    GatewaySettings,
    MemorySettings,
    Settings,
    ToolsSettings,
)
from nanobot_core.config.tree import KeyPath, find_key, fold, parse_path, render_path, resolve, walk
from nanobot_core.config.validation import ModelT, Validation, nearest_key, secrets_in
from nanobot_core.errors import ConfigInvalid, ConfigProblem
from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass

_SHARED: dict[KeyPath, type[BaseModel]] = {
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("memory",): MemorySettings,
    ("tools",): ToolsSettings,
}
"""Sections that the core and plugins have in common."""

_HOSTS: dict[KeyPath, type[BaseModel] | None] = {
    (): Settings,
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("tools",): ToolsSettings,
    ("providers",): None,
}
"""Sections in which plugins have theirs."""


def validate_section(
    loaded: LoadedConfig,
    path: str,
    model: type[ModelT],
    *,
    owner: str = "",
    on_unknown: Callable[[ConfigProblem], None] | None = None,
) -> ModelT:
    """Return the section at `path` as the model of the plugin that claims it.

    Args:
        loaded: the configuration.
        path: key path of the section; an absent section is an empty one.
        model: the plugin's model.
        owner: id of the plugin, named in errors.
        on_unknown: takes a warning for each unknown key that resembles no known one; without it
            such keys are errors.

    Raises:
        ConfigInvalid: values that do not fit, all of them.
    """
    if missing := loaded.missing_in(path):
        raise ConfigInvalid(missing)
    steps = parse_path(path)
    found, raw = resolve(loaded.tree, steps)
    if len(found) < len(steps) or raw is None:
        raw = {}
    validation = Validation(loaded.places, owner)
    if not isinstance(raw, dict):
        problem = loaded.problem(path, "expected a mapping", found=loaded.places.show(steps, raw))
        raise ConfigInvalid([problem])
    settings = validation.validate(_without_core_keys(raw, steps, model), model, found or steps)
    errors = validation.errors
    if on_unknown is None:
        errors = errors + validation.warnings
    else:
        for warning in validation.warnings:
            on_unknown(warning)
    if settings is None or errors:
        raise ConfigInvalid(in_order(errors))
    loaded.redactor.learn(secrets_in(settings))
    return settings


@dataclass(frozen=True, slots=True)
class UnknownSection:
    """A section that no plugin claims.

    Attributes:
        path: its key path.
        nearest: key path of the known section it is probably meant to be, or ``None``.
    """

    path: str
    nearest: str | None


def unknown_sections(loaded: LoadedConfig, known: Collection[str]) -> list[UnknownSection]:
    """Return the sections that neither the core nor a plugin claims and that are switched on.

    Args:
        loaded: the configuration.
        known: key paths of the sections of all installed plugins.
    """
    claimed = [fold(path) for path in known]
    unknown = []
    for path, siblings in _foreign_sections(loaded.tree):
        text = render_path(path)
        if any(f"{claim}.".startswith(f"{fold(text)}.") for claim in claimed):
            continue
        near = nearest_key(text, [*known, *(render_path((*path[:-1], name)) for name in siblings)])
        unknown.append(UnknownSection(text, near))
    return unknown


def _foreign_sections(tree: JsonObject) -> Iterator[tuple[KeyPath, Collection[str]]]:
    """Yield the active sections that the core does not know, with the core's keys beside each."""
    for at, model in _HOSTS.items():
        found, host = resolve(tree, at)
        if len(found) < len(at) or not isinstance(host, dict):
            continue
        own = model.model_fields if model else {}
        for name, value in host.items():
            if find_key(own, name) is None and isinstance(value, dict) and _is_active(value):
                yield (*found, name), own


def _is_active(section: JsonObject) -> bool:
    """The original writes all sections it knows into the file, empty or switched off."""
    if section.get("enabled") is False:
        return False
    return any(value for _, value in walk(section) if not isinstance(value, dict | list))


def _without_core_keys(raw: JsonObject, at: KeyPath, model: type[BaseModel]) -> JsonObject:
    """`raw` without what the core itself reads in that section (``memory.backend``)."""
    core = _SHARED.get(at)
    if core is None:
        return raw
    foreign = [name for name in core.model_fields if name not in model.model_fields]
    return {
        key: value for key, value in raw.items() if find_key(dict.fromkeys(foreign), key) is None
    }
