"""The modules of a plugin: told apart from those of others, exchanged, put back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core.plugins.index import InstalledPlugin


def packages_of(plugin: InstalledPlugin) -> frozenset[str]:
    """Return the top-level names of a plugin's distribution, as far as its metadata tells.

    Of an isolated plugin, what is loaded here is its isolator's.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    own = plugin.target.partition(":")[0].partition(".")[0]
    if plugin.file is not None or plugin.isolation is not None:
        return frozenset((own,))
    try:
        files = distribution(plugin.distribution).files or ()
    except PackageNotFoundError:
        files = ()
    packages = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    modules = {file.stem for file in files if file.suffix == ".py" and len(file.parts) == 1}
    return frozenset({own, *packages, *modules})


def requirements_of(plugin: InstalledPlugin) -> tuple[str, ...]:
    """Return what a plugin's distribution requires, as it is installed now."""
    from importlib.metadata import PackageNotFoundError, distribution

    if plugin.file is not None or plugin.isolation is not None:
        return ()
    try:
        return tuple(distribution(plugin.distribution).requires or ())
    except PackageNotFoundError:
        return ()


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
    """Yield the top-level names of the modules that what stands in `module` comes from."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__.partition(".")[0]
        elif isinstance(value, type | FunctionType):
            yield str(value.__module__).partition(".")[0]


class CodeExchange:
    """The modules of a plugin, out of the way of those that are on disk now.

    The former ones live on where something uses them. What they import from now on, inside of a
    function, is the new code: Python has one table of modules.

    Args:
        packages: top-level names of the plugin.
    """

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self._former: dict[str, ModuleType] = {}

    def take_out(self) -> None:
        """Forget the modules, so that the next import reads the disk."""
        self._former = loaded_modules(self._packages)
        for name, module in self._former.items():
            del sys.modules[name]
            # Bytecode counts as fresh while size and second of the source are the same, which an
            # edit can easily leave as they were.
            if cached := getattr(module, "__cached__", None):
                with suppress(OSError):
                    Path(cached).unlink(missing_ok=True)
        importlib.invalidate_caches()

    def put_back(self) -> None:
        """Make the former modules those that count."""
        for name in loaded_modules(self._packages):
            del sys.modules[name]
        sys.modules.update(self._former)
