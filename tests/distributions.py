"""Installed distributions, written by hand into a folder on ``sys.path``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from nanobot_core.messages import JsonObject
from nanobot_core.plugins.index import MANIFEST_FILE


def write_distribution(
    site: Path,
    name: str,
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    python: str = "",
    entry_points: str = "",
    files: Mapping[str, str] | None = None,
    record: str | None = None,
) -> Path:
    """Write a distribution as an installer leaves it; return its ``dist-info`` folder.

    Without `record`, its ``RECORD`` lists `files`.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Summary: A stranger"]
    head += [f"Requires-Python: {python}"] if python else []
    head += [f"Requires-Dist: {requirement}" for requirement in requires]
    (info / "METADATA").write_text("\n".join(head) + "\n", "utf-8")
    (info / "entry_points.txt").write_text(entry_points, "utf-8")
    if record is None:
        digests = {path: sha256(text.encode()).hexdigest() for path, text in (files or {}).items()}
        record = "".join(f"{path},sha256={digest},\n" for path, digest in digests.items())
    (info / "RECORD").write_text(record, "utf-8")
    for path, text in (files or {}).items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return info


def write_plugin(
    site: Path,
    plugin_id: str,
    *,
    code: str = "",
    manifest: JsonObject | str | None = None,
    requires: Sequence[str] = (),
    python: str = "",
    record: str | None = None,
) -> Path:
    """Write a plugin whose package is ``acme_<id>``; return the folder of the package.

    Args:
        site: folder on ``sys.path``.
        plugin_id: its id; the distribution is ``acme-<id>``.
        code: its ``plugin.py``.
        manifest: its manifest, or the text of one; `None` leaves it undescribed.
        requires: lines of ``Requires-Dist``.
        python: ``Requires-Python``.
        record: its ``RECORD``; without it, one that lists its files.
    """
    package = f"acme_{plugin_id.replace('-', '_')}"
    entry_points = f"[nanobot]\n{plugin_id} = {package}.plugin\n"
    files = {f"{package}/__init__.py": "", f"{package}/plugin.py": code}
    if manifest is not None:
        entry_points += f"[nanobot.manifest]\n{plugin_id} = {package}\n"
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        files[f"{package}/{MANIFEST_FILE}"] = text
    write_distribution(
        site,
        f"acme-{plugin_id}",
        requires=requires,
        python=python,
        entry_points=entry_points,
        files=files,
        record=record,
    )
    return site / package


def manifest_of(plugin_id: str, **fields: Any) -> JsonObject:
    """Return the smallest manifest of a plugin, with `fields` instead of its own."""
    return {"id": plugin_id, "schema_version": 1, **fields}


def tool_declaration(name: str, **detail: Any) -> JsonObject:
    """Return what a manifest says of a tool."""
    parameters: JsonObject = {"type": "object", "properties": {}}
    return {
        "kind": "tools",
        "name": name,
        "summary": f"{name} it",
        "detail": {"description": f"{name} it", "parameters": parameters, **detail},
    }
