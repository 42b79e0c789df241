"""A plugin's source, made to look installed to one process and its children."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanobot_core import NanobotError

MAX_FILES = 2_000
"""Files of a plugin that are looked at."""
_MANIFEST = "nanobot-plugin.json"


class SourceUnusable(NanobotError):
    """A folder or file is not the source of one plugin; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a plugin.

    Attributes:
        id: the plugin's id.
        module: its entry module, or the path of a single file.
        code: folder of its top-level package, or its single file.
        project: folder with its ``pyproject.toml``; ``None`` for a single file.
        path: folder from which Python imports it; ``None`` for a single file.
    """

    id: str
    module: str
    code: Path
    project: Path | None = None
    path: Path | None = None

    def snapshot(self) -> Mapping[Path, tuple[int, int]]:
        """Return time and size of each file that the plugin consists of. Blocks.

        The manifest does not count, because it follows from the code.
        """
        files = [self.code] if self.code.is_file() else list(self.code.rglob("*"))
        found: dict[Path, tuple[int, int]] = {}
        for file in files[:MAX_FILES]:
            is_part = "__pycache__" not in file.parts and file.name != _MANIFEST
            try:
                facts = file.stat()
            except OSError:
                continue  # an editor replaces it
            if is_part and not file.name.startswith(".") and file.is_file():
                found[file] = facts.st_mtime_ns, facts.st_size
        return found


def find_source(target: Path) -> Source:
    """Return the plugin in a folder with a ``pyproject.toml``, or in a Python file.

    Raises:
        SourceUnusable: the folder has no plugin, or several.
    """
    if target.suffix == ".py" and target.is_file():
        return Source(target.stem, str(target.resolve()), target.resolve())
    project = target.resolve()
    data = _read_project(project)
    entries = _entries(data)
    if len(entries) != 1:
        msg = (
            f"{project / 'pyproject.toml'} names {len(entries) or 'no'} plugins under "
            "project.entry-points.nanobot; name exactly one there"
        )
        raise SourceUnusable(msg)
    [(plugin_id, value)] = entries.items()
    module = value.partition(":")[0]
    package = module.partition(".")[0]
    for path in (project / "src", project):
        for code in (path / package, path / f"{package}.py"):
            if code.exists():
                return Source(plugin_id, module, code, project, path)
    msg = f"there is no module '{package}' in {project / 'src'} or {project}; see its entry point"
    raise SourceUnusable(msg)


def write_overlay(source: Source, folder: Path) -> list[str]:
    """Write metadata that make a source look installed, and return what precedes ``sys.path``.

    It names no manifest, so that the code describes itself after each change.

    Args:
        source: has a project.
        folder: an empty one.
    """
    if source.project is None or source.path is None:
        return []
    data = _read_project(source.project)
    project = data["project"]
    name, version = str(project.get("name", source.id)), str(project.get("version", "0.dev0"))
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in project.get("dependencies", ())]
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    [(plugin_id, value)] = _entries(data).items()
    (info / "entry_points.txt").write_text(f"[nanobot]\n{plugin_id} = {value}\n", "utf-8")
    # The host reads the code of a working copy again when it is asked to.
    url = {"url": source.project.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url), "utf-8")
    return [str(folder), str(source.path)]


def _read_project(project: Path) -> dict[str, Any]:
    file = project / "pyproject.toml"
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        msg = f"'{project}' has no pyproject.toml; give the folder of a plugin, or a Python file"
        raise SourceUnusable(msg) from error
    except (OSError, ValueError) as error:
        raise SourceUnusable(f"cannot read {file}: {error}") from error
    if not isinstance(data.get("project"), dict):
        raise SourceUnusable(f"{file} has no table [project]; see the tutorial")
    return data


def _entries(data: Mapping[str, Any]) -> dict[str, str]:
    found = data["project"].get("entry-points", {}).get("nanobot", {})
    return {str(key): str(value) for key, value in found.items()}
