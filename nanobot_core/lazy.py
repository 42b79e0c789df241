"""Public names of a package whose modules are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys

# Importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[dict[str, str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the home of each name, and the ``__getattr__`` and ``__dir__`` of the package.

    Args:
        package: its name.
        modules: each module below it, with the public names that it defines.
    """
    homes = {
        name: f"{package}.{module}" for module, names in modules.items() for name in names.split()
    }

    def get(name: str) -> object:
        if name not in homes:
            msg = f"module '{package}' has no attribute '{name}'"
            raise AttributeError(msg)
        value: object = getattr(importlib.import_module(homes[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted([*vars(sys.modules[package]), *homes])

    return homes, get, names
