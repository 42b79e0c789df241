"""Writes a new plugin package from templates, with its manifest derived from the written code."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from shutil import copytree, ignore_patterns
from string import Template
from typing import Literal, TypeAlias

from nanobot_core import PluginLoadFailed, __version__
from nanobot_devkit.naming import PluginNames
from nanobot_devkit.release import compatible_range

Kind: TypeAlias = Literal[
    "tool",
    "channel",
    "provider",
    "memory",
    "hook",
    "command",
    "route",
    "service",
    "transcriber",
    "store",
    "bus",
    "search",
    "skill",
    "cli",
    "job",
    "check",
]
MANIFEST_FILE = "nanobot-plugin.json"
_SUFFIX = ".tmpl"
_REQUIREMENTS: dict[Kind, tuple[str, ...]] = {
    "tool": ("pydantic>=2.8,<3",),
    "channel": ("httpx>=0.28,<1", "pydantic>=2.8,<3"),
    "provider": ("httpx>=0.27",),
    "search": ("httpx>=0.27", "nanobot-web"),
    "skill": ("nanobot-skills",),
    "cli": ("typer>=0.15",),
}
"""What the code of a kind imports besides nanobot-core."""
_SMALL: dict[Kind, dict[str, str]] = {
    "command": {
        "hook": "contribute_commands",
        "spec": "SlashCommand",
        "name": 'name="${id}"',
        "factory": 'summary="Repeat a text.",\n        handler="${package}.command:answer"',
        "adds": "The slash command `/${id}`, which repeats a text.",
    },
    "route": {
        "hook": "contribute_routes",
        "spec": "Mount",
        "name": 'path="/${id}"',
        "factory": 'app="${package}.web:build_app"',
        "adds": "The path `/${id}` on the server of nanobot-http, protected by `gateway.secret`.",
    },
    "service": {
        "hook": "contribute_services",
        "spec": "ServiceSpec",
        "name": 'name="${snake}"',
        "factory": 'factory="${package}.service:${pascal}Service"',
        "adds": "A service that logs a line every hour while the gateway runs.",
    },
    "transcriber": {
        "hook": "contribute_transcribers",
        "spec": "TranscriberSpec",
        "name": 'name="${snake}"',
        "factory": 'factory="${package}.transcriber:${pascal}Transcriber"',
        "adds": "A transcription provider that runs the program `${id}-transcribe`.",
    },
    "store": {
        "hook": "contribute_stores",
        "spec": "StoreSpec",
        "name": 'kind="sessions",\n        name="${snake}"',
        "factory": 'factory="${package}.store:${pascal}Store"',
        "adds": "A session store in an SQLite file. `agents.defaults.session_store: ${snake}` "
        "selects it.",
    },
    "bus": {
        "hook": "contribute_stores",
        "spec": "StoreSpec",
        "name": 'kind="bus",\n        name="${snake}"',
        "factory": 'factory="${package}.bus:${pascal}Bus"',
        "adds": "A bus in memory, which `gateway.bus: ${snake}` selects.",
    },
    "search": {
        "hook": "web_search_backends",
        "adds": "A backend for `web_search`, which `tools.web.search.provider: ${id}` selects.",
    },
    "skill": {
        "hook": "skills_sources",
        "adds": "The skill `${id}`, with which the agent writes a haiku.",
    },
    "cli": {
        "hook": "contribute_cli",
        "adds": "`nanobot ${id} add TEXT` and `nanobot ${id} list`, which keep notes.",
    },
    "job": {
        "hook": "contribute_jobs",
        "adds": "A job that measures the workspace each night. It needs nanobot-cron and a running "
        "gateway.",
    },
    "check": {
        "hook": "contribute_checks",
        "adds": "A check of `nanobot doctor` that warns when the workspace has little space.",
    },
}
"""Kinds that share the template `small`: the README, and an entry module that yields one spec.

Without `spec`, the kind has an entry module of its own.
"""
_README = f"README.md{_SUFFIX}"
_LIMIT_S = 90.0
# The examination looks for plugins on the search path of the process that asks for it. So a child
# with the written code on its path describes it, and nothing needs to be installed.
_DERIVE = """\
import json, sys
sys.path.insert(1, sys.argv[2])
from nanobot_core import NanobotError, examine_plugin, manifest_to_json
try:
    print(json.dumps(manifest_to_json(examine_plugin(sys.argv[1]))))
except NanobotError as error:
    sys.exit(str(error))
"""


def write_package(names: PluginNames, kind: Kind, folder: Path) -> Path:
    """Write a complete package and return its folder.

    Nothing is left behind when it fails. Blocks for a second or two.

    Args:
        names: what the plugin is called.
        kind: what it shall give.
        folder: existing folder in which the package's own folder is made.

    Raises:
        FileExistsError: the package's folder is there already.
        NotADirectoryError: `folder` is not a folder.
        PluginLoadFailed: the written code could not be examined.
    """
    target = folder / names.distribution
    if not folder.is_dir():
        raise NotADirectoryError(folder)
    if target.exists():
        raise FileExistsError(target)
    with tempfile.TemporaryDirectory() as stage:
        project = Path(stage)
        for path, text in render_files(names, kind):
            file = project / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        manifest = project / "src" / names.package / MANIFEST_FILE
        manifest.write_text(
            _derive_manifest(names, project / "src", _target(names, kind)), encoding="utf-8"
        )
        copytree(project, target, ignore=ignore_patterns("*.dist-info", "__pycache__"))
    return target


def render_files(names: PluginNames, kind: Kind) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield path and text of every file of the package but the manifest."""
    extra = "[chat]" if kind == "channel" else ""
    requirements = [
        # Our packages share one version.
        each + compatible_range(__version__) if each.startswith("nanobot-") else each
        for each in (f"nanobot-core{extra}", *_REQUIREMENTS.get(kind, ()))
    ]
    values = {
        "id": names.id,
        "distribution": names.distribution,
        "package": names.package,
        "snake": names.snake,
        "pascal": names.pascal,
        "title": names.title,
        "kind": kind,
        "target": _target(names, kind),
        "dependencies": ", ".join(f'"{requirement}"' for requirement in requirements),
        "year": str(date.today().year),  # noqa: DTZ011 - the author's own calendar
    }
    small = {name: Template(text).substitute(values) for name, text in _SMALL.get(kind, {}).items()}
    values |= small
    development = (files("nanobot_devkit") / "templates/development.md.tmpl").read_text("utf-8")
    templates = files("nanobot_devkit") / "templates"
    found: dict[str, Traversable] = {}
    for part in ("base", *(["small"] if small else []), kind):
        found |= _walk(templates / part)
    for name, template in found.items():
        path = PurePosixPath(Template(name.removesuffix(_SUFFIX)).substitute(values))
        text = template.read_text(encoding="utf-8") + (development if name == _README else "")
        yield path, Template(text).substitute(values)


def _walk(folder: Traversable, prefix: str = "") -> dict[str, Traversable]:
    """Return the templates below a folder by their paths."""
    found: dict[str, Traversable] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            found[f"{prefix}{entry.name}"] = entry
    return found


def _target(names: PluginNames, kind: Kind) -> str:
    """Return the value of the entry point: a class where the plugin keeps something."""
    module = f"{names.package}.plugin"
    return f"{module}:{names.pascal}Plugin" if kind == "hook" else module


def _derive_manifest(names: PluginNames, source: Path, target: str) -> str:
    """Return the manifest of the package in `source`, derived in a child process."""
    metadata = source / f"{names.package}-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {names.distribution}\nVersion: 0.1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        f"[nanobot]\n{names.id} = {target}\n", encoding="utf-8"
    )
    child = subprocess.run(
        [sys.executable, "-c", _DERIVE, names.id, str(source)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if child.returncode:
        raise PluginLoadFailed(names.id, child.stderr.strip().rpartition("\n")[2])
    return render_manifest(json.loads(child.stdout))


def render_manifest(manifest: object) -> str:
    """Return a manifest's plain data as it is written into the package."""
    return json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
