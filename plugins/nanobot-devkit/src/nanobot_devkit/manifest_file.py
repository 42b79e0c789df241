"""The manifest as it is and as it should be."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from nanobot_core import Manifest, examine_plugin, manifest_to_json
from nanobot_devkit.location import PluginLocation
from nanobot_devkit.scaffold import render_manifest


def derive(plugin: PluginLocation) -> Manifest:
    """Return what the plugin's code gives; blocks while a child process runs.

    Raises:
        PluginError: its code does not import, or breaks a rule.
    """
    return examine_plugin(plugin.id)


def is_fresh(plugin: PluginLocation, manifest: Manifest) -> bool:
    """Whether the file says the same as `manifest`, however it is laid out."""
    wanted: object = json.loads(json.dumps(manifest_to_json(manifest)))
    try:
        found: object = json.loads(plugin.manifest_file.read_bytes())
    except (OSError, ValueError):
        return False
    return found == wanted


def write(plugin: PluginLocation, manifest: Manifest) -> None:
    """Replace the file in one step."""
    text = render_manifest(manifest_to_json(manifest))
    descriptor, name = tempfile.mkstemp(dir=plugin.package, suffix=".json")
    temporary = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.chmod(0o644)
    temporary.replace(plugin.manifest_file)
