"""A plugin's folder has the shape that the tutorial shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HEADINGS = ("What it adds", "Install", "Settings", "Limits", "Security", "Hooks used")
FILES = ("__init__.py", "nanobot-plugin.json", "plugin.py", "py.typed")


def package_findings(root: Path) -> list[str]:
    """Name what is missing or misnamed in the folders below `plugins`."""
    return [
        f"plugins/{folder.name}: {complaint}"
        for folder in sorted((root / "plugins").iterdir())
        if folder.is_dir()
        for complaint in [*_file_complaints(folder), *_project_complaints(folder)]
    ]


def _file_complaints(folder: Path) -> list[str]:
    package = folder / "src" / folder.name.replace("-", "_")
    complaints = [f"has no {name}" for name in FILES if not (package / name).is_file()]
    if not any(folder.glob("tests/**/test_*.py")):
        complaints.append("has no tests")
    readme = folder / "README.md"
    text = readme.read_text("utf-8") if readme.is_file() else ""
    return complaints + [f"README has no '{head}'" for head in HEADINGS if f"## {head}" not in text]


def _project_complaints(folder: Path) -> list[str]:
    pyproject = folder / "pyproject.toml"
    if not pyproject.is_file():
        return ["has no pyproject.toml"]
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    package, short = folder.name.replace("-", "_"), folder.name.removeprefix("nanobot-")
    entry_points = project.get("entry-points", {})
    complaints = []
    if project["name"] != folder.name:
        complaints.append(f"the distribution is called '{project['name']}'")
    # A module for a plugin without state, a class of it for one with state.
    targets = {
        name: target.partition(":")[0] for name, target in entry_points.get("nanobot", {}).items()
    }
    if targets != {short: f"{package}.plugin"}:
        complaints.append(f"the entry point of 'nanobot' is not {short} in {package}.plugin")
    manifest = {short: package}
    if entry_points.get("nanobot.manifest") != manifest:
        complaints.append(f"the entry points of 'nanobot.manifest' are not {manifest}")
    if not any(re.match(r"nanobot-core(\[[a-z,]+\])?>=", text) for text in project["dependencies"]):
        complaints.append("does not say which nanobot-core it works with")
    return complaints
