"""Sections of plugins: validates them, and finds those that no plugin reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from pydantic import BaseModel

from nanobot_core.config.legacy import SECTIONS
from nanobot_core.config.loading import LoadedConfig, in_order
from nanobot_core.config.models import (
    ChannelsSettings,
    GatewaySettings,
    MemorySettings,
    Settings,
    ToolsSettings,
)
from nanobot_core.config.tree import KeyPath, find_key, fold, parse_path, render_path, resolve, walk
from nanobot_core.config.validation import (
    ModelT,
    Validation,
    nearest_key,
    secrets_in,
    shown_value,
)
from nanobot_core.errors import ConfigInvalid, ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue

_SHARED: dict[KeyPath, type[BaseModel]] = {
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("memory",): MemorySettings,
    ("tools",): ToolsSettings,
}
"""Sections that the core and plugins share."""

_HOSTS: dict[KeyPath, type[BaseModel] | None] = {
    (): Settings,
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("tools",): ToolsSettings,
    ("providers",): None,
}
"""Sections that contain sections of plugins."""


def validate_section(
    loaded: LoadedConfig,
    path: str,
    model: type[ModelT],
    *,
    owner: str = "",
    finds_all: bool = False,
    on_warning: Callable[[ConfigProblem], None] | None = None,
) -> ModelT:
    """Return the section at `path` as the model of the plugin that reads it.

    Args:
        loaded: the configuration.
        path: key path of the section; an absent section is an empty one.
        model: the plugin's model.
        owner: id of the plugin, named in errors.
        finds_all: see `Validation`.
        on_warning: receives a warning for each unknown key that does not resemble a known one;
            ``None`` logs it.

    Raises:
        ConfigInvalid: invalid values, all of them, or placeholders without a value.
    """
    if missing := loaded.missing_in(path):
        raise ConfigInvalid(missing)
    steps = parse_path(path)
    found, raw = resolve(loaded.tree, steps)
    if len(found) < len(steps) or raw is None:
        raw = {}
    validation = Validation(loaded, owner, finds_all)
    if not isinstance(raw, dict):
        problem = loaded.problem(path, "expected a mapping", found=shown_value(steps, raw))
        raise ConfigInvalid([problem])
    settings = validation.validate(_without_core_keys(raw, steps, model), model, found or steps)
    for warning in validation.warnings:
        (on_warning or _log)(warning)
    if settings is None:
        raise ConfigInvalid(in_order(validation.errors))
    loaded.redactor.learn(secrets_in(settings))
    return settings


def _log(warning: ConfigProblem) -> None:
    from loguru import logger

    logger.warning("{}", warning)


def unknown_sections(
    loaded: LoadedConfig, known: Collection[str], published: Callable[[], Mapping[str, str]]
) -> Iterator[ConfigProblem]:
    """Yield a problem for each enabled section that no plugin reads.

    A section whose name resembles a known one is an error, any other a warning.

    Args:
        loaded: the configuration.
        known: key paths of the sections of all installed plugins.
        published: returns the distribution of each section that a published plugin reads.
    """
    read = [f"{fold(path)}." for path in known]
    for path, siblings in _foreign_sections(loaded):
        text = render_path(path)
        if any(claim.startswith(f"{fold(text)}.") for claim in read):
            continue
        expected = "no installed plugin reads this section"
        near = _nearest_section(path, [*known, *siblings])
        packages = {fold(section): name for section, name in published().items()}
        if package := packages.get(fold(text)):
            remedy = f"run python3 -m pip install {package}"
        elif fold(text) in _ORIGINAL:
            remedy = "it is one of the original; it has no effect until a plugin reads it"
        elif near or (near := _nearest_section(path, published())):
            yield loaded.problem(text, expected, remedy=f"did you mean '{near}'?")
            continue
        else:
            remedy = "install the plugin that reads it, or remove it"
        yield loaded.problem(text, expected, remedy=remedy, level="warning")


_ORIGINAL = frozenset(map(fold, SECTIONS))


def _nearest_section(path: KeyPath, known: Collection[str]) -> str | None:
    """Return the path of `known` in the same section whose last key resembles that of `path`."""
    outer = fold(render_path(path[:-1]))
    names = {
        last: text
        for text in known
        for start, _, last in (text.rpartition("."),)
        if fold(start) == outer
    }
    near = nearest_key(str(path[-1]), names)
    return names[near] if near else None


def _foreign_sections(loaded: LoadedConfig) -> Iterator[tuple[KeyPath, list[str]]]:
    """Yield the active sections that are not of the core, with the core's keys beside each."""
    for at, model in _HOSTS.items():
        found, host = resolve(loaded.tree, at)
        if len(found) < len(at) or not isinstance(host, dict):
            continue
        own = model.model_fields if model else {}
        siblings = [render_path((*at, name)) for name in own]
        for name, value in host.items():
            # A section without an origin comes from a migration, not from the owner.
            is_written = render_path((*found, name)) in loaded.origins
            if is_written and find_key(own, name) is None and _is_active(value):
                yield (*found, name), siblings


def _is_active(section: JsonValue) -> bool:
    """Whether a section is used: the original writes all its sections, empty or disabled."""
    if not isinstance(section, dict) or section.get("enabled") is False:
        return False
    return any(value for _, value in walk(section) if not isinstance(value, dict | list))


def _without_core_keys(raw: JsonObject, at: KeyPath, model: type[BaseModel]) -> JsonObject:
    """Return `raw` without the keys that the core reads in that section (``memory.backend``)."""
    core = _SHARED.get(at)
    if core is None:
        return raw
    foreign = [name for name in core.model_fields if name not in model.model_fields]
    return {
        key: value for key, value in raw.items() if find_key(dict.fromkeys(foreign), key) is None
    }
