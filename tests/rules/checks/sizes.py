"""Sizes above the limits in `tests.rules.limits`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tests.rules import limits
from tests.rules.checks.source import (
    Source,
    code_lines,
    core_sources,
    dotted,
    filled_lines,
    product_sources,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
MIN_CLASSES = 20
"""Too few classes for a rate per 1,000 lines to mean anything."""


def size_findings(root: Path) -> list[str]:
    """Report everything below `root` that exceeds its limit."""
    findings = _module_findings(root)
    classes = Classes(product_sources(root))
    for source in product_sources(root):
        limit = _file_limit(source.path)
        findings += _over("file", source.path, filled_lines(source.text), limit)
        for name, node in _definitions(source.tree):
            place = f"{source.path}::{name}"
            if isinstance(node, ast.ClassDef):
                findings += _class_findings(place, classes.with_bases(source, node))
            else:
                findings += _function_findings(place, node, source)
    return findings


class Classes:
    """Finds the bases of a class that are classes of the product, by their names."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._found: dict[str, list[tuple[Source, ast.ClassDef]]] = {}
        for source in sources:
            for _, node in _definitions(source.tree):
                if isinstance(node, ast.ClassDef):
                    self._found.setdefault(node.name, []).append((source, node))

    def with_bases(self, source: Source, node: ast.ClassDef) -> list[tuple[Source, ast.ClassDef]]:
        """Return the class and all its bases in the product, each once."""
        found = [(source, node)]
        for at, cls in found:
            for base in cls.bases:
                if (parent := self._class(base, at)) and parent not in found:
                    found.append(parent)
        return found

    def _class(self, base: ast.expr, source: Source) -> tuple[Source, ast.ClassDef] | None:
        generic = base.value if isinstance(base, ast.Subscript) else base
        named = self._found.get(dotted(generic).rpartition(".")[2], [])
        near = [entry for entry in named if entry[0].path == source.path]
        core = [entry for entry in named if entry[0].path.startswith("nanobot_core/")]
        return next(iter([*near, *core]), None)


def module_of(path: str) -> str:
    """Return the module of a file in the core: `agent` for `nanobot_core/agent/loop.py`."""
    return PurePosixPath(path).parts[1].removesuffix(".py")


def _module_findings(root: Path) -> list[str]:
    lines: Counter[str] = Counter()
    classes = 0
    for source in core_sources(root):
        module = module_of(source.path)
        lines[module] += code_lines(source)
        if module not in limits.OUTSIDE_CORE:
            classes += sum(isinstance(node, ast.ClassDef) for node in ast.walk(source.tree))
    findings = [
        f"nanobot_core/{name}: has no limit; add one to tests/rules/limits.py"
        for name in lines
        if name not in limits.MODULES and name not in limits.FILES_OF
    ]
    for name, size in limits.MODULES.items():
        findings += _over("module", f"nanobot_core/{name}", lines[name], size.limit)
    core = sum(count for name, count in lines.items() if name not in limits.OUTSIDE_CORE)
    return [
        *findings,
        *_over("core", "nanobot_core", core, limits.CORE),
        *_over("classes", "nanobot_core", classes, max(MIN_CLASSES, limits.CLASSES * core // 1000)),
    ]


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


def _class_findings(place: str, parts: Sequence[tuple[Source, ast.ClassDef]]) -> list[str]:
    public = {
        child.name
        for _, node in parts
        for child in node.body
        if isinstance(child, Function) and not child.name.startswith("_")
    }
    lines = sum(code_lines(source, node) for source, node in parts)
    return [
        *_over("class", place, lines, limits.CLASS.limit),
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
