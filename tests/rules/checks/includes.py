"""Sources that pages include or name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

INCLUDE = re.compile(r"^```\{literalinclude\} (\S+)\n((?::.*\n)*)", re.MULTILINE)
SOURCE = re.compile(r"`([a-z_]+)/([a-z_]+\.py)`")
OBJECT = re.compile(r"^:pyobject: (\S+)$", re.MULTILINE)


def include_findings(root: Path) -> list[str]:
    """Report each included or named source that does not exist; a documentation build is slower."""
    return [
        f"{page.relative_to(root).as_posix()}: {finding}"
        for page in sorted(root.glob("docs/**/*.md"))
        for finding in _findings(page, root / "nanobot_core")
    ]


def _findings(page: Path, core: Path) -> Iterator[str]:
    text = page.read_text("utf-8")
    for folder, file in SOURCE.findall(text):
        if (core / folder).is_dir() and not (core / folder / file).is_file():
            yield f"names '{folder}/{file}', which does not exist"
    for target, options in INCLUDE.findall(text):
        source = page.parent / target
        if not source.is_file():
            yield f"includes '{target}', which does not exist"
        elif (name := OBJECT.search(options)) and name[1] not in _objects(source):
            yield f"includes '{name[1]}' of '{target}', which does not exist"


def _objects(source: Path) -> set[str]:
    return set(_names(ast.parse(source.read_text("utf-8")), ""))


def _names(tree: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
            yield from _names(node, f"{prefix}{node.name}.")
