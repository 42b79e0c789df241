"""Facts of a hook: kind, arguments, fields of its event, result, limit, and its plugins."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import nanobot_core
from nanobot_core.hooks.kinds import RULES
from nanobot_core.tasks import PLUGIN_END_S

if TYPE_CHECKING:
    from nanobot_core.hooks.markers import HookPoint
    from nanobot_core.plugins.catalogue import Catalogue


def known_hooks(catalogue: Catalogue) -> dict[str, tuple[str, HookPoint[..., Any]]]:
    """Return every hook by name, with who declares it: the core, or an enabled plugin."""
    from nanobot_core.errors import PluginError
    from nanobot_core.hooks.caller import declared_hooks
    from nanobot_core.plugins.loader import load_entry

    found = {name: ("nanobot-core", point) for name, point in declared_hooks().items()}
    for plugin in catalogue.enabled():
        if plugin.manifest is None or not plugin.manifest.hookspecs or plugin.isolation:
            continue
        try:
            points = _declared_by(load_entry(plugin))
        except PluginError:
            continue  # nanobot plugins list says what is wrong with it
        found |= {point.name: (plugin.label, point) for point in points}
    return found


def _declared_by(entry: object) -> list[HookPoint[..., Any]]:
    from nanobot_core.hooks.compilation import HookStats, Registrant, compile_plugin

    compiled = compile_plugin(Registrant("example", "", entry), HookStats(now_s=lambda: 0.0))
    [contribute] = compiled["contribute_hookspecs"]
    return list(contribute.function())


def hook_rows(catalogue: Catalogue) -> list[dict[str, str]]:
    """Return each hook with its kind, its limit, and who declares and implements it."""
    return [
        {
            "hook": name,
            "kind": point.kind.value,
            "limit": _limit(point),
            "declared_by": declared_by,
            "implemented_by": ", ".join(implementers(catalogue, name)),
        }
        for name, (declared_by, point) in known_hooks(catalogue).items()
    ]


def implementers(catalogue: Catalogue, hook: str) -> Iterator[str]:
    """Yield the enabled plugins whose manifest says that they implement a hook."""
    from nanobot_core.contracts.plugin import PluginFacts
    from nanobot_core.plugins.manifest import KINDS

    for plugin in catalogue.enabled():
        if (manifest := plugin.manifest) is None:
            continue
        contributed = {KINDS[item.kind] for item in manifest.declarations if item.kind in KINDS}
        contributed |= {"contribute_settings"} if manifest.settings else set()
        contributed |= {"contribute_hookspecs"} if manifest.hookspecs else set()
        contributed |= {"describe_plugin"} if manifest.facts != PluginFacts() else set()
        if hook in contributed or hook in manifest.hooks:
            yield plugin.id


def _limit(point: HookPoint[..., Any]) -> str:
    limit_s = PLUGIN_END_S if point.name == "stop" else point.limit_s
    return "none, a person answers" if limit_s is None else f"{limit_s:g} s"


def hook_facts(point: HookPoint[..., Any]) -> dict[str, object]:
    """Return the contract of a hook as names and values."""
    signature = inspect.signature(point.declaration)
    arguments = {name: _type(each.annotation) for name, each in signature.parameters.items()}
    return {
        "kind": f"{point.kind.value}: {RULES[point.kind].summary}",
        "arguments": [f"{name}: {kind}" for name, kind in arguments.items()],
        "event_fields": [
            f"{name}: {kind}" for name, kind in _fields(arguments.get("event", "")).items()
        ],
        "returns": _type(signature.return_annotation),
        "replaces": f"the field '{point.field}' of the event" if point.field else "",
        "limit": _limit(point),
        "contract": inspect.cleandoc(point.declaration.__doc__ or ""),
        "reaches": point.reaches,
    }


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _fields(event: str) -> dict[str, str]:
    """Return the fields of an event with their types."""
    kind = getattr(nanobot_core, event, None) if event else None
    return {
        name: _type(annotation)
        for name, annotation in (inspect.get_annotations(kind) if kind else {}).items()
        if not name.startswith("_")
    }
