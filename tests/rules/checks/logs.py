"""Log messages are literal templates with braces: fields stay fields, and cost nothing unused."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rules.checks.source import dotted, product_sources

LEVELS = frozenset(
    {"trace", "debug", "info", "success", "warning", "error", "critical", "exception", "log"}
)
PERCENT = re.compile(r"%[-#0 +]?\d*(?:\.\d+)?[sdrifxg]")


def log_findings(root: Path) -> list[str]:
    """Name each log call whose message is not a literal in loguru's brace style."""
    return [
        f"{source.path}:{node.lineno}: {complaint}"
        for source in product_sources(root)
        if "log" in source.text
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and _is_log_call(node)
        if (complaint := _complaint(node))
    ]


def _is_log_call(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
        return False
    chain = dotted(node.func.value).split(".")
    return any(part.strip("_") in {"logger", "log"} for part in chain)


def _complaint(node: ast.Call) -> str:
    assert isinstance(node.func, ast.Attribute)
    position = 1 if node.func.attr == "log" else 0
    if len(node.args) <= position:
        return "a log call without a message"
    match node.args[position]:
        case ast.JoinedStr():
            return "an f-string as log message; use {} and arguments"
        case ast.Constant(value=str(text)):
            return "% style in a log message; use {}" if PERCENT.search(text) else ""
        case _:
            return "a log message that is not a literal; use {} and arguments"
