"""Where a plugin and its files are, found by id, folder or file, without importing it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from nanobot_core import PluginNotFound, PluginRejected

GROUP = "nanobot"


@dataclass(frozen=True, slots=True)
class PluginLocation:
    """A plugin and its files.

    Attributes:
        id: the plugin's id.
        module: its entry module, or the path of a file that is not installed.
        target: its id, or the path of a file that is not installed; other commands accept it.
        code: folder of its top-level package, or its single module.
        distribution: the installed package, or ``None`` for a file that is not installed.
        project: folder with its ``pyproject.toml``, or ``None`` if only a wheel is installed.
    """

    id: str
    module: str
    target: str
    code: Path
    distribution: Distribution | None
    project: Path | None


def locate_plugin(target: str) -> PluginLocation:
    """Return the plugin that `target` names.

    Args:
        target: id of an installed plugin, folder of a package, or a Python file that is a plugin.

    Raises:
        PluginNotFound: there is none; the error says what to do.
        PluginRejected: the folder's ``pyproject.toml`` names no plugin, or several.
    """
    installed = _installed()
    if target in installed:
        return _describe(*installed[target])
    folder = Path(target)
    if folder.suffix == ".py" and folder.is_file():
        return PluginLocation(
            folder.stem, str(folder.resolve()), target, folder.resolve(), None, None
        )
    if not (folder / "pyproject.toml").is_file():
        raise PluginNotFound(
            target,
            "no plugin of that id is installed, and no folder of that name has a pyproject.toml",
            "see nanobot plugins list",
        )
    plugin_id = _id_in(folder)
    if plugin_id in installed:
        located = _describe(*installed[plugin_id])
        if located.code.is_relative_to(folder.resolve()):
            return located
        reason = f"another copy of it is installed, in {located.code}"
    else:
        reason = "it is not installed"
    raise PluginNotFound(plugin_id, reason, f"first run: python3 -m pip install -e {target}")


def _installed() -> dict[str, tuple[EntryPoint, Distribution]]:
    found: dict[str, tuple[EntryPoint, Distribution]] = {}
    for distribution in distributions():
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                found.setdefault(entry.name, (entry, distribution))
    return found


def _describe(entry: EntryPoint, distribution: Distribution) -> PluginLocation:
    package = entry.module.partition(".")[0]
    spec = PathFinder.find_spec(package)
    code = next(iter(spec.submodule_search_locations or ()), spec.origin) if spec else None
    if code is None:
        raise PluginRejected(
            entry.name,
            f"its entry point names '{entry.module}', and there is no module '{package}'",
            "correct the entry point, or install it again",
        )
    path = Path(code).resolve()
    return PluginLocation(
        entry.name, entry.module, entry.name, path, distribution, _project_of(path)
    )


def _project_of(code: Path) -> Path | None:
    """Return the folder of a working copy, in the ``src`` layout or without it."""
    folders = (code.parent, code.parent.parent)
    return next((folder for folder in folders if (folder / "pyproject.toml").is_file()), None)


def _id_in(folder: Path) -> str:
    file = folder / "pyproject.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        ids = list(data["project"]["entry-points"][GROUP])
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        ids = []
    if len(ids) != 1:
        raise PluginRejected(
            str(folder),
            f"{file} names {len(ids) or 'no'} plugins under project.entry-points.{GROUP}",
            "name exactly one there" if not ids else f"give one of its ids: {', '.join(ids)}",
        )
    return str(ids[0])
