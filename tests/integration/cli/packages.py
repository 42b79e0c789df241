"""Plugin packages that a test writes, installed as far as Python can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.terminal import LIMIT_S

_HEAD = """\
from __future__ import annotations
from pathlib import Path
from shutil import rmtree
Path(__file__).with_name("imported").touch()
from nanobot_core import LazyTool, PluginFacts, ProviderSpec, SettingsSection, on
"""
_SETTINGS = """\
from __future__ import annotations
from typing import Literal
from pydantic import Field
from nanobot_core import PluginSettings
class Part(PluginSettings):
    size: int = 1
class Model(PluginSettings):
    part: Part = Part()
    mode: Literal["fast", "exact"] = "fast"
    count: int = Field(default=1, ge=1, le=9)
    unit: str = "K"
    limit_s: float = 5
    token: str | None = None
"""
_TOOL = """\
from nanobot_core import tool
@tool
def {name}(city: str) -> str:
    '''Report on one city.'''
    return city
"""
_DERIVE = """\
import json, sys
from nanobot_core import examine_plugin, manifest_to_json
print(json.dumps(manifest_to_json(examine_plugin(sys.argv[1]))))
"""


_manifests: dict[tuple[str, str], str] = {}
"""By id and code of a plugin."""


@dataclass(frozen=True)
class Packages:
    """A folder of plugins, and a command line that knows them.

    Attributes:
        folder: where the packages lie.
        nanobot: the command line.
    """

    folder: Path
    nanobot: CommandLine

    def add(self, plugin_id: str, code: str = "", *, described: bool = True) -> None:
        """Install a plugin with a settings model and a tool named as it is, if `code` gives them.

        Args:
            plugin_id: its id.
            code: hook implementations.
            described: it has a manifest.
        """
        package = self.folder / f"nanobot_{plugin_id}"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(_HEAD + code)
        (package / "settings.py").write_text(_SETTINGS)
        (package / "tool.py").write_text(_TOOL.format(name="weather"))
        info = self.folder / f"nanobot_{plugin_id}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: nanobot-{plugin_id}\nVersion: 1.2\nSummary: A sample.\n"
        )
        (info / "entry_points.txt").write_text(
            f"[nanobot]\n{plugin_id} = nanobot_{plugin_id}.plugin\n"
            f"[nanobot.manifest]\n{plugin_id} = nanobot_{plugin_id}\n"
        )
        if described:
            manifest = package / "nanobot-plugin.json"
            # Equal code has equal manifests, and to derive one takes a process.
            if (plugin_id, code) not in _manifests:
                _manifests[plugin_id, code] = self._derived(plugin_id)
                (package / "imported").unlink()
            manifest.write_text(_manifests[plugin_id, code])

    def remove(self, plugin_id: str) -> None:
        """Take a plugin away, as an upgrade does before it installs the next version."""
        rmtree(self.folder / f"nanobot_{plugin_id}")
        rmtree(self.folder / f"nanobot_{plugin_id}-1.2.dist-info")

    def imported(self) -> Collection[str]:
        """Return the ids of plugins whose entry module was imported by a command."""
        return {
            marker.parent.name.removeprefix("nanobot_") for marker in self.folder.glob("*/imported")
        }

    def _derived(self, plugin_id: str) -> str:
        child = subprocess.run(
            [sys.executable, "-c", _DERIVE, plugin_id],
            env=dict(self.nanobot.environ),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        return child.stdout


def packages_for(bare: CommandLine, folder: Path) -> Packages:
    """Return an empty set of packages that `bare` is extended by."""
    folder.mkdir()
    path = os.pathsep.join([bare.environ["PYTHONPATH"], str(folder)])
    return Packages(folder, replace(bare, environ={**bare.environ, "PYTHONPATH": path}))


SETTINGS = """
@on.contribute_settings
def contribute_settings():
    return [SettingsSection("tools.{id}", "nanobot_{id}.settings:Model")]
"""
TOOL = """
@on.contribute_tools
def contribute_tools(ctx):
    return [LazyTool("weather", "nanobot_{id}.tool:weather")]
"""
HOOK = """
@on.finalize_content{options}
def finalize_content(event):
    return None
"""
