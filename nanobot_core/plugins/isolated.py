"""Finds and describes tool plugins that run in a separate process and environment.

Such a plugin need not be installed here, and its code is never imported here. Its manifest comes
from a child process of its environment's interpreter and is kept until that environment changes.
What takes its place in this process is made by an isolator, a contribution of another plugin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanobot_core._version import __version__
from nanobot_core.config.environment import environment, expand_home, process_environment
from nanobot_core.config.tree import nest, overlay, parse_path
from nanobot_core.contracts.isolation import IsolatedPlugin
from nanobot_core.contracts.plugin import PluginFacts
from nanobot_core.errors import PluginRejected
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.context import NETWORK_VARIABLES
from nanobot_core.plugins.examine import ask_child, manifest_in
from nanobot_core.plugins.index import (
    InstalledPlugin,
    Isolation,
    id_problem,
    keep_result,
    modified_ns,
)
from nanobot_core.plugins.loader import load_object
from nanobot_core.plugins.manifest import (
    ANY_VARIABLE,
    Manifest,
    declared_tool,
    manifest_from_index,
)
from nanobot_core.plugins.published import Published

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.messages import JsonObject

CAPABILITY = "runs in a process of its own"
_VARIABLES = ("HOME", "LANG", "LC_ALL", "PATH", "TERM", "TMPDIR", "TZ")
"""All variables of such a process; the plugin gets those it declared in its setup."""

_UNUSABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors from a kept description that is absent, damaged, or that of another environment."""


def with_isolated(
    found: Sequence[InstalledPlugin], isolate: Mapping[str, str | None], cache_dir: Path
) -> tuple[InstalledPlugin, ...]:
    """Return `found` with the isolated plugins instead of those that are installed here.

    Args:
        found: the plugins of this environment.
        isolate: plugin id to path of an interpreter, relative to the folder above `cache_dir`.
        cache_dir: folder of what was found out before.
    """
    others = [plugin for plugin in found if plugin.id not in isolate]
    if not isolate:
        return tuple(others)
    isolator = next(iter(_isolators(others)), ("", ""))
    return (*others, *(_described(*item, isolator, cache_dir) for item in isolate.items()))


def describe_isolated(
    plugin: InstalledPlugin, cache_dir: Path, *, again: bool = False
) -> InstalledPlugin:
    """Return `plugin` as its own environment describes it, once until that changes. Blocks.

    Args:
        plugin: an isolated plugin.
        cache_dir: folder to keep the description in.
        again: do not use what was kept before.

    Raises:
        PluginLoadFailed: its code does not import there, or nanobot-core is not installed there.
        PluginRejected: it breaks a rule, or does not provide tools.
        PluginNotFound: it is not installed there.
    """
    isolation = _isolation(plugin)
    file = _file(cache_dir, plugin.id)
    answer = None if again else _kept(file, isolation)
    if answer is None:
        command = [isolation.python, "-I", "-m", "nanobot_core.plugins.examine", plugin.id]
        answer = ask_child(plugin.id, command, environment(_VARIABLES))
        installed = answer.get("installed", {"paths": _packages_of(isolation)})
        if not installed.get("editable"):
            paths = [[path, modified_ns(path)] for path in installed["paths"]]
            keep_result(file, {"key": [__version__, isolation.python, paths], "answer": answer})
    manifest = manifest_in(plugin.id, answer)
    if not manifest.of_kind("tools"):
        raise PluginRejected(
            plugin.id,
            "it contributes no tools, and nothing else works in a process of its own",
            "take it out of plugins.isolate",
        )
    return _filled(plugin, isolation, answer["installed"], manifest)


def _packages_of(isolation: Isolation) -> list[str]:
    """Return the folders of an environment that did not report them."""
    return [str(path) for path in Path(isolation.python).parents[1].glob("lib/*/site-packages")]


def _kept(file: Path, isolation: Isolation) -> dict[str, Any] | None:
    """Return what the environment answered last, unless it has changed since."""
    with suppress(*_UNUSABLE):
        data = json.loads(file.read_bytes())
        version, interpreter, paths = data["key"]
        is_current = (version, interpreter) == (__version__, isolation.python)
        if is_current and all(modified_ns(path) == kept_ns for path, kept_ns in paths):
            answer: dict[str, Any] = data["answer"]
            return answer
    return None


def stand_in(
    plugin: InstalledPlugin,
    manifest: Manifest,
    loaded: LoadedConfig,
    sections: Mapping[str, JsonObject],
    look_up: Callable[[Iterable[str]], Mapping[str, str]],
) -> object:
    """Return the object that represents the plugin here.

    Args:
        plugin: an isolated plugin.
        manifest: what it contributes.
        loaded: the configuration in force.
        sections: the plugin's part of it.
        look_up: returns those of the named environment variables that are set.

    Raises:
        PluginLoadFailed: the isolator's code does not import.
    """
    make: Any = load_object(plugin.id, plugin.target)
    wanted: Iterable[str] = {*manifest.variables, *NETWORK_VARIABLES}
    if ANY_VARIABLE in manifest.variables:
        wanted = list(process_environment())
    setup: JsonObject = {
        "plugin": plugin.id,
        "home": str(loaded.home),
        "config": str(loaded.path) if loaded.path else None,
        "tree": _tree(plugin.id, loaded, sections),
        "environment": dict(look_up(wanted)),
    }
    proxy: object = make(
        IsolatedPlugin(
            id=plugin.id,
            version=plugin.version,
            python=Path(_isolation(plugin).python),
            variables=look_up(_VARIABLES),
            setup=setup,
            tools=tuple(declared_tool(item) for item in manifest.of_kind("tools")),
            timeout_s=loaded.settings.tools.timeout_s,
        )
    )
    return proxy


def _tree(plugin_id: str, loaded: LoadedConfig, sections: Mapping[str, JsonObject]) -> JsonObject:
    """Return the least configuration that the plugin's host in its own process needs."""
    tools = loaded.settings.tools
    tree: JsonObject = {
        "agents": {"defaults": {"workspace": str(loaded.workspace)}},
        # The log file is the agent's; what its process logs goes to that of the plugin.
        "logging": {"file": False},
        "plugins": {"policy": "listed", "enabled": [plugin_id]},
        "tools": {
            "restrict_to_workspace": tools.restrict_to_workspace,
            "ssrf_whitelist": list(tools.ssrf_whitelist),
        },
    }
    for path, section in sections.items():
        overlay(tree, nest(parse_path(path), section), {}, {})
    return tree


def _described(
    plugin_id: str, python: str | None, isolator: tuple[str, str], cache_dir: Path
) -> InstalledPlugin:
    """Return a plugin as far as it is known without running anything."""
    path = cache_dir.parent / expand_home(python or f"environments/{plugin_id}/bin/python")
    isolation = Isolation(python=str(path.absolute()), isolator=isolator[0])
    problem = id_problem(plugin_id)
    if not path.is_file():
        problem = problem or f"interpreter {path} does not exist"
        remedy = f"run python3 -m venv {path.parent.parent}, then install the plugin with its pip"
        isolation = replace(isolation, remedy=remedy)
    elif not isolator[0]:
        problem = problem or "no installed plugin can run it in a process of its own"
        known = " or ".join(Published.load(cache_dir).of_kind("isolators"))
        isolation = replace(isolation, remedy=f"run nanobot plugins add {known}")
    plugin = InstalledPlugin(
        id=plugin_id,
        target=isolator[1],
        distribution="",
        version="",
        problem=problem,
        isolation=isolation,
    )
    answer = _kept(_file(cache_dir, plugin_id), isolation)
    if answer is None or "manifest" not in answer:
        return plugin
    with suppress(*_UNUSABLE):
        manifest = manifest_from_index(answer["manifest"])
        return _filled(plugin, isolation, answer["installed"], manifest)
    return plugin


def _filled(
    plugin: InstalledPlugin, isolation: Isolation, facts: Mapping[str, str], manifest: Manifest
) -> InstalledPlugin:
    """Return `plugin` with its description, reduced to what works from another process."""
    said = manifest.facts
    gates = sorted(manifest.judges)
    problem = f"its {' and '.join(gates)} cannot judge from another process" if gates else ""
    reduced = Manifest(
        id=manifest.id,
        declarations=manifest.of_kind("tools"),
        # Kept so that they are known: what they would judge is refused.
        hooks={hook: manifest.hooks[hook] for hook in gates},
        critical=manifest.critical,
        # The models are in the other environment, where the plugin's own host validates.
        settings=tuple(replace(section, model="") for section in manifest.settings),
        facts=PluginFacts(
            summary=said.summary,
            requires=(isolation.isolator,),
            capabilities=(*said.capabilities, CAPABILITY),
            hosts=said.hosts,
            docs=said.docs,
        ),
    )
    return replace(
        plugin,
        distribution=facts["distribution"],
        version=facts["version"],
        summary=facts["summary"],
        manifest=reduced,
        problem=plugin.problem or problem,
        isolation=replace(
            isolation,
            left_out=_left_out(manifest),
            remedy=isolation.remedy or ("take it out of plugins.isolate" if gates else ""),
        ),
    )


def _left_out(manifest: Manifest) -> tuple[str, ...]:
    """Return what has no effect from another process, in words."""
    points = declared_hooks()
    quiet = {Kind.OWN, Kind.CONTRIBUTE}
    given = [f"{item.kind} '{item.name}'" for item in manifest.declarations if item.kind != "tools"]
    hooks = [
        f"hook '{name}'"
        for name in manifest.hooks
        if name not in points or points[name].kind not in quiet
    ]
    patterns = [f"tools '{pattern}' that come at run time" for pattern in manifest.facts.tool_names]
    return (*given, *hooks, *patterns)


def _isolators(plugins: Iterable[InstalledPlugin]) -> Iterable[tuple[str, str]]:
    """Yield (plugin id, dotted name of the factory) of what can run plugins, by plugin id."""
    for plugin in sorted(plugins, key=lambda plugin: plugin.id):
        if not plugin.problem:
            for item in plugin.gives.of_kind("isolators"):
                yield plugin.id, str(item.detail["factory"])


def _isolation(plugin: InstalledPlugin) -> Isolation:
    if plugin.isolation is None:
        msg = f"plugin '{plugin.id}' is not isolated"
        raise ValueError(msg)
    return plugin.isolation


def _file(cache_dir: Path, plugin_id: str) -> Path:
    return cache_dir / "isolated" / f"{plugin_id}.json"
