"""The manifest: what a plugin gives, as data that is read without importing it.

It is derived from the plugin's code (``nanobot plugins build``) and shipped in its wheel.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from nanobot_core.contracts.job import SystemJob, Trigger
from nanobot_core.contracts.panel import Panel
from nanobot_core.contracts.plugin import PluginFacts
from nanobot_core.contracts.tool import DeclaredTool
from nanobot_core.events import ToolDefinition
from nanobot_core.hooks.caller import GATES, declared_hooks
from nanobot_core.hooks.kinds import Kind
from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from nanobot_core.config.models import Settings

SCHEMA_VERSION = 1

KINDS = {
    "tools": "contribute_tools",
    "channels": "contribute_channels",
    "providers": "contribute_providers",
    "memory": "contribute_memory",
    "stores": "contribute_stores",
    "services": "contribute_services",
    "commands": "contribute_commands",
    "cli": "contribute_cli",
    "routes": "contribute_routes",
    "transcribers": "contribute_transcribers",
    "checks": "contribute_checks",
    "isolators": "contribute_isolators",
}
"""Kind of contribution to the hook that gives it."""

OPEN_HOOKS: dict[str, type[object]] = {
    "contribute_jobs": SystemJob,
    "contribute_triggers": Trigger,
    "contribute_panels": Panel,
}
"""Contribution hooks whose items are objects, for the plugins that declare to read them."""


CHANNEL_CONDITION = "channel:"
"""Begins the one condition that an implementation may have: a channel is switched on."""

ANY_VARIABLE = "*"
"""Declared by a plugin that reads environment variables which only its settings name."""

CRITICAL = "critical "
"""Begins a key of `Manifest.reaches`: a chain hook whose implementation must not be left out."""

_STRICT = {"extra": "forbid"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9_-]+)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One contribution.

    Attributes:
        kind: a key of `KINDS`.
        name: its name within the kind.
        summary: one line for people.
        detail: its specification as plain data; for a tool ``description`` and ``parameters``.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    kind: str
    name: str
    summary: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def known_fields(specification: type, detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values of a declaration's detail that a specification has fields for.

    A plugin can be built with another release of the core that its range allows, whose
    specifications have other fields; they have defaults.

    Args:
        specification: a dataclass, such as ``Mount``.
        detail: what the manifest says.
    """
    names = {each.name for each in dataclasses.fields(specification)}
    return {name: value for name, value in detail.items() if name in names}


@dataclass(frozen=True, slots=True)
class SettingsDeclaration:
    """A section of the plugin's settings, its JSON Schema, and the variables it reads.

    `model` is empty for an isolated plugin, whose models cannot be imported.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    path: str
    model: str
    schema: dict[str, Any]
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a plugin gives.

    Attributes:
        id: the plugin's id, which is the name of its entry point.
        schema_version: version of this format.
        declarations: contributions, by kind and name.
        hooks: hooks of the agent's work and of the plugin's life that it implements, each with
            the generation it was built for.
        settings: its sections.
        facts: the description that the plugin gives of itself.
        hookspecs: hooks of its own, which other plugins implement to give it something.
        when: condition by hook, such as ``channel:telegram``, for hooks that have one.
        critical: chain hooks whose implementation must not be left out.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    id: str
    schema_version: int = SCHEMA_VERSION
    declarations: tuple[Declaration, ...] = ()
    hooks: dict[str, int] = field(default_factory=dict)
    settings: tuple[SettingsDeclaration, ...] = ()
    facts: PluginFacts = field(default_factory=PluginFacts)
    hookspecs: tuple[str, ...] = ()
    when: dict[str, str] = field(default_factory=dict)
    critical: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> tuple[Declaration, ...]:
        """Return the contributions of one kind."""
        return tuple(item for item in self.declarations if item.kind == kind)

    def has_pattern_for(self, tool: str) -> bool:
        """Whether it declares tools by a pattern that fits the name of one."""
        return any(fnmatchcase(tool, pattern) for pattern in self.facts.tool_names)

    @property
    def requires(self) -> dict[str, str]:
        """The plugins that it requires: id to version specifiers, such as ``>=2``, or nothing."""
        return _versions_by_id(each for each in self.facts.requires if not _is_optional(each))

    @property
    def uses(self) -> dict[str, str]:
        """The plugins that it also works without, as `requires`."""
        return _versions_by_id(each for each in self.facts.requires if _is_optional(each))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the owner should know before enabling it, in words."""
        return tuple(dict.fromkeys(self.reaches.values()))

    @property
    def reaches(self) -> dict[str, str]:
        """What it can see, change or decide, in words, each under a key that no rewording changes.

        What a hook lets a plugin do is said where the hook is declared. One that is not declared
        in the core belongs to another plugin.
        """
        points = declared_hooks()
        found = {f"says {words}": words for words in self.facts.capabilities}
        given = [KINDS[item.kind] for item in self.declarations if item.kind in KINDS]
        given += ["contribute_tools"] if self.facts.tool_names else []
        for hook in (*given, *self.hooks):
            words = points[hook].reaches if hook in points else f"takes part in '{hook}'"
            if words:
                found[hook] = words
        if any(item.detail.get("owner_id") for item in self.of_kind("channels")):
            found["owner_id"] = "decides by itself that someone is the owner"
        for hook in self.critical:
            found[CRITICAL + hook] = f"stops what its '{hook}' cannot process"
        for name in self.variables:
            what = "any environment variable" if name == ANY_VARIABLE else f"the variable {name}"
            found[f"environment {name}"] = f"reads {what}"
        return found

    @property
    def judges(self) -> frozenset[str]:
        """The hooks that must not be left out: its gates, and its chains marked critical."""
        return GATES & self.hooks.keys() | frozenset(self.critical)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it reads, with those of its providers' keys."""
        of_sections = [name for section in self.settings for name in section.environment]
        of_providers = [
            str(name)
            for provider in self.of_kind("providers")
            for name in provider.detail.get("api_key_env") or ()
        ]
        return tuple(dict.fromkeys((*of_sections, *of_providers)))


def _is_optional(requirement: str) -> bool:
    return requirement.rstrip().endswith("?")


def _versions_by_id(requirements: Iterable[str]) -> dict[str, str]:
    found = (_REQUIREMENT.fullmatch(text.strip(" ?")) for text in requirements)
    return {match[1]: match[2].strip() for match in found if match}


def parse_manifest(text: str) -> Manifest:
    """Return the manifest in `text`, checked.

    Raises:
        ValueError: it is not a manifest, or it has a format that this release does not know.
    """
    data = json.loads(text)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        msg = f"schema_version must be {SCHEMA_VERSION}, found {version!r}"
        raise ValueError(msg)
    return _manifest_type().validate_python(data)


@cache
def _manifest_type() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def manifest_to_json(manifest: Manifest) -> JsonObject:
    """Return `manifest` as plain data."""
    data = dataclasses.asdict(manifest)
    for name in ("hookspecs", "when", "critical"):
        if not data[name]:
            del data[name]
    for name in ("reads", "secret_files"):
        if not data["facts"][name]:
            del data["facts"][name]
    return data


def manifest_from_index(data: dict[str, Any]) -> Manifest:
    """Return the manifest that `manifest_to_json` wrote; no checks, no pydantic, quick."""
    facts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data["facts"].items()
    }
    return Manifest(
        id=data["id"],
        declarations=tuple(Declaration(**item) for item in data["declarations"]),
        hooks=data["hooks"],
        settings=tuple(
            SettingsDeclaration(
                item["path"], item["model"], item["schema"], tuple(item["environment"])
            )
            for item in data["settings"]
        ),
        facts=PluginFacts(**facts),
        hookspecs=tuple(data.get("hookspecs", ())),
        when=data.get("when", {}),
        critical=tuple(data.get("critical", ())),
    )


def declared_tool(declaration: Declaration) -> DeclaredTool:
    """Return the tool that a contribution declares."""
    detail = declaration.detail
    description, parameters = detail.get("description"), detail.get("parameters")
    return DeclaredTool(
        ToolDefinition(
            name=declaration.name,
            description=description if isinstance(description, str) else "",
            parameters=parameters if isinstance(parameters, dict) else {"type": "object"},
        ),
        read_only=detail.get("read_only") is True,
        compactable=detail.get("compactable") is True,
        idempotent=detail.get("idempotent") is True,
        for_guests=detail.get("for_guests") is True,
    )


def listens(manifest: Manifest, settings: Settings) -> bool:
    """Whether a plugin implements a hook of the agent's work, or must react to its start."""
    points = declared_hooks()
    quiet = {Kind.OWN, Kind.CONTRIBUTE}
    return any(
        name in points
        and points[name].kind not in quiet
        and holds(manifest.when.get(name, ""), settings)
        for name in manifest.hooks
    )


def holds(condition: str, settings: Settings) -> bool:
    """Whether the channel that a condition names is switched on; no condition always holds."""
    if not condition:
        return True
    section = settings.section(f"channels.{condition.removeprefix(CHANNEL_CONDITION)}")
    return section is not None and section.get("enabled", True) is True


def generation_problem(manifest: Manifest) -> str:
    """Return which hooks mean something else here than the plugin was built for; empty if none."""
    points = declared_hooks()
    wrong = [
        f"generation {built} of hook '{name}' and this one has generation {points[name].revision}"
        for name, built in manifest.hooks.items()
        if name in points and points[name].revision != built
    ]
    return f"it is built for a nanobot-core with {', '.join(wrong)}" if wrong else ""


def brings_tools(manifest: Manifest) -> bool:
    """Whether a plugin has tools, now or at run time."""
    return bool(manifest.of_kind("tools") or manifest.facts.tool_names)
