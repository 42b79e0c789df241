"""The configuration of nanobot-ai as one of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from nanobot_core.config.editing import change_values, migrate_json_to_yaml
from nanobot_core.config.loading import LoadedConfig, read_config
from nanobot_core.config.source import parse_source, read_text
from nanobot_core.config.tree import (
    KeyPath,
    find_key,
    fold,
    parse_path,
    render_path,
    resolve,
)
from nanobot_core.disk import replace_file
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.errors import ConfigProblem

_HEADER: Final = "# Moved from {path}. 'nanobot config schema' describes every key.\n"
_EVERYONE: Final = "*"
_EMPTY: Final[tuple[JsonValue, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Converted:
    """A configuration under the keys of this core.

    Attributes:
        text: the YAML file, secrets included.
        loaded: what it means.
        problems: what a start would find.
        without_counterpart: values that are left out, with the reason.
        unused: sections that have never been filled in and are left out.
    """

    text: str = field(repr=False)
    loaded: LoadedConfig = field(repr=False)
    problems: tuple[ConfigProblem, ...]
    without_counterpart: tuple[ConfigProblem, ...]
    unused: tuple[str, ...]


def convert(
    source: Path | None,
    home: Path,
    owners: Sequence[str],
    enabled: Collection[str],
    check: Callable[[LoadedConfig], Iterable[ConfigProblem]],
) -> Converted:
    """Return the configuration at `source` as one of ours. Blocks.

    Values that mean nothing here are left out silently if the original writes them for keys that
    nobody has set.

    Args:
        source: ``config.json`` of nanobot-ai; ``None`` makes one without its settings.
        home: where the new home will be.
        owners: sender ids that may control the agent; an owner in the file stays.
        enabled: ids of the plugins that run.
        check: returns what a start with a configuration would find.

    Raises:
        ConfigError: the file cannot be read.
    """
    text = read_text(source) if source else "{}"
    tree = parse_source(text, str(source), is_json=True).tree
    unused = tuple(_drop_unused(tree))
    _drop_empty(tree)
    with TemporaryDirectory(prefix="nanobot-") as folder:
        made, warnings = _migrated(tree, Path(folder))
        loaded = read_config(made, home=home)
        # Once more without the values that nobody has chosen and that mean nothing here.
        for problem in (*warnings, *check(loaded)):
            _drop_default(tree, parse_path(problem.path))
        _drop_empty(tree)
        made.unlink()
        made, warnings = _migrated(tree, Path(folder))
        changes: dict[str, JsonValue] = {
            "agents.defaults.workspace": None,  # the workspace is in the new home
            "plugins.enabled": list[JsonValue](sorted(enabled)),
        }
        if owners:
            changes["owner"] = list[JsonValue](owners)
        change_values(made, changes)
        header = _HEADER.format(path=source or "nanobot-ai")
        replace_file(made, header + made.read_text("utf-8"))
        text = made.read_text("utf-8")
        loaded = read_config(made, home=home)
    return Converted(text, loaded, tuple(check(loaded)), tuple(warnings), unused)


def _migrated(tree: JsonObject, folder: Path) -> tuple[Path, list[ConfigProblem]]:
    """Write `tree` as our configuration into `folder`; see `migrate_json_to_yaml`."""
    copy = folder / "config.json"
    replace_file(copy, json.dumps(tree))
    return migrate_json_to_yaml(copy)


def original_workspace(source: Path) -> str:
    """Return the workspace that a ``config.json`` names, empty if it names none.

    Raises:
        ConfigError: the file cannot be read.
    """
    tree = parse_source(read_text(source), str(source), is_json=True).tree
    value: JsonValue = tree
    for step in ("agents", "defaults", "workspace"):
        key = find_key(value, step) if isinstance(value, dict) else None
        value = value[key] if isinstance(value, dict) and key else None
    return value if isinstance(value, str) else ""


def admitted(loaded: LoadedConfig) -> dict[str, list[str]]:
    """Return the ids that each enabled channel admits."""
    channels = loaded.value_at("channels")
    found = {}
    for name, section in channels.items() if isinstance(channels, dict) else ():
        if isinstance(section, dict) and section.get("enabled") is not False:
            ids = loaded.value_at(f"channels.{name}.allow_from")
            found[name] = [str(each) for each in ids] if isinstance(ids, list) else []
    return found


def only_person(people: dict[str, list[str]]) -> str:
    """Return ``channel:id`` of the only person whom any channel admits, or an empty string."""
    everyone = [(name, each) for name, ids in people.items() for each in ids]
    if len(everyone) != 1 or _EVERYONE in everyone[0]:
        return ""
    name, who = everyone[0]
    return f"{name}:{who.partition('|')[0]}"


def _drop_unused(tree: JsonObject) -> Iterator[str]:
    """Remove sections of providers and channels that nobody has filled in; yield their paths."""
    for name in ("providers", "channels"):
        sections = tree.get(name)
        if not isinstance(sections, dict):
            continue
        for key, section in list(sections.items()):
            is_idle = isinstance(section, dict) and section.get("enabled") is not True
            if is_idle and _is_default(section, (name, key)):
                del sections[key]
                yield render_path((name, key))


def _drop_default(tree: JsonObject, at: KeyPath) -> None:
    """Remove the value at `at` if nanobot-ai writes it into each new configuration."""
    found, value = resolve(tree, at)
    _, holder = resolve(tree, found[:-1])
    if len(found) == len(at) and isinstance(holder, dict) and _is_default(value, at):
        del holder[str(found[-1])]


def _is_default(value: JsonValue, at: KeyPath) -> bool:
    """Whether a value, or all of a section, is what a release writes for a key nobody has set."""
    if isinstance(value, dict):
        return all(_is_default(inner, (*at, key)) for key, inner in value.items())
    return value in _EMPTY or value in _defaults().get(fold(render_path(at)), ())


@cache
def _defaults() -> Mapping[str, Sequence[JsonValue]]:
    """Return the values that releases of nanobot-ai write, by folded key path."""
    text = resources.files("nanobot_core.moving").joinpath("defaults.json").read_text("utf-8")
    found: dict[str, list[JsonValue]] = json.loads(text)
    return found


def _drop_empty(tree: JsonObject) -> None:
    """Remove empty values, which the original writes for keys that nobody has set."""
    for key, value in list(tree.items()):
        if isinstance(value, dict):
            _drop_empty(value)
        if value in _EMPTY:
            del tree[key]
