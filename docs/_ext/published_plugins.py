"""Writes the index of our plugins: ``python docs/_ext/published_plugins.py``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from nanobot_core.plugins.manifest import parse_manifest
from nanobot_core.plugins.published import INDEX_SCHEMA, OUR_INDEX

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "nanobot_core" / "plugins" / OUR_INDEX
_SECTION_KINDS = ("channels", "providers")


def render_index() -> str:
    """Return the index of the plugins in this repository; their blocks are kept."""
    blocked = json.loads(FILE.read_bytes())["blocked"] if FILE.exists() else []
    found = [_entry(path.parent) for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))]
    data = {"schema_version": INDEX_SCHEMA, "plugins": [each for each in found if each]}
    return json.dumps({**data, "blocked": blocked}, indent=1, ensure_ascii=False) + "\n"


def _entry(folder: Path) -> dict[str, Any]:
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    manifests = [
        parse_manifest(file.read_text("utf-8"))
        for file in sorted(folder.glob("src/*/nanobot-plugin.json"))
    ]
    declared = [item for manifest in manifests for item in manifest.declarations]
    named = [f"{item.kind}.{item.name}" for item in declared if item.kind in _SECTION_KINDS]
    sections = [each.path for manifest in manifests for each in manifest.settings]
    kinds = {item.kind for item in declared}
    kinds |= {"hooks" for manifest in manifests if manifest.hooks}
    kinds |= {"tools" for manifest in manifests if manifest.facts.tool_names}
    requires = (each.partition("nanobot-core") for each in project.get("dependencies", ()))
    core = next((rest for head, name, rest in requires if name and not head), "")
    return {
        "name": project["name"],
        "ids": [manifest.id for manifest in manifests],
        "summary": project["description"],
        "kinds": sorted(kinds),
        "capabilities": sorted({each for manifest in manifests for each in manifest.capabilities}),
        "core": core.partition("]")[2] or core,
        "sections": sorted({*named, *sections}),
        "commands": sorted(
            item.name for item in declared if item.kind == "cli" and not item.detail.get("parent")
        ),
    }


if __name__ == "__main__":
    FILE.write_text(render_index(), "utf-8")
