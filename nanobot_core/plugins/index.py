"""Which plugins are installed, and whether each fits this environment; none is imported.

What was found is kept in an index file, because scanning distributions and reading manifests
takes tens of milliseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot_core._version import __version__
from nanobot_core.config.environment import (
    expand_home,
    process_environment,
    resolve_config_path,
)
from nanobot_core.disk import replace_file
from nanobot_core.plugins import metadata
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    # A listing of commands, which is read at each start, needs none of these classes.
    from importlib.metadata import Distribution

    from nanobot_core.plugins.manifest import Manifest

ENTRY_POINT_GROUP = "nanobot"
MANIFEST_GROUP = "nanobot.manifest"
MANIFEST_FILE = "nanobot-plugin.json"
"""In the package that an entry point of `MANIFEST_GROUP` names."""
LOCAL_PREFIX = "nanobot_local_"
_FORMAT = 2
_INDEX_FILE = "plugins.json"
_LOCAL_FILE = "local-plugins.json"
_UNUSABLE_INDEX = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors from an index that is absent, damaged, or that of another environment."""
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How a plugin runs that is not imported into this process.

    Attributes:
        python: interpreter of its environment.
        isolator: id of the plugin that runs it, or an empty string.
        left_out: its contributions besides tools, which have no effect.
        remedy: what to do about the plugin's problem.
    """

    python: str
    isolator: str = ""
    left_out: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """A plugin as its distribution describes it.

    Attributes:
        id: name of its entry point.
        target: value of the entry point, ``package.module`` or ``package.module:Class``.
        distribution: name of the distribution, normalised.
        version: version of the distribution.
        summary: the distribution's own line about itself.
        manifest: what it contributes, or ``None`` when it is undescribed.
        manifest_file: path where the manifest is, or in a working copy should be, or ``None``.
        problem: why it cannot be used in this environment, or an empty string.
        direct: it is here for its own sake, not only as a dependency of another distribution.
        bundled: nanobot-core names it in one of its extras.
        editable: its folder is a working copy.
        file: path of a single-file plugin that is not installed at all, else ``None``.
        isolation: how it runs in a process and an environment of its own, else ``None``.
    """

    id: str
    target: str = ""
    distribution: str = ""
    version: str = ""
    summary: str = ""
    manifest: Manifest | None = None
    manifest_file: str | None = None
    problem: str = ""
    direct: bool = True
    bundled: bool = False
    editable: bool = False
    file: str | None = None
    isolation: Isolation | None = None

    @property
    def gives(self) -> Manifest:
        """What it contributes: nothing when it is undescribed."""
        from nanobot_core.plugins.manifest import Manifest

        return self.manifest or Manifest(id=self.id)

    @property
    def label(self) -> str:
        """``id@version``, or the id alone without a version."""
        return f"{self.id}@{self.version}" if self.version else self.id


def id_problem(plugin_id: str) -> str:
    """Return why `plugin_id` cannot be an id (it names folders and tools), or an empty string."""
    if _ID.fullmatch(plugin_id):
        return ""
    return f"its id '{plugin_id}' is not usable: use a-z, 0-9, '_' and '-'"


def load_installed(cache_dir: Path) -> tuple[InstalledPlugin, ...]:
    """Return all installed plugins, ordered by id.

    Args:
        cache_dir: folder of the index file; where it cannot be written, every call scans.
    """
    file = cache_dir / _INDEX_FILE
    key = _environment_key()
    try:
        found = tuple(_plugin_from_index(item) for item in _index_items(file, key))
    except _UNUSABLE_INDEX:
        found = _scan()
        _write_index(file, key, found)
    return tuple(_refreshed(plugin) for plugin in found)


def load_declarations(
    home: Path, kind: str, describe: Callable[[], Iterable[InstalledPlugin]]
) -> list[tuple[str, dict[str, Any]]]:
    """Return (plugin id, declaration as plain data) of one kind, for usable plugins.

    While environment and configuration are the same, no class of the manifest is imported.

    Args:
        home: nanobot's folder, with the index and the configuration.
        kind: kind of contribution.
        describe: examines plugins that have no manifest, and returns those in single files. Called
            only after a change, if one is undescribed or the configuration may name files.
    """
    cache_dir = home / "cache"
    config = resolve_config_path(None, process_environment(), home)
    local, local_key = cache_dir / _LOCAL_FILE, [str(config), modified_ns(str(config))]
    try:
        items = _index_items(cache_dir / _INDEX_FILE, _environment_key())
        items += _index_items(local, local_key)
    except _UNUSABLE_INDEX:
        items = [dataclasses.asdict(plugin) for plugin in load_installed(cache_dir)]
        usable = [item for item in items if not item["problem"]]
        is_new = any(_plain_manifest(item, cache_dir) is None for item in usable)
        files = describe() if is_new or _may_name_files(config) else ()
        # Their manifests are read again, for the code that the files contain by then.
        bare = [dataclasses.replace(plugin, manifest=None) for plugin in files]
        items += _write_index(local, local_key, bare)
    return [
        (item["id"], declaration)
        for item in items
        if not item["problem"]
        for declaration in (_plain_manifest(item, cache_dir) or {}).get("declarations", ())
        if declaration["kind"] == kind
    ]


def _may_name_files(config: Path) -> bool:
    """Whether `config` has the word of ``plugins.local``; reading YAML would take longer."""
    with suppress(OSError):
        return b"local" in config.read_bytes()
    return False


def scan_installed() -> tuple[InstalledPlugin, ...]:
    """Return all installed plugins, read from the distributions themselves."""
    return tuple(_refreshed(plugin) for plugin in _scan())


def search_path() -> list[str]:
    """Return the folders where distributions count as installed.

    Python puts the current folder, or that of the script, in front of ``sys.path``. The files there
    were not installed, and must not be loaded.
    """
    first = sys.path[0] if sys.path else ""
    is_implicit = not sys.flags.safe_path and not first.endswith("-packages")
    return [entry for entry in (sys.path[1:] if is_implicit else sys.path) if entry]


def refuse_double_ids(found: Sequence[InstalledPlugin]) -> tuple[InstalledPlugin, ...]:
    """Return `found` by id; those that share one get a problem that names both owners."""
    owners: dict[str, list[str]] = {}
    for plugin in found:
        owners.setdefault(plugin.id, []).append(plugin.distribution)
    return tuple(
        plugin
        if len(owners[plugin.id]) == 1
        else dataclasses.replace(
            plugin, problem=f"id '{plugin.id}' is claimed by {' and '.join(owners[plugin.id])}"
        )
        for plugin in sorted(found, key=lambda plugin: (plugin.id, plugin.distribution))
    )


def _scan() -> tuple[InstalledPlugin, ...]:
    """Return all installed plugins, without problems in the manifests of working copies."""
    from importlib.metadata import distributions

    by_name: dict[str, Distribution] = {}
    for distribution in distributions(path=search_path()):
        name = metadata.header(distribution, "Name")
        if name:
            by_name.setdefault(metadata.normalise(name), distribution)
    bundled = metadata.plugins_of_extras(by_name.get(metadata.CORE))
    plugins = {
        name: found
        for name, distribution in sorted(by_name.items())
        if (found := _plugins_of(name, distribution))
    }
    needed = metadata.needed_by(by_name, among=plugins, apart_from=metadata.CORE)
    found = [
        dataclasses.replace(
            plugin,
            direct=name in bundled
            or name not in needed
            # The installer records that its user named it.
            or by_name[name].read_text("REQUESTED") is not None,
            bundled=name in bundled,
        )
        for name, described in plugins.items()
        for plugin in described
    ]
    return refuse_double_ids(found)


def _plugins_of(name: str, distribution: Distribution) -> list[InstalledPlugin]:
    try:
        entries = distribution.entry_points
    except ValueError:  # its entry_points.txt is damaged
        return []
    return [
        _describe(name, distribution, entry.name, entry.value)
        for entry in entries
        if entry.group == ENTRY_POINT_GROUP
    ]


def find_manifest(package: str, distribution: Distribution) -> Path | None:
    """Return where the manifest of a top-level package is or should be; nothing is imported."""
    from importlib.machinery import PathFinder

    located = Path(str(distribution.locate_file(f"{package}/{MANIFEST_FILE}")))
    if located.is_file():
        return located
    spec = PathFinder.find_spec(package, search_path())
    folders = (spec and spec.submodule_search_locations) or ()
    return next((Path(folder) / MANIFEST_FILE for folder in folders), None)


def _describe(
    name: str, distribution: Distribution, plugin_id: str, target: str
) -> InstalledPlugin:
    manifest: Manifest | None = None
    path: Path | None = None
    editable = '"editable": true' in (distribution.read_text("direct_url.json") or "")
    problem = id_problem(plugin_id) or metadata.compatibility_problem(distribution)
    for entry in distribution.entry_points:
        if entry.group == MANIFEST_GROUP and entry.name == plugin_id:
            path = find_manifest(entry.value, distribution)
    if path is not None:
        manifest, manifest_problem = _read_manifest(path, plugin_id)
        # A working copy's manifest is read each time, and so is what is wrong with it.
        problem = problem or ("" if editable else manifest_problem)
    return InstalledPlugin(
        id=plugin_id,
        target=target,
        distribution=name,
        version=distribution.version,
        summary=metadata.header(distribution, "Summary"),
        manifest=manifest,
        manifest_file=str(path) if path else None,
        problem=problem,
        editable=editable,
    )


def _read_manifest(path: Path, plugin_id: str) -> tuple[Manifest | None, str]:
    from nanobot_core.plugins.manifest import parse_manifest

    try:
        manifest = parse_manifest(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        return None, f"its manifest cannot be used: {reason}; run nanobot plugins build"
    if manifest.id != plugin_id:
        return None, f"its manifest is that of '{manifest.id}'; run nanobot plugins build"
    return manifest, ""


def _refreshed(plugin: InstalledPlugin) -> InstalledPlugin:
    """Read the manifest of a working copy again: its folder does not change when the file does."""
    if not plugin.editable or plugin.manifest_file is None:
        return plugin
    from nanobot_core.plugins.manifest import manifest_to_json

    path = Path(plugin.manifest_file)
    if plugin.manifest is not None:
        known = json.loads(json.dumps(manifest_to_json(plugin.manifest)))
        with suppress(OSError, ValueError, RecursionError):  # reported below
            if json.loads(path.read_text(encoding="utf-8")) == known:
                return plugin
    manifest, problem = _read_manifest(path, plugin.id)
    return dataclasses.replace(plugin, manifest=manifest, problem=plugin.problem or problem)


def build_of(plugin: InstalledPlugin) -> str:
    """Return a digest of a plugin's code, or an empty string if it cannot be found.

    RECORD holds a hash of every file of a distribution, so that a build is distinguished from
    another of the same version. The files of a working copy count with size and time.
    """
    try:
        if plugin.file is not None:
            code: str | None = Path(plugin.file).read_text(encoding="utf-8", errors="replace")
        elif plugin.editable:
            code = "\n".join(_source_facts(plugin.target.partition(":")[0].partition(".")[0]))
        else:
            found = metadata.installed_distribution(plugin.distribution)
            code = found.read_text("RECORD") if found else None
    except OSError:
        return ""
    return hashlib.sha256(code.encode()).hexdigest() if code else ""


def working_copy_build(plugin: InstalledPlugin) -> str:
    """Return `build_of` a working copy or a single file, whose code changes in place."""
    return build_of(plugin) if plugin.editable or plugin.file is not None else ""


def _source_facts(package: str) -> Iterator[str]:
    """Yield name, size and time of each source file of a top-level package or module."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    if not folders and spec.origin:
        files = [Path(spec.origin)]
    for file in sorted(files):
        facts = file.stat()
        yield f"{file} {facts.st_size} {facts.st_mtime_ns}"


def digest_of_environment() -> str:
    """Return a digest that changes when anything is installed, upgraded or removed."""
    return hashlib.sha256(json.dumps(_environment_key()).encode()).hexdigest()


def _environment_key() -> list[Any]:
    """What the index depends on: it moves when anything is installed, upgraded or removed."""
    entries = [[entry, modified_ns(entry)] for entry in search_path()]
    return [_FORMAT, __version__, sys.executable, sys.version, entries]


def modified_ns(path: str) -> int:
    """Return when a folder was last changed, or 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - read at every start
    except OSError:
        return 0


def _index_items(file: Path, key: list[Any]) -> list[dict[str, Any]]:
    """Return the plugins of an index as plain data.

    Raises:
        LookupError: the index is that of another environment.
    """
    data = json.loads(file.read_bytes())
    if data["key"] != key:
        raise LookupError(file)
    items: list[dict[str, Any]] = data["plugins"]
    return items


def _plain_manifest(item: dict[str, Any], cache_dir: Path) -> dict[str, Any] | None:
    """Return the manifest of a plugin of the index; a working copy's is read again.

    Returns:
        An empty one if the plugin is known to be broken, ``None`` if it is undescribed.
    """
    manifest: dict[str, Any] | None = item["manifest"]
    if item["editable"] and item["manifest_file"]:
        manifest = None
        with suppress(*_UNUSABLE_INDEX):
            manifest = json.loads(Path(item["manifest_file"]).read_bytes())
    if manifest is None:
        plugin = InstalledPlugin(**{**item, "manifest": None})
        kept = read_result(result_file(plugin, cache_dir))
        manifest = kept and kept.get("manifest", {})
    return manifest


def _plugin_from_index(item: dict[str, Any]) -> InstalledPlugin:
    from nanobot_core.plugins.manifest import manifest_from_index

    manifest = item.pop("manifest")
    return InstalledPlugin(
        **item, manifest=None if manifest is None else manifest_from_index(manifest)
    )


def _write_index(
    file: Path, key: list[Any], plugins: Iterable[InstalledPlugin]
) -> list[dict[str, Any]]:
    """Write an index, and return its plugins as plain data."""
    items = [dataclasses.asdict(plugin) for plugin in plugins]
    keep_result(file, {"key": key, "plugins": items})
    return items


def result_file(plugin: InstalledPlugin, cache_dir: Path) -> Path | None:
    """Return where the examination of this build is kept; ``None`` if its code is not found."""
    if not (build := build_of(plugin)):
        return None
    facts = (__version__, plugin.distribution, plugin.version, plugin.id, plugin.target, build)
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return cache_dir / "examined" / f"{digest}.json"


def read_result(file: Path | None) -> dict[str, Any] | None:
    """Return the result of an examination; a failure counts until something is installed."""
    if file is None:
        return None
    with suppress(*_UNUSABLE_INDEX):
        kept: dict[str, Any] = json.loads(file.read_bytes())
        if "manifest" in kept or kept["environment"] == digest_of_environment():
            return kept
    return None


def keep_result(file: Path, data: Mapping[str, object]) -> None:
    """Write a result for the next process; a folder that is read-only only costs time."""
    with suppress(OSError):
        replace_file(file, json.dumps(data))


def local_plugins(paths: Sequence[str], base: Path) -> tuple[InstalledPlugin, ...]:
    """Return the plugins in single files; their ids are the stems of the files.

    Args:
        paths: as configured; ``~`` is expanded.
        base: folder that relative paths start from.
    """
    return tuple(_describe_file((base / expand_home(path)).absolute()) for path in paths)


def _describe_file(path: Path) -> InstalledPlugin:
    problem = id_problem(path.stem)
    if path.suffix != ".py":
        problem = f"'{path}' is not a Python file"
    elif not path.is_file():
        problem = f"file '{path}' does not exist"
    return InstalledPlugin(
        id=path.stem,
        target=LOCAL_PREFIX + path.stem,
        distribution=str(path),
        version="",
        problem=problem,
        file=str(path),
    )
