"""What is wrong with an installed plugin before it runs: its manifest, names, settings and tools.

Run as a module, it is the child process that imports the plugin's code.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot_core.errors import PluginError, PluginNotFound
from nanobot_core.plugins.examine import ANSWER, ask_child, child_environment, examine_plugin
from nanobot_core.plugins.index import MANIFEST_FILE, InstalledPlugin, local_plugins, scan_installed
from nanobot_core.plugins.loader import load_entry, load_object

if TYPE_CHECKING:
    from nanobot_core.plugins.manifest import Declaration, Manifest

_DOTTED_KEYS = ("factory", "handler", "app", "run", "settings")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to fix.

    Attributes:
        rule: the rule in a word.
        message: what was found.
        remedy: what to do.
    """

    rule: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}; {self.remedy}"


def find_plugin(target: str) -> InstalledPlugin:
    """Return the plugin with an id, or the one in a Python file that is not installed.

    Raises:
        PluginNotFound: it is not installed.
    """
    if target.endswith(".py"):
        (plugin,) = local_plugins([target], Path.cwd())
        return plugin
    installed = {plugin.id: plugin for plugin in scan_installed()}
    if target not in installed:
        known = ", ".join(installed) or "none"
        raise PluginNotFound(target, "it is not installed", f"installed: {known}")
    return installed[target]


def description_findings(target: str) -> list[Finding]:
    """Return what is wrong with a plugin's description; blocks while child processes run.

    Args:
        target: id of an installed plugin, or path of a Python file that is one.

    Raises:
        PluginNotFound: there is no such plugin.
    """
    plugin = find_plugin(target)
    if plugin.problem:
        return [Finding("environment", plugin.problem, "correct this, then check again")]
    try:
        manifest = examine_plugin(plugin.id, plugin.file)
        return [*_manifest(plugin, manifest), *_tools(manifest), *_imports(plugin, manifest)]
    except PluginError as error:
        return [Finding("code", error.reason, error.remedy or "fix the code")]


def _manifest(plugin: InstalledPlugin, derived: Manifest) -> Iterator[Finding]:
    """A plugin needs no manifest; one that it has must be found, and say what the code says."""
    from nanobot_core.plugins.manifest import manifest_to_json

    build = f"run nanobot plugins build {plugin.id}"
    if plugin.manifest_file is None:
        package = plugin.target.partition(":")[0].partition(".")[0]
        if any((folder / MANIFEST_FILE).is_file() for folder in _folders(package)):
            entry = f'[project.entry-points."nanobot.manifest"]: {plugin.id} = "{package}"'
            message = f"{MANIFEST_FILE} is not declared, so it is not read"
            yield Finding("manifest", message, f"add to {entry}")
    elif not Path(plugin.manifest_file).is_file():
        yield Finding("manifest", f"the package has no {MANIFEST_FILE}", build)
    elif plugin.manifest is None or _plain(manifest_to_json(plugin.manifest)) != _plain(
        manifest_to_json(derived)
    ):
        yield Finding("manifest", f"{MANIFEST_FILE} is out of date", build)


def _folders(package: str) -> list[Path]:
    """Return the folders of a top-level package; none if it is a module."""
    spec = find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _plain(data: object) -> object:
    return json.loads(json.dumps(data))


def _tools(manifest: Manifest) -> Iterator[Finding]:
    from nanobot_core.plugins.manifest import declared_tool
    from nanobot_core.testing.tool_schema import definition_findings

    for declared in manifest.of_kind("tools"):
        for complaint in definition_findings(declared_tool(declared).definition):
            message = f"tool '{declared.name}': {complaint}"
            yield Finding("tool", message, "change the tool's definition")


def _imports(plugin: InstalledPlugin, manifest: Manifest) -> list[Finding]:
    """Import the plugin in a child process: its entry module, then everything that it names."""
    settings = [section.model for section in manifest.settings]
    settings += [str(item.detail["settings"]) for item in manifest.of_kind("providers")]
    names = [name for item in manifest.declarations for name in _dotted_names(item)]
    target = plugin.file or plugin.id
    with tempfile.TemporaryDirectory() as home:
        answer = ask_child(
            plugin.id,
            [sys.executable, "-P", "-m", "nanobot_core.testing.description", target],
            import_environment(Path(home)),
            text=json.dumps({"settings": settings, "names": names}),
            cwd=home,
        )
    if "findings" not in answer:
        return [Finding("code", answer["reason"], answer["remedy"])]
    return [Finding(*found) for found in answer["findings"]]


def import_environment(home: Path) -> dict[str, str]:
    """Return the environment of a child that imports a plugin as this process would."""
    return {**child_environment(), "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(home)}


def _dotted_names(declaration: Declaration) -> Iterator[str]:
    for key in _DOTTED_KEYS:
        value = declaration.detail.get(key)
        if isinstance(value, str) and ":" in value:
            yield value


def _entry_module(plugin: InstalledPlugin) -> Iterator[Finding]:
    import pydantic  # noqa: F401 - @tool loads it

    from nanobot_core import on, tool

    @tool
    def _sample(text: str) -> str:
        """A tool, as an entry module may have one."""
        return text

    del on, _sample
    before = set(sys.modules)
    load_entry(plugin)
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    module = plugin.target.partition(":")[0]
    # A plugin may import another one that it extends, whose entry module has the same limits.
    own = {each.target.partition(":")[0].partition(".")[0] for each in (plugin, *scan_installed())}
    own |= {"nanobot_core", "pydantic", "tzdata"}
    others = sorted(
        name
        for name in loaded - own - sys.stdlib_module_names
        if not name.startswith("_sysconfigdata")  # zoneinfo asks where its data is
    )
    if others:
        yield Finding(
            "entry-module",
            f"importing {module} loads {', '.join(others)}, which every command would wait for",
            "import them where they are used, or contribute a LazyTool or a factory",
        )


def _settings(plugin: InstalledPlugin, dotted: str) -> Iterator[Finding]:
    from nanobot_core.plugins.examine import settings_model

    model = settings_model(plugin.id, dotted)
    try:
        model()
    except ValueError:
        remedy = "give every field a default, None if it has no value"
        yield Finding("settings", f"{dotted} has no complete defaults", remedy)
        return
    try:
        # Names of the owner's choice are allowed if their values have a type.
        model.model_validate({"no_such_key": object()}, context={"finds_all": True})
    except ValueError:
        return
    remedy = f"derive {dotted} from nanobot_core.PluginSettings"
    yield Finding("settings", f"{dotted} accepts unknown keys", remedy)


def _findings(target: str, named: dict[str, Any]) -> Iterator[Finding]:
    plugin = find_plugin(target)
    try:
        yield from _entry_module(plugin)
        for dotted in named["names"]:
            load_object(plugin.id, dotted)
        for dotted in named["settings"]:
            yield from _settings(plugin, dotted)
    except PluginError as error:
        yield Finding("code", error.reason, error.remedy or "fix the code")


def main(target: str) -> None:
    """Import a plugin and print what is wrong with it."""
    found = [
        (each.rule, each.message, each.remedy)
        for each in _findings(target, json.loads(sys.stdin.read()))
    ]
    sys.stdout.write(f"\n{ANSWER}{json.dumps({'findings': found})}\n")
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads that the plugin started


if __name__ == "__main__":
    main(sys.argv[1])
