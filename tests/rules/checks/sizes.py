"""Nothing grows past the figures of `tests.rules.limits`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.rules import limits
from tests.rules.checks.source import (
    Source,
    code_lines,
    core_sources,
    filled_lines,
    product_sources,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def size_findings(root: Path) -> list[str]:
    """Name everything below `root` that is larger than its limit."""
    findings = _module_findings(root)
    for source in product_sources(root):
        limit = _file_limit(source.path)
        findings += _over("file", source.path, filled_lines(source.text), limit)
        for name, node in _definitions(source.tree):
            place = f"{source.path}::{name}"
            if isinstance(node, ast.ClassDef):
                findings += _class_findings(place, node, source)
            else:
                findings += _function_findings(place, node, source)
    return findings


def module_of(path: str) -> str:
    """Name the core's module that a file belongs to: `nanobot_core/agent/loop.py` is `agent`."""
    return PurePosixPath(path).parts[1].removesuffix(".py")


def _module_findings(root: Path) -> list[str]:
    lines: Counter[str] = Counter()
    for source in core_sources(root):
        lines[module_of(source.path)] += code_lines(source)
    findings = [
        f"nanobot_core/{name}: has no limit; enter it in tests/rules/limits.py"
        for name in lines
        if name not in limits.MODULES and name not in limits.FILES_OF
    ]
    for name, size in limits.MODULES.items():
        findings += _over("module", f"nanobot_core/{name}", lines[name], size.limit)
    core = sum(count for name, count in lines.items() if name not in limits.OUTSIDE_CORE)
    return findings + _over("core", "nanobot_core", core, limits.CORE)


def _file_limit(path: str) -> int:
    if path.startswith("nanobot_core/"):
        return limits.FILES_OF.get(module_of(path), limits.FILE).limit
    return limits.FILE.limit


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, Definition):
            inner = f"{prefix}{node.name}."
            yield f"{prefix}{node.name}", node
        yield from _definitions(node, inner)


def _class_findings(place: str, node: ast.ClassDef, source: Source) -> list[str]:
    public = {
        child.name
        for child in node.body
        if isinstance(child, Function) and not child.name.startswith("_")
    }
    return [
        *_over("class", place, code_lines(source, node), limits.CLASS.limit),
        *_over("methods", place, len(public), limits.PUBLIC_METHODS),
    ]


def _function_findings(place: str, node: Function, source: Source) -> list[str]:
    given = node.args
    by_position = [arg.arg for arg in (*given.posonlyargs, *given.args)]
    if by_position[:1] in (["self"], ["cls"]):
        by_position = by_position[1:]
    together = len(by_position) + len(given.kwonlyargs)
    return [
        *_over("function", place, code_lines(source, node), limits.FUNCTION.limit),
        *_over("parameters", place, len(by_position), limits.PARAMETERS),
        *_over("all-parameters", place, together, limits.PARAMETERS_WITH_KEYWORDS),
    ]


def _over(rule: str, place: str, found: int, limit: int) -> list[str]:
    allowed = limits.RAISED.get((rule, place), limit)
    return [f"{place}: {rule} has {found}, the limit is {allowed}"] if found > allowed else []
