"""What keeps a plugin from being published, each finding with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nanobot_core import __version__
from nanobot_core.testing import Finding, description_findings
from nanobot_devkit.compat import ParsedCode
from nanobot_devkit.location import PluginLocation
from nanobot_devkit.release import compatible_range, select_releases
from nanobot_devkit.wheel import read_folder

CORE = "nanobot-core"
README_SECTIONS = ("What it adds", "Install", "Settings", "Limits", "Security", "Hooks used")
_UPPER_BOUNDS = frozenset({"<", "<=", "==", "~="})


def check_plugin(plugin: PluginLocation) -> list[Finding]:
    """Return all findings; blocks while child processes run.

    The first ones concern the package, the next ones what its code uses of the installed core. The
    others are those of `pytest --nanobot-plugin`, without the behaviour of the plugin.
    """
    package: list[Finding] = []
    if plugin.distribution is not None:
        package = [
            *_requirement(plugin.distribution),
            *_readme(plugin.distribution, plugin.project),
        ]
    return [*package, *_code(plugin), *description_findings(plugin.target)]


def _code(plugin: PluginLocation) -> Iterator[Finding]:
    """Compare what the code uses with what the installed core offers."""
    (release,) = select_releases(())
    for each in ParsedCode(read_folder(plugin.code), [release]).code_misfits(release):
        # What does not parse is reported with the import.
        if each.rule != "syntax":
            yield Finding(each.rule, f"{each.place}: {each.message}", each.remedy)


def _requirement(distribution: Distribution) -> Iterator[Finding]:
    example = f"{CORE}{compatible_range(__version__)}"
    remedy = f'declare it in pyproject.toml, such as dependencies = ["{example}"]'
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
