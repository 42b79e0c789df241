"""Environments of their own, and wheels to install into them; nothing reaches a network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

LIMIT_S = 120
TOOL = """\
from nanobot_core import PluginFacts, on, tool
@tool
def {name}(city: str) -> str:
    '''Report on one city.'''
    return city
@on.contribute_tools
def contribute_tools(ctx):
    return [{name}]
"""
GATE = """\
@on.rewrite_inbound
async def rewrite_inbound(event):
    return None
"""
_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "{version}"
description = "Made by a test"
requires-python = "{python}"
dependencies = [{requires}]
{entry_points}
[tool.hatch.build.targets.wheel]
packages = ["{package}"]
artifacts = ["*.json", "*.pth"]
[tool.hatch.build.targets.wheel.force-include]
{included}
"""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution that a test writes.

    Attributes:
        name: its name; the package has underscores instead of hyphens.
        version: its version.
        code: its ``plugin.py``; empty for one without a plugin.
        requires: its requirements.
        plugin_id: id of the plugin.
        manifest: text of its manifest; ``None`` leaves it undescribed.
        files: further files of the wheel, by their path in ``site-packages``.
        python: ``Requires-Python``.
    """

    name: str
    version: str = "1.0"
    code: str = TOOL.format(name="ask_acme")
    requires: Sequence[str] = ("nanobot-core>=0.1",)
    plugin_id: str = "acme"
    manifest: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    python: str = ">=3.11"

    def write(self, folder: Path) -> Path:
        """Write its sources into a new folder, and return that."""
        root = folder / f"{self.name}-{self.version}-sources"
        package = self.name.replace("-", "_")
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
        entry_points = ""
        if self.code:
            (root / package / "plugin.py").write_text(self.code)
            entry_points = (
                f'[project.entry-points.nanobot]\n{self.plugin_id} = "{package}.plugin"\n'
            )
        if self.manifest is not None:
            (root / package / "nanobot-plugin.json").write_text(self.manifest)
            entry_points += (
                f'[project.entry-points."nanobot.manifest"]\n{self.plugin_id} = "{package}"\n'
            )
        for path, text in self.files.items():
            target = root / "extra" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (root / "pyproject.toml").write_text(
            _PYPROJECT.format(
                name=self.name,
                version=self.version,
                python=self.python,
                requires=", ".join(f'"{each}"' for each in self.requires),
                entry_points=entry_points,
                package=package,
                included="\n".join(f'"extra/{path}" = "{path}"' for path in self.files),
            )
        )
        return root

    def build(self, folder: Path) -> Path:
        """Return its wheel, built by hatchling into `folder`."""
        from hatchling.builders.wheel import WheelBuilder

        folder.mkdir(exist_ok=True, parents=True)
        (wheel,) = WheelBuilder(str(self.write(folder.parent))).build(directory=str(folder))
        return Path(wheel)


def tool_manifest(name: str = "ask_acme", plugin_id: str = "acme", **facts: object) -> str:
    """Return the manifest of a plugin that has one tool, and the given facts."""
    detail = {
        "description": "Report on one city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
    said = {"capabilities": (), "summary": "", "hosts": (), "requires": (), "after": ()}
    manifest = {
        "id": plugin_id,
        "schema_version": 1,
        "declarations": [{"kind": "tools", "name": name, "summary": "", "detail": detail}],
        "facts": {**said, **facts},
    }
    return json.dumps(manifest)


def make_base(folder: Path, *names: str) -> Path:
    """Return a folder with the core, pip, hatchling and `names` as they are installed here."""
    folder.mkdir()
    pending = [*map(Requirement, ("nanobot-core", "pip", "hatchling", "editables", *names))]
    seen = set[str]()
    while pending:
        wanted = pending.pop()
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        extras = wanted.extras or {""}
        pending += [
            each
            for each in map(Requirement, found.requires or ())
            if each.marker is None
            or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
        for path in found.files or ():
            top = path.parts[0]
            source = Path(str(found.locate_file(top)))
            if top not in {"..", "__pycache__"} and not (folder / top).exists():
                (folder / top).symlink_to(source)
    return folder


@dataclass(frozen=True)
class Bench:
    """A virtual environment with the core, and a home of its own.

    Attributes:
        prefix: the environment.
        home: nanobot's folder.
        wheels: what pip finds instead of a network.
        variables: environment variables of commands.
    """

    prefix: Path
    home: Path
    wheels: Path
    variables: dict[str, str]

    @classmethod
    def create(cls, folder: Path, base: Path) -> Bench:
        """Return a new one that sees what is in `base`."""
        prefix, home, wheels = folder / "env", folder / "home", folder / "wheels"
        venv.create(prefix, with_pip=False, symlinks=True)
        home.mkdir(mode=0o700)
        wheels.mkdir()
        bench = cls(
            prefix,
            home,
            wheels,
            {
                **{name: value for name, value in os.environ.items() if name.startswith("COV")},
                "HOME": str(folder),
                "NANOBOT_HOME": str(home),
                "PATH": os.environ["PATH"],
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(wheels),
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_NO_BUILD_ISOLATION": "0",
                "UV_OFFLINE": "1",
                "UV_NO_INDEX": "1",
                "UV_FIND_LINKS": str(wheels),
                "UV_NO_CONFIG": "1",
                "UV_CACHE_DIR": str(folder / "uv-cache"),
            },
        )
        (bench.site / "base.pth").write_text(f"import site; site.addsitedir({str(base)!r})\n")
        return bench

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.prefix / "lib" / version / "site-packages"

    @property
    def config(self) -> Path:
        return self.home / "config.yaml"

    def nanobot(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command, which must end with `code`."""
        return self.run("-m", "nanobot_core", *arguments, code=code)

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python, which must end with `code`."""
        done = subprocess.run(
            [str(self.python), "-P", *arguments],
            env=self.variables,
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def offer(self, package: Package) -> Path:
        """Build a wheel that pip finds by name."""
        return package.build(self.wheels)

    def digests(self) -> dict[str, str]:
        """Return a hash of each file of the environment and of what nanobot has recorded."""
        found = {}
        own = [self.home / "plugins", self.home / "nanobot.lock", *self.home.glob("config*")]
        for root in (self.prefix, *own):
            for path in sorted([root, *root.rglob("*")] if root.exists() else ()):
                mode = path.lstat().st_mode
                if path.is_symlink():
                    content = os.fsencode(path.readlink())
                else:
                    content = b"" if path.is_dir() else path.read_bytes()
                found[str(path)] = f"{mode:o} {hashlib.sha256(content).hexdigest()}"
        return found
