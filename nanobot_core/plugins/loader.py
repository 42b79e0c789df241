"""Plugin code, imported with every failure told apart and contained."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import TypeVar

from nanobot_core.errors import ConfigError, PluginError, PluginLoadFailed, PluginRejected
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.local import load_file

T = TypeVar("T")


def load_entry(plugin: InstalledPlugin) -> object:
    """Return the plugin's module, or an instance of the class that its entry point names.

    Raises:
        PluginLoadFailed: its code does not import; the reason says whose fault it is.
    """
    if plugin.file:
        return _load_local(plugin.id, plugin.file)
    target = load_object(plugin.id, plugin.target)
    if inspect.isclass(target):
        try:
            return target()
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # isolation point
            raise PluginLoadFailed(
                plugin.id,
                f"creating {plugin.target} raised {type(error).__name__}: {error}",
                f"report it to the author of {plugin.distribution}",
            ) from error
    return target


def _load_local(plugin_id: str, file: str) -> object:
    try:
        return load_file(file)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # isolation point
        reason, remedy = _explain(file, "", error)
        raise PluginLoadFailed(plugin_id, reason, remedy) from error


def load_object(plugin_id: str, dotted: str) -> object:
    """Return what ``package.module`` or ``package.module:name`` names.

    Blocks while it imports; call it in a thread from a loop.

    Raises:
        PluginLoadFailed: the module does not import or lacks the name.
    """
    module_name, _, name = dotted.partition(":")
    importlib.invalidate_caches()
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # isolation point
        reason, remedy = _explain(module_name, name, error)
        raise PluginLoadFailed(plugin_id, reason, remedy) from error
    return found


async def make_object(plugin_id: str, dotted: str, wanted: type[T], *arguments: object) -> T:
    """Return what the factory that `dotted` names makes of `arguments`.

    Raises:
        PluginLoadFailed: the factory cannot be imported, or it failed.
        PluginRejected: it is none, or made something else than `wanted`.
        PluginError: its own word on why it makes nothing.
        ConfigError: it found its settings wrong.
    """
    factory = await asyncio.to_thread(load_object, plugin_id, dotted)
    if not callable(factory):
        raise PluginRejected(plugin_id, f"'{dotted}' is no factory")
    try:
        made: object = factory(*arguments)
    except (PluginError, ConfigError):
        raise
    except (Exception, SystemExit) as error:  # isolation point
        reason = f"'{dotted}' raised {type(error).__name__}: {error}"
        raise PluginLoadFailed(plugin_id, reason) from error
    if not isinstance(made, wanted):
        raise PluginRejected(plugin_id, f"'{dotted}' made no {wanted.__name__}")
    return made


def _explain(module_name: str, name: str, error: BaseException) -> tuple[str, str]:
    package = module_name.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        if missing != package:
            return f"module '{missing}' is not installed", f"pip install {missing}"
        return f"there is no module '{error.name}'", "reinstall it or fix its entry point"
    if isinstance(error, AttributeError) and name:
        return f"module '{module_name}' has no '{name}'", "fix its entry point or dotted name"
    if isinstance(error, SyntaxError):
        return f"syntax error in {error.filename}:{error.lineno}: {error.msg}", "fix the file"
    if isinstance(error, SystemExit):
        return f"importing '{module_name}' called sys.exit({error.code!r})", "remove that call"
    return f"importing '{module_name}' raised {type(error).__name__}: {error}", "see the log"
