"""Folders with installed distributions that do nothing."""

from __future__ import annotations

import json
from pathlib import Path

from nanobot_core.plugins.manifest import Declaration, Manifest, manifest_to_json

IMPORTED = "imported"
"""File that a plugin's module creates in its folder when it is imported."""


def add_distributions(folder: Path, count: int) -> None:
    """Install `count` distributions without entry points of ours."""
    for number in range(count):
        name = f"other-{number}"
        _add_dist_info(folder, name, "[console_scripts]\nother = other:main\n")


def add_plugins(folder: Path, count: int) -> None:
    """Install `count` plugins, each with a tool, a group of commands, a hook and a manifest."""
    for number in range(count):
        package = f"nanobot_idle_{number}"
        home = folder / package
        home.mkdir(parents=True)
        (home / "__init__.py").write_text("")
        (home / "plugin.py").write_text(
            f"from pathlib import Path\n\nPath(__file__).with_name({IMPORTED!r}).touch()\n"
        )
        manifest = manifest_to_json(_manifest(f"idle{number}", package))
        (home / "nanobot-plugin.json").write_text(json.dumps(manifest))
        _add_dist_info(
            folder,
            f"nanobot-idle-{number}",
            f"[nanobot]\nidle{number} = {package}.plugin\n"
            f"[nanobot.manifest]\nidle{number} = {package}\n",
        )


def imported_plugins(folder: Path) -> int:
    """Return how many of the plugins have been imported so far."""
    return len(list(folder.glob(f"*/{IMPORTED}")))


def _add_dist_info(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: Nothing.\n"
        "Requires-Dist: packaging\n"
    )
    (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").write_text("")


def _manifest(plugin_id: str, package: str) -> Manifest:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool = {"description": "Do nothing.", "parameters": parameters}
    group = {"name": plugin_id, "summary": "Do nothing.", "app": f"{package}.cli:app"}
    return Manifest(
        id=plugin_id,
        declarations=(
            Declaration("cli", plugin_id, "Do nothing.", group),
            Declaration("tools", f"{plugin_id}_tool", "Do nothing.", tool),
        ),
        hooks={"after_turn": 1},
    )
