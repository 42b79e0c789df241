"""Finds sections of plugins that no installed plugin reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from pydantic import BaseModel

from nanobot_core.config.legacy import SECTIONS
from nanobot_core.config.loading import LoadedConfig
from nanobot_core.config.models import ChannelsSettings, GatewaySettings, Settings, ToolsSettings
from nanobot_core.config.tree import KeyPath, find_key, fold, render_path, resolve, walk
from nanobot_core.config.validation import nearest_key
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonValue

_HOSTS: dict[KeyPath, type[BaseModel] | None] = {
    (): Settings,
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("tools",): ToolsSettings,
    ("providers",): None,
}
"""Sections that contain sections of plugins."""


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
            remedy = f"run nanobot plugins add {package}"
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
    is_off = isinstance(section, dict) and section.get("enabled") is False
    return not is_off and has_values(section)


def has_values(section: JsonValue) -> bool:
    """Return whether a section has a key with a value."""
    if not isinstance(section, dict):
        return False
    return any(value for _, value in walk(section) if not isinstance(value, dict | list))
