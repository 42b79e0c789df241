"""The product's source files, parsed once, when a rule asks for their tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One Python file of the product."""

    path: str
    """Relative to the repository, with slashes."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return parse(self.path, self.text)


@cache
def parse(path: str, text: str) -> ast.Module:
    """Parse a file; all rules share its tree until `parse.cache_clear`."""
    return ast.parse(text, path)


def core_sources(root: Path) -> Iterator[Source]:
    """Give the files of the core."""
    yield from _parsed(root, root / "nanobot_core")


def plugin_sources(root: Path) -> Iterator[Source]:
    """Give the files of all plugins, without their tests."""
    for folder in sorted(root.glob("plugins/*/src")):
        yield from _parsed(root, folder)


def product_sources(root: Path) -> Iterator[Source]:
    """Give the files that users install."""
    yield from core_sources(root)
    yield from plugin_sources(root)


def plugin_code(root: Path) -> Iterator[Source]:
    """Give the files of all plugins, with their tests."""
    yield from plugin_sources(root)
    for folder in sorted(root.glob("plugins/*/tests")):
        yield from _parsed(root, folder)


def filled_lines(text: str) -> int:
    """Count the lines that are not blank."""
    return sum(1 for line in text.splitlines() if line.strip())


def code_lines(source: Source, node: ast.AST | None = None) -> int:
    """Count the lines of code of a file or of one definition in it.

    Blank lines, comments and docstrings (those of attributes too) are left out.
    """
    tree = source.tree if node is None else node
    prose = {
        number
        for part in ast.walk(tree)
        if isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
        for number in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    }
    lines = source.text.splitlines()
    first = getattr(tree, "lineno", 1)
    last = getattr(tree, "end_lineno", len(lines)) or len(lines)
    return sum(
        1
        for number in range(first, last + 1)
        if number not in prose and lines[number - 1].strip() and lines[number - 1].strip()[0] != "#"
    )


def dotted(node: ast.expr) -> str:
    """Render a chain of attributes, `a.b.c`; any other expression in it is left out."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}".lstrip(".")
        case ast.Call():
            return dotted(node.func)
        case _:
            return ""


def _parsed(root: Path, folder: Path) -> Iterator[Source]:
    for path in sorted(folder.rglob("*.py")):
        yield Source(path.relative_to(root).as_posix(), path.read_text("utf-8"))
