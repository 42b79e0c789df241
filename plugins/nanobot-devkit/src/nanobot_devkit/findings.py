"""What keeps a plugin from being published, each finding with its remedy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nanobot_core import Manifest, PluginError, ToolDefinition
from nanobot_core.testing import definition_findings
from nanobot_devkit.location import GROUP, PluginLocation
from nanobot_devkit.manifest_file import derive, is_fresh
from nanobot_devkit.scaffold import MANIFEST_FILE

CORE = "nanobot-core"
README_SECTIONS = ("What it adds", "Install", "Settings", "Limits", "Security", "Hooks used")
ALLOWED_MODULES = frozenset({"nanobot_core", "pydantic", "pydantic_core"})
"""What an entry module may load besides the standard library; pydantic needs the three below."""

_PYDANTIC_NEEDS = frozenset({"annotated_types", "typing_extensions", "typing_inspection"})
_UPPER_BOUNDS = frozenset({"<", "<=", "==", "~="})
_IMPORT_LIMIT_S = 30.0
# The core's own lazy modules are loaded first, so that only the plugin's own doing is counted.
_PRINT_LOADED = """\
import importlib, json, sys
from nanobot_core import on
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to fix.

    Attributes:
        rule: the rule in a word.
        message: what was found.
        remedy: what to do.
    """

    rule: str
    message: str
    remedy: str


def check_plugin(plugin: PluginLocation) -> list[Finding]:
    """Return all findings; blocks while child processes run."""
    findings = [*_requirement(plugin), *_readme(plugin), *_entry_module(plugin)]
    try:
        manifest = derive(plugin)
    except PluginError as error:
        remedy = error.remedy or "fix the code"
        return [*findings, Finding("code", error.reason, remedy)]
    return [
        *findings,
        *_manifest(plugin, manifest),
        *_settings(manifest),
        *_tools(manifest),
    ]


def _requirement(plugin: PluginLocation) -> Iterator[Finding]:
    remedy = f'declare it in pyproject.toml, such as dependencies = ["{CORE}>=0.1,<0.2"]'
    for text in plugin.distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) != CORE or requirement.marker is not None:
            continue
        if not any(each.operator in _UPPER_BOUNDS for each in requirement.specifier):
            yield Finding("requirement", f"'{text}' has no upper bound", remedy)
        return
    yield Finding("requirement", f"the package does not require {CORE}", remedy)


def _readme(plugin: PluginLocation) -> Iterator[Finding]:
    text = _readme_text(plugin)
    for section in README_SECTIONS:
        if not re.search(rf"^##\s+{re.escape(section)}\s*$", text, re.MULTILINE):
            yield Finding(
                "readme", f"the README has no section '{section}'", f"add '## {section}' to it"
            )


def _readme_text(plugin: PluginLocation) -> str:
    """The working copy's README, else the one that the package was built with."""
    if plugin.project is not None:
        file = plugin.project / "README.md"
        return file.read_text(encoding="utf-8") if file.is_file() else ""
    return str(plugin.distribution.metadata.json.get("description", ""))


def _entry_module(plugin: PluginLocation) -> Iterator[Finding]:
    """Import the entry module in a child process and see what came with it."""
    child = subprocess.run(
        [sys.executable, "-c", _PRINT_LOADED, plugin.module],
        capture_output=True,
        text=True,
        timeout=_IMPORT_LIMIT_S,
        check=False,
    )
    if child.returncode:
        return  # The examination tells why.
    loaded = set(json.loads(child.stdout.strip().rpartition("\n")[2]))
    own = {plugin.module.partition(".")[0]}
    heavy = sorted(
        loaded - own - ALLOWED_MODULES - _PYDANTIC_NEEDS - frozenset(sys.stdlib_module_names)
    )
    if heavy:
        yield Finding(
            "entry-module",
            f"importing '{plugin.module}' also loads {', '.join(heavy)}",
            "name classes by 'package.module:Class' there and import them where they are used",
        )


def _manifest(plugin: PluginLocation, manifest: Manifest) -> Iterator[Finding]:
    build = f"run nanobot plugins build {plugin.id}"
    if not plugin.manifest_file.is_file():
        yield Finding("manifest", f"the package has no {MANIFEST_FILE}", build)
    elif not is_fresh(plugin, manifest):
        yield Finding("manifest", f"{MANIFEST_FILE} says other things than the code", build)
    package = plugin.module.partition(".")[0]
    wanted = f"{package}:{MANIFEST_FILE}"
    declared = {
        entry.value
        for entry in plugin.distribution.entry_points
        if entry.group == f"{GROUP}.manifest" and entry.name == plugin.id
    }
    if declared != {wanted}:
        yield Finding(
            "manifest",
            "the manifest is not declared where the core looks for it",
            f'add to [project.entry-points."{GROUP}.manifest"]: {plugin.id} = "{wanted}"',
        )


def _settings(manifest: Manifest) -> Iterator[Finding]:
    for section in manifest.settings:
        # A schema there means names of the owner's choice, each with a checked value.
        others = section.schema.get("additionalProperties")
        if others is not False and not (isinstance(others, dict) and others):
            yield Finding(
                "settings",
                f"section '{section.path}' accepts unknown keys",
                f"derive {section.model} from nanobot_core.PluginSettings",
            )


def _tools(manifest: Manifest) -> Iterator[Finding]:
    for declared in manifest.of_kind("tools"):
        definition = ToolDefinition(
            name=declared.name,
            description=str(declared.detail["description"]),
            parameters=declared.detail["parameters"],
        )
        for complaint in definition_findings(definition):
            yield Finding(
                "tool", f"tool '{declared.name}': {complaint}", "change the tool's definition"
            )
