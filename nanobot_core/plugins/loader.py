"""Plugin code: imported with every failure contained, and exchanged."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, TypeVar

from nanobot_core.config.models import Settings
from nanobot_core.errors import (
    FOREIGN_ERRORS,
    ConfigError,
    PluginError,
    PluginLoadFailed,
    PluginRejected,
)
from nanobot_core.plugins.index import LOCAL_PREFIX, InstalledPlugin
from nanobot_core.plugins.metadata import installed_distribution
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.plugins.active import ActivePlugin, Starter

T = TypeVar("T")

CONTRIBUTION_LIMIT_S = 30.0


def load_entry(plugin: InstalledPlugin) -> object:
    """Return the plugin's module, or an instance of the class that its entry point names.

    Raises:
        PluginLoadFailed: its code does not import; the reason says whose fault it is.
    """
    if plugin.file:
        with _explained(plugin.id, plugin.file):
            return load_file(plugin.file)
    target = load_object(plugin.id, plugin.target)
    if inspect.isclass(target):
        remedy = f"report it to the author of {plugin.distribution}"
        with contained(plugin.id, f"creating {plugin.target}", remedy):
            return target()
    return target


@contextmanager
def contained(
    plugin_id: str, doing: str, remedy: str = "", passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn what a plugin's code raises inside into `PluginLoadFailed`.

    Args:
        plugin_id: whose code it is.
        doing: what is done, for the message: ``creating x``.
        remedy: what to do about a failure.
        passes: errors that continue as they are.
    """
    try:
        yield
    except passes:
        raise
    except FOREIGN_ERRORS as error:
        reason = f"{doing} raised {type(error).__name__}: {error}"
        raise PluginLoadFailed(plugin_id, reason, remedy) from error


@contextmanager
def _explained(plugin_id: str, module_name: str, name: str = "") -> Iterator[None]:
    """Turn a failed import into `PluginLoadFailed`."""
    try:
        yield
    except FOREIGN_ERRORS as error:
        reason, remedy = _explain(module_name, name, error)
        raise PluginLoadFailed(plugin_id, reason, remedy) from error


def load_object(plugin_id: str, dotted: str) -> object:
    """Return what ``package.module`` or ``package.module:name`` names.

    Blocks while it imports; call it in a thread from a loop.

    Raises:
        PluginLoadFailed: the module does not import or lacks the name.
    """
    module_name, _, name = dotted.partition(":")
    importlib.invalidate_caches()
    with _explained(plugin_id, module_name, name):
        found: object = importlib.import_module(module_name)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    return found


async def make_object(plugin_id: str, dotted: str, wanted: type[T], *arguments: object) -> T:
    """Return what the factory that `dotted` names makes of `arguments`.

    Raises:
        PluginLoadFailed: the factory cannot be imported, or it failed.
        PluginRejected: it is not callable, or returned something else than `wanted`.
        PluginError: the factory raised it.
        ConfigError: likewise.
    """
    factory = await asyncio.to_thread(load_object, plugin_id, dotted)
    if not callable(factory):
        raise PluginRejected(plugin_id, f"'{dotted}' is not a factory")
    with contained(plugin_id, f"'{dotted}'", passes=(PluginError, ConfigError)):
        made: object = factory(*arguments)
    if not isinstance(made, wanted):
        reason = f"'{dotted}' returned {type(made).__name__} instead of {wanted.__name__}"
        raise PluginRejected(plugin_id, reason)
    return made


def load_file(file: str) -> ModuleType:
    """Return the module in `file`, executed at the first call.

    Its dotted names begin with ``__name__``: ``LazyTool("roll", f"{__name__}:RollTool")``.

    Raises:
        Exception: whatever executing it raises; the module is then removed.
    """
    name = LOCAL_PREFIX + Path(file).stem
    known = sys.modules.get(name)
    if known is not None and known.__file__ == file:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        msg = f"'{file}' is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _explain(module_name: str, name: str, error: BaseException) -> tuple[str, str]:
    package = module_name.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        if missing != package:
            return f"module '{missing}' is not installed", "install the package that has it"
        return f"module '{error.name}' does not exist", "reinstall it or fix its entry point"
    if isinstance(error, AttributeError) and name:
        return f"module '{module_name}' has no '{name}'", "fix its entry point or dotted name"
    if isinstance(error, SyntaxError):
        return f"syntax error in {error.filename}:{error.lineno}: {error.msg}", "fix the file"
    if isinstance(error, SystemExit):
        return f"importing '{module_name}' called sys.exit({error.code!r})", "remove that call"
    place = extract_tb(error.__traceback__)[-1]
    reason = f"importing '{module_name}' raised {type(error).__name__}: {error}"
    return reason, f"see {place.filename}:{place.lineno}"


def packages_of(plugin: InstalledPlugin) -> frozenset[str]:
    """Return the top-level names of a plugin's distribution, as far as its metadata lists them.

    Of an isolated plugin, what is loaded here is its isolator's.
    """
    own = plugin.target.partition(":")[0].partition(".")[0]
    if plugin.file is not None or plugin.isolation is not None:
        return frozenset((own,))
    found = installed_distribution(plugin.distribution)
    files = (found and found.files) or ()
    packages = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    modules = {file.stem for file in files if file.suffix == ".py" and len(file.parts) == 1}
    return frozenset({own, *packages, *modules})


def requirements_of(plugin: InstalledPlugin) -> tuple[str, ...]:
    """Return what a plugin's distribution requires, as it is installed now."""
    if plugin.file is not None or plugin.isolation is not None:
        return ()
    found = installed_distribution(plugin.distribution)
    return tuple((found and found.requires) or ())


def loaded_modules(packages: Collection[str]) -> dict[str, ModuleType]:
    """Return the loaded modules of `packages` by name."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages and isinstance(module, ModuleType)
    }


def why_not_exchangeable(packages: Collection[str], others: Collection[str]) -> str:
    """Return why Python cannot exchange the code of `packages`, or an empty string.

    Args:
        packages: top-level names of the plugin.
        others: top-level names of the other active plugins.
    """
    for name, module in loaded_modules(packages).items():
        spec = module.__spec__
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            return f"'{name}' is compiled code, which Python loads once"
        if spec is not None and spec.origin is None and spec.submodule_search_locations:
            return f"'{name}' is a namespace that several distributions may share"
    if shared := set(packages) & set(others):
        return f"another active plugin lives in '{min(shared)}' too"
    for name, module in sorted(loaded_modules(others).items()):
        if used := next((each for each in _uses(module) if each in packages), ""):
            return f"'{name}' of another active plugin uses '{used}'"
    return ""


def _uses(module: ModuleType) -> Iterator[str]:
    """Yield the top-level names of the modules from which `module` has its names."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__.partition(".")[0]
        elif isinstance(value, type | FunctionType):
            yield str(value.__module__).partition(".")[0]


def forget_modules(packages: Collection[str]) -> None:
    """Forget the loaded modules of `packages`, so that the next import reads the disk.

    Objects that are in use keep their modules. What their functions import from now on is the new
    code, because Python has one table of modules.
    """
    for name, module in loaded_modules(packages).items():
        del sys.modules[name]
        # Bytecode counts as fresh while size and second of the source are the same, which an
        # edit can easily leave as they were.
        if cached := getattr(module, "__cached__", None):
            with suppress(OSError):
                Path(cached).unlink(missing_ok=True)
    importlib.invalidate_caches()


def put_back(packages: Collection[str], former: Mapping[str, ModuleType]) -> None:
    """Restore the former modules of `packages` by name."""
    for name in loaded_modules(packages):
        del sys.modules[name]
    sys.modules.update(former)


RESTART = "to get its new code, run nanobot gateway restart, or start nanobot again"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A started instance and the one that it replaces.

    Attributes:
        fresh: the new instance, started.
        former: the instance that was active.
        code: the former modules by name, where the code was exchanged too.
    """

    fresh: ActivePlugin
    former: ActivePlugin
    code: Mapping[str, ModuleType] | None = None

    def settle(self) -> None:
        """Continue with the new instance."""
        if self.code is not None:
            self.former.successor = self.fresh
            self.former.loading.release()

    def undo(self) -> None:
        """Continue with the previous instance."""
        if self.code is not None:
            put_back(self.former.source.packages, self.code)
            self.fresh.successor = self.former
            self.former.loading.release()


async def replace_code(
    plugin: InstalledPlugin,
    former: ActivePlugin,
    starter: Starter,
    others: Collection[ActivePlugin],
) -> Exchange:
    """Return an instance of the code that is on disk; if it fails, all is as it was.

    Until it is settled or undone, no code of the former one's tools is loaded.

    Args:
        plugin: as it is installed now.
        former: the instance that is active.
        starter: makes the new one.
        others: the other active plugins.

    Raises:
        RestartRequired: Python cannot exchange its code.
        PluginError: as `Starter.of_installed`.
        ConfigError: likewise.
    """
    await asyncio.to_thread(_refuse_restart_only, plugin, former, others)
    if not await asyncio.to_thread(former.loading.acquire, timeout=2 * CONTRIBUTION_LIMIT_S):
        raise PluginError(plugin.id, "one of its tools is being loaded", "try again")
    packages = former.source.packages
    code = loaded_modules(packages)
    try:
        await asyncio.to_thread(forget_modules, packages)
        return Exchange(await start_beside(plugin, starter), former, code)
    except BaseException:
        put_back(packages, code)
        former.loading.release()
        raise


class RestartRequired(PluginError):
    """New code of a plugin takes effect after a restart of the process."""

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(plugin, f"its code cannot be exchanged: {reason}", RESTART)


def refuse_in_use(active: ActivePlugin, settings: Settings) -> None:
    """Refuse to take away what is opened once for the whole program.

    Raises:
        RestartRequired: a store, memory or queue of this plugin is in use, or may be by default.
    """
    backend = settings.memory.backend
    names: dict[str, set[str | None]] = {
        "stores": {settings.agents.defaults.session_store, settings.gateway.bus},
        "memory": {backend},
    }
    for kind, chosen in names.items():
        for item in active.manifest.of_kind(kind):
            if item.name in chosen or (kind == "memory" and backend is None):
                raise RestartRequired(active.id, f"its {kind} '{item.name}' is in use")


async def start_beside(plugin: InstalledPlugin, starter: Starter) -> ActivePlugin:
    """Return a new instance with its tools collected; raises as `Starter.of_installed`."""
    active = await starter.of_installed(plugin)
    try:
        await active.collect_tools()
    except BaseException:
        await active.stop("reload")
        raise
    return active


def _refuse_restart_only(
    plugin: InstalledPlugin, former: ActivePlugin, others: Collection[ActivePlugin]
) -> None:
    if requirements_of(plugin) != former.source.requirements:
        raise RestartRequired(plugin.id, "it requires other packages than before")
    packages = frozenset[str]().union(*(other.source.packages for other in others))
    if reason := why_not_exchangeable(former.source.packages, packages):
        raise RestartRequired(plugin.id, reason)


def memory_bytes() -> int:
    """Return the memory of this process, 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
