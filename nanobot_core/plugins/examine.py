"""From a plugin's code to its manifest; for unknown code in a child process."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from nanobot_core.config.environment import environment
from nanobot_core.contracts.plugin import PluginFacts, SettingsSection
from nanobot_core.contracts.tool import DeclaredTool, LazyTool, Tool
from nanobot_core.errors import PluginError, PluginLoadFailed, PluginNotFound, PluginRejected
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.compilation import CompiledPlugin, HookStats, Registrant, compile_plugin
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import OWN_KINDS, HookPoint
from nanobot_core.media import MediaStore
from nanobot_core.net.policy import NetworkPolicy
from nanobot_core.plugins.context import HostContext, HostFacts
from nanobot_core.plugins.index import (
    InstalledPlugin,
    digest_of_environment,
    keep_result,
    local_plugins,
    read_result,
    result_file,
    scan_installed,
    search_path,
)
from nanobot_core.plugins.loader import contained, load_entry, load_object, memory_bytes
from nanobot_core.plugins.manifest import (
    CHANNEL_CONDITION,
    KINDS,
    OPEN_HOOKS,
    Declaration,
    Manifest,
    SettingsDeclaration,
    manifest_from_index,
    manifest_to_json,
    parse_manifest,
)
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from pydantic import BaseModel

EXAMINATION_LIMIT_S = 60.0
IMPORT_BUDGET_MS = 300
"""Processor time that the import of a plugin should take at most; more is only reported."""
_NAME_FIELDS = ("name", "id", "path", "folder")
ANSWER = "nanobot-examination: "
"""Begins the line of the child's answer; the plugin's own output is on other lines."""

_CHILD_VARIABLES = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TEMP"),
    *("TMP", "TMPDIR", "PYTHONHOME", "PYTHONPATH"),
)


def examine_plugin(plugin_id: str, file: str | None = None) -> Manifest:
    """Return the manifest of a plugin, derived from its code in a child process.

    The plugin is not imported into this process, and the child gets neither the secrets
    of the environment nor the current directory to import from. Blocks while the child runs.

    Args:
        plugin_id: id of an installed plugin.
        file: path of a single-file plugin, which need not be installed.

    Raises:
        PluginLoadFailed: the plugin's code does not import, or does not end within a minute.
        PluginRejected: what it contributes breaks a rule.
        PluginNotFound: no plugin of that id is installed.
    """
    return manifest_in(plugin_id, _ask_here(plugin_id, file))


def examine_once(plugin: InstalledPlugin, cache_dir: Path) -> Manifest:
    """Return the manifest of a plugin, from the cache if this build was examined before.

    A failure is kept as well, until the plugin or anything else is installed or removed; only a
    child process that overran its time is started again.

    Args:
        plugin: as it is installed.
        cache_dir: folder for results.

    Raises:
        PluginError: as `examine_plugin`.
    """
    file = result_file(plugin, cache_dir)
    answer = read_result(file)
    if answer is None:
        answer = _ask_here(plugin.id, plugin.file)
        if file is not None:
            keep_result(file, {**answer, "environment": digest_of_environment()})
    return manifest_in(plugin.id, answer)


def manifest_in(plugin_id: str, answer: Mapping[str, Any]) -> Manifest:
    """Return the manifest in the answer of a child process.

    Raises:
        PluginError: it answered that the plugin is broken.
    """
    if "manifest" in answer:
        return manifest_from_index(answer["manifest"])
    kinds = {"PluginNotFound": PluginNotFound, "PluginRejected": PluginRejected}
    kind = kinds.get(answer["kind"], PluginLoadFailed)
    raise kind(plugin_id, str(answer["reason"]), str(answer["remedy"]))


@dataclass(frozen=True, slots=True)
class ImportCost:
    """What the import of a plugin costs: processor time, and memory of the process, about."""

    cpu_ms: float
    memory_mb: float


def measure_import(plugin_id: str, file: str | None = None) -> ImportCost:
    """Return what the import of a plugin costs in a child process.

    Arguments and errors as those of `examine_plugin`.
    """
    answer = _ask_here(plugin_id, file)
    manifest_in(plugin_id, answer)
    return ImportCost(**answer["import"])


def _failed(error: PluginError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "reason": error.reason, "remedy": error.remedy}


def _ask_here(plugin_id: str, file: str | None) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "nanobot_core.plugins.examine", plugin_id]
    return ask_child(plugin_id, [*command, *([file] if file else [])], child_environment())


def ask_child(
    plugin_id: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    text: str = "",
    cwd: str | None = None,
) -> dict[str, Any]:
    """Return what a child process reports of a plugin: a JSON object on a line after `ANSWER`.

    A child that ends without an answer counts as one that reports a failure; see `manifest_in`.

    Args:
        plugin_id: the plugin.
        command: the child process.
        environ: all its variables.
        text: its standard input.
        cwd: its folder; ``None`` means that of this process.

    Raises:
        PluginLoadFailed: it does not start, or does not end within a minute.
    """
    try:
        child = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=EXAMINATION_LIMIT_S,
            check=False,
            env=environ,
            cwd=cwd,
        )
    except OSError as error:
        raise PluginLoadFailed(plugin_id, f"{command[0]} does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise PluginLoadFailed(
            plugin_id,
            f"its examination did not end within {EXAMINATION_LIMIT_S:g} s",
            f"run nanobot plugins disable {plugin_id}",
        ) from error
    answers = [line for line in child.stdout.splitlines() if line.startswith(ANSWER)]
    if not answers:
        reason = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
        remedy = "fix the plugin, or its environment"
        reason = f"its examination ended early: {reason}"
        return _failed(PluginLoadFailed(plugin_id, reason, remedy))
    answer: dict[str, Any] = json.loads(answers[-1].removeprefix(ANSWER))
    if "manifest" in answer:
        try:
            parse_manifest(json.dumps(answer["manifest"]))
        except (ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            return _failed(PluginRejected(plugin_id, f"invalid contribution: {reason}"))
    return answer


def child_environment() -> dict[str, str]:
    """Return what a Python needs to start, and the search path of this process; no secrets."""
    known = dict(environment(_CHILD_VARIABLES))
    inherited = known.get("PYTHONPATH", "").split(os.pathsep)
    paths = dict.fromkeys(path for path in (*search_path(), *inherited) if path)
    # Bytecode of a version that is being edited would be taken for that of the next one.
    known["PYTHONDONTWRITEBYTECODE"] = "1"
    return {**known, "PYTHONPATH": os.pathsep.join(paths)}


def derive_manifest(plugin: InstalledPlugin) -> Manifest:
    """Import `plugin` into this process and return what it contributes.

    Raises:
        PluginLoadFailed: its code does not import.
        PluginRejected: what it contributes breaks a rule.
    """
    return describe(Registrant(plugin.id, plugin.version, load_entry(plugin)))


def describe(registrant: Registrant) -> Manifest:
    """Return the manifest of an imported plugin, with default settings.

    Raises:
        PluginRejected: what it contributes breaks a rule.
    """
    compiled = compile_plugin(registrant, HookStats(now_s=lambda: 0.0))
    points = declared_hooks()
    functions = {name: found[0].function for name, found in compiled.items()}
    settings, values = _describe_settings(registrant, functions)
    with tempfile.TemporaryDirectory() as folder:
        context = _examination_context(registrant, Path(folder), values)
        declarations = [
            declaration
            for kind, hook in KINDS.items()
            if hook in functions
            for item in collect(registrant.id, hook, functions[hook], context)
            for declaration in (_declare(registrant, kind, item, context),)
        ]
    facts = _describe_facts(registrant, functions)
    return Manifest(
        id=registrant.id,
        declarations=tuple(sorted(declarations, key=lambda item: (item.kind, item.name))),
        hooks={
            name: compiled[name][0].revision
            for name in sorted(compiled)
            if name not in points or name in OPEN_HOOKS or points[name].kind is not Kind.CONTRIBUTE
        },
        settings=settings,
        facts=facts,
        hookspecs=_own_hooks(registrant, functions),
        when=_conditions(registrant, compiled),
        critical=critical_hooks(compiled),
    )


def collect(
    plugin_id: str,
    hook: str,
    function: Callable[..., Any],
    context: HostContext,
    items: tuple[type, ...] = (),
) -> list[Any]:
    """Return what a contribution hook returns.

    Args:
        plugin_id: the plugin.
        hook: name of the hook.
        function: its implementation.
        context: passed to it.
        items: classes of what it may return; empty means that the core's rules apply.

    Raises:
        PluginLoadFailed: it raised, or did not return an iterable.
        PluginRejected: it returned something else than the objects that other plugins expect.
    """
    takes_context = bool(inspect.signature(function).parameters)
    with contained(plugin_id, hook, "fix the plugin"):
        found = list(function(context) if takes_context else function())
    expected = items or (OPEN_HOOKS.get(hook, object),)
    for each in found:
        if not isinstance(each, expected):
            names = " or ".join(kind.__name__ for kind in expected)
            reason = f"{hook} returned {type(each).__name__}, return {names}"
            raise PluginRejected(plugin_id, reason)
    return found


def _describe_facts(registrant: Registrant, functions: dict[str, Any]) -> PluginFacts:
    facts = functions["describe_plugin"]() if "describe_plugin" in functions else PluginFacts()
    if not isinstance(facts, PluginFacts):
        raise PluginRejected(
            registrant.id, f"describe_plugin returned {type(facts).__name__}", "return PluginFacts"
        )
    return facts


def _own_hooks(registrant: Registrant, functions: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the hooks that a plugin declares for others."""
    contribute = functions.get("contribute_hookspecs")
    names: list[str] = []
    prefix = f"{registrant.id.replace('-', '_')}_"
    for point in contribute() if contribute else ():
        if not isinstance(point, HookPoint) or point.kind not in OWN_KINDS:
            raise PluginRejected(
                registrant.id,
                f"contribute_hookspecs returned {type(point).__name__}",
                "return what declare_contribution, _observer, _gate or _chain makes",
            )
        if not point.name.startswith(prefix) or not point.declaration.__doc__:
            raise PluginRejected(
                registrant.id,
                f"its hook '{point.name}' has no name beginning with '{prefix}', or no docstring",
                "rename it, and state its contract",
            )
        names.append(point.name)
    return tuple(sorted(names))


def _conditions(registrant: Registrant, compiled: CompiledPlugin) -> dict[str, str]:
    """Return by hook the condition under which its implementation is used."""
    found = {name: each[0].options.when for name, each in compiled.items()}
    for name, condition in found.items():
        if condition and not condition.startswith(CHANNEL_CONDITION):
            raise PluginRejected(
                registrant.id,
                f"hook '{name}' is for '{condition}', which is not a condition",
                f"name a channel: when='{CHANNEL_CONDITION}telegram'",
            )
    return {name: condition for name, condition in found.items() if condition}


def critical_hooks(compiled: CompiledPlugin) -> tuple[str, ...]:
    """Return the chain hooks of which an implementation is marked critical, sorted."""
    points = declared_hooks()
    marked = (name for name, found in compiled.items() if any(e.options.critical for e in found))
    return tuple(
        sorted(name for name in marked if name in points and points[name].kind is Kind.CHAIN)
    )


def _describe_settings(
    registrant: Registrant, functions: dict[str, Any]
) -> tuple[tuple[SettingsDeclaration, ...], dict[str, BaseModel]]:
    """Return the declared sections, and each with its default values."""
    contribute = functions.get("contribute_settings")
    declared: list[SettingsDeclaration] = []
    values: dict[str, BaseModel] = {}
    sections = list(contribute()) if contribute else []
    for section in sections:
        if not isinstance(section, SettingsSection):
            raise PluginRejected(
                registrant.id,
                f"contribute_settings returned {type(section).__name__}",
                "return SettingsSection objects",
            )
        model = settings_model(registrant.id, section.model)
        declared.append(
            SettingsDeclaration(
                section.path, section.model, model.model_json_schema(), section.environment
            )
        )
        try:
            values[section.path] = model()
        except ValueError as error:
            raise PluginRejected(
                registrant.id,
                f"settings '{section.path}' have no complete defaults",
                "give every field a default, None if it has no value",
            ) from error
    return tuple(declared), values


def settings_model(plugin_id: str, dotted: str) -> type[BaseModel]:
    """Return the settings model that `dotted` names.

    Raises:
        PluginLoadFailed: it does not import.
        PluginRejected: it is not a pydantic model.
    """
    from pydantic import BaseModel

    model = load_object(plugin_id, dotted)
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise PluginRejected(plugin_id, f"'{dotted}' is not a pydantic model")
    return model


def _declare(registrant: Registrant, kind: str, item: Any, context: HostContext) -> Declaration:
    if kind == "tools":
        return _declare_tool(registrant, item, context)
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        raise PluginRejected(
            registrant.id,
            f"{KINDS[kind]} returned {type(item).__name__}, which is not a specification",
        )
    detail = dataclasses.asdict(item)
    name = next(str(detail[field]) for field in _NAME_FIELDS if field in detail)
    return Declaration(kind, name, str(detail.get("summary", "")), _as_json(detail))


def _declare_tool(registrant: Registrant, item: Any, context: HostContext) -> Declaration:
    detail: dict[str, Any] = {}
    tool = item
    if isinstance(item, LazyTool):
        detail["factory"] = item.factory
        tool = resolve_lazy_tool(registrant.id, item, context)
    if not isinstance(tool, Tool):
        raise PluginRejected(
            registrant.id,
            f"contribute_tools returned {type(tool).__name__}",
            "return Tool or LazyTool objects",
        )
    known = DeclaredTool.of(tool)
    definition = known.definition
    if isinstance(item, LazyTool) and definition.name != item.name:
        raise PluginRejected(
            registrant.id, f"tool '{item.name}' calls itself '{definition.name}'", "use one name"
        )
    detail |= {"description": definition.description, "parameters": definition.parameters}
    detail |= dataclasses.asdict(known)
    del detail["definition"]
    summary = definition.description.partition("\n")[0]
    return Declaration("tools", definition.name, summary, _as_json(detail))


def resolve_lazy_tool(plugin_id: str, lazy: LazyTool, context: HostContext) -> Tool:
    """Import and create the tool that `lazy` names.

    Raises:
        PluginLoadFailed: it does not import, or its factory fails.
        PluginRejected: the factory does not return a tool.
    """
    found = load_object(plugin_id, lazy.factory)
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise PluginRejected(plugin_id, f"'{lazy.factory}' is neither a tool nor a factory of one")
    with contained(plugin_id, f"creating tool '{lazy.name}'"):
        made = found(context)
    if not isinstance(made, Tool):
        raise PluginRejected(
            plugin_id, f"'{lazy.factory}' returned {type(made).__name__} instead of a tool"
        )
    return made


def _as_json(detail: dict[str, Any]) -> dict[str, Any]:
    """Return `detail` as JSON would give it back (tuples become lists)."""
    plain: dict[str, Any] = json.loads(json.dumps(detail))
    return plain


def _quiet_runtime() -> HookRuntime:
    """A runtime for contribution hooks, which start no task and report by raising."""

    def spawn(work: Any, *, name: str) -> Any:
        work.close()
        msg = f"a contribution hook may not start work ('{name}')"
        raise RuntimeError(msg)

    return HookRuntime(spawn=spawn, report=lambda _error: None)


def _examination_context(
    registrant: Registrant, folder: Path, settings: dict[str, BaseModel]
) -> HostContext:
    """A context in an empty folder, without environment, tasks or tools to publish."""
    facts = HostFacts(
        runtime=_quiet_runtime(),
        home=folder,
        workspace=folder,
        restrict_to_workspace=False,
        protected_paths=(),
        media=MediaStore(folder),
        network=NetworkPolicy(),
        timezone=ZoneInfo("UTC"),
        environment=lambda _names: {},
    )
    return HostContext(registrant.id, registrant.version, facts, settings, lambda _tools: None)


def _examine(plugin_id: str, file: str | None) -> dict[str, Any]:
    """Return the answer of the child process."""
    candidates = local_plugins([file], Path()) if file else scan_installed()
    installed: dict[str, Any] = {"paths": search_path()}
    passes = (PluginLoadFailed, PluginRejected, PluginNotFound)
    try:
        with contained(plugin_id, "describing it", "fix the plugin", passes):
            found = next((item for item in candidates if item.id == plugin_id), None)
            if found is None:
                raise PluginNotFound(plugin_id, "it is not installed")
            names = ("distribution", "version", "summary", "editable")
            installed |= {name: getattr(found, name) for name in names}
            before_bytes, before_s = memory_bytes(), time.process_time()
            entry = load_entry(found)
            cpu_ms = (time.process_time() - before_s) * 1_000
            memory_mb = max(memory_bytes() - before_bytes, 0) / 1_000_000
            manifest = describe(Registrant(found.id, found.version, entry))
            cost = ImportCost(round(cpu_ms, 1), round(memory_mb, 1))
            answer = {"manifest": manifest_to_json(manifest), "import": dataclasses.asdict(cost)}
    except passes as error:
        answer = _failed(error)
    return {**answer, "installed": installed}


if __name__ == "__main__":
    answer: str = json.dumps(_examine(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
    sys.stdout.write(f"\n{ANSWER}{answer}\n")
