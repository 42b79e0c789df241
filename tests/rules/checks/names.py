"""The public names are the documented ones, for readers and for type checkers."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

HEADING = re.compile(r"^## `([\w.]+)`$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")


def documented_name_findings(page: Path, exported: Mapping[str, set[str]]) -> list[str]:
    """Compare the names a page lists per module with those the modules export."""
    documented = _documented(page.read_text("utf-8"))
    findings = []
    for module, names in exported.items():
        listed = documented.get(module, set())
        findings += [f"{module}.{name}: exported, not in {page.name}" for name in names - listed]
        findings += [f"{module}.{name}: in {page.name}, not exported" for name in listed - names]
    return sorted(findings)


def static_name_findings(module_file: Path, exported: set[str]) -> list[str]:
    """Compare a lazy module's imports under `TYPE_CHECKING` with the names it exports."""
    bound = _bound_for_checkers(ast.parse(module_file.read_text("utf-8")))
    missing = [f"{module_file.name}: checkers do not see '{name}'" for name in exported - bound]
    surplus = [f"{module_file.name}: only checkers see '{name}'" for name in bound - exported]
    return sorted(missing + surplus)


def _documented(text: str) -> dict[str, set[str]]:
    parts = HEADING.split(text)[1:]
    return {
        module: set(NAME.findall(body))
        for module, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _bound_for_checkers(tree: ast.Module) -> set[str]:
    """Give the names that a module imports in order to export them: those written `x as x`."""
    blocks = [
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname
        for statement in (*tree.body, *(inner for block in blocks for inner in block))
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
        if alias.asname
    }
