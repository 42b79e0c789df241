"""Modules that import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from tests.rules.checks.source import Source, product_sources


def cycle_findings(root: Path) -> list[str]:
    """Report each import cycle between modules below `root`.

    Imports inside functions count, because they only hide a cycle. Imports under
    ``TYPE_CHECKING`` do not: they never run.
    """
    sources = {_module_name(source.path): source for source in product_sources(root)}
    graph = {
        name: {found for found in _imported(source, sources) if found != name}
        for name, source in sources.items()
    }
    reached = {name: _reachable(name, graph) for name in graph}
    cycles = {
        frozenset({name, *(other for other in reached[name] if name in reached[other])})
        for name in graph
        if name in reached[name]
    }
    return sorted(f"these modules import each other: {', '.join(sorted(c))}" for c in cycles)


def _module_name(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(source: Source, known: Mapping[str, object]) -> Iterator[str]:
    for node in _running(source.tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name in known)
            case ast.ImportFrom(module=str(module), level=0):
                for alias in node.names:
                    inner = f"{module}.{alias.name}"
                    if (name := inner if inner in known else module) in known:
                        yield name


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk the statements of a tree without the bodies of ``if TYPE_CHECKING``."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = node.orelse
        pending += [child for child in children if not isinstance(child, ast.expr)]


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(graph[start])
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph[name]
    return found
