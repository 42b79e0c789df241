"""Plugins use what a third party could use, and the core knows no plugin."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.rules.checks.source import Source, core_sources, plugin_code

PUBLIC = frozenset(
    {
        "nanobot_core",
        "nanobot_core.chat",
        "nanobot_core.net",
        "nanobot_core.providers",
        "nanobot_core.testing",
        "nanobot_core.tools",
    }
)
BUILT_ON = frozenset({"nanobot_http"})
"""Plugins that exist to be built on: those that declare the dependency may import them."""


def plugin_import_findings(root: Path) -> list[str]:
    """Name each import of a plugin that reaches into the core or into another plugin."""
    return [
        f"{source.path}:{line}: imports {module}, {complaint}"
        for source in plugin_code(root)
        for module, line in dict.fromkeys(_imported(source, root))
        if (complaint := _complaint(root, Path(source.path).parts[1], module))
    ]


def core_import_findings(root: Path) -> list[str]:
    """Name each import of a plugin in the core."""
    return [
        f"{source.path}:{line}: imports {module}, and the core knows no plugin"
        for source in core_sources(root)
        for module, line in dict.fromkeys(_imported(source, root))
        if module.startswith("nanobot_") and module.partition(".")[0] != "nanobot_core"
    ]


def _complaint(root: Path, distribution: str, module: str) -> str:
    top = module.partition(".")[0]
    if top == "nanobot_core":
        return "" if module in PUBLIC else "an inner module of the core"
    if not top.startswith("nanobot_") or top == distribution.replace("-", "_"):
        return ""
    if top in BUILT_ON and top in _declared(root / "plugins" / distribution):
        return ""
    return "another plugin"


def _declared(folder: Path) -> set[str]:
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in project["dependencies"]]
    return {name.replace("-", "_") for name in names}


def _imported(source: Source, root: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Import():
                yield from ((alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                for alias in node.names:
                    inner = f"{module}.{alias.name}"
                    yield inner if _is_module(root, inner) else module, node.lineno
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module")):
                match node.args[:1]:
                    case [ast.Constant(value=str(module))]:
                        yield module, node.lineno


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
