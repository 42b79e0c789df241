"""What keeps a plugin from being published, each finding with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nanobot_core.testing import Finding, description_findings
from nanobot_devkit.location import PluginLocation

CORE = "nanobot-core"
README_SECTIONS = ("What it adds", "Install", "Settings", "Limits", "Security", "Hooks used")
_UPPER_BOUNDS = frozenset({"<", "<=", "==", "~="})


def check_plugin(plugin: PluginLocation) -> list[Finding]:
    """Return all findings; blocks while child processes run.

    The first ones concern the package. The others are those of `pytest --nanobot-plugin`, without
    the behaviour of the plugin.
    """
    package: list[Finding] = []
    if plugin.distribution is not None:
        package = [
            *_requirement(plugin.distribution),
            *_readme(plugin.distribution, plugin.project),
        ]
    return [*package, *description_findings(plugin.target)]


def _requirement(distribution: Distribution) -> Iterator[Finding]:
    remedy = f'declare it in pyproject.toml, such as dependencies = ["{CORE}>=0.1,<0.2"]'
    for text in distribution.requires or ():
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


def _readme(distribution: Distribution, project: Path | None) -> Iterator[Finding]:
    """Check the README of the working copy, or the one that the package was built with."""
    text = str(distribution.metadata.json.get("description", ""))
    if project is not None:
        file = project / "README.md"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    for section in README_SECTIONS if text else ():
        if not re.search(rf"^##\s+{re.escape(section)}\s*$", text, re.MULTILINE):
            yield Finding(
                "readme", f"the README has no section '{section}'", f"add '## {section}' to it"
            )
