"""Files of the workspace are opened through one door."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rules.checks.source import Source, dotted, product_sources

ALLOWED = {
    "nanobot_core/app/workspace.py": "makes the workspace itself",
    "nanobot_core/cli/doctor.py": "looks at the workspace itself",
    "nanobot_core/testing/context.py": "makes the workspace of a test",
    "nanobot_core/testing/installed.py": "makes the workspace of a test",
    "nanobot_core/testing/tool.py": "makes the workspace of a test",
}
"""Files that touch the workspace otherwise, with the reason."""
_PATH_CALLS = frozenset({
    *("exists", "is_dir", "is_fifo", "is_file", "is_symlink", "lstat", "owner", "samefile"),
    *("glob", "iterdir", "open", "read_bytes", "read_text", "rglob", "walk"),
    *("chmod", "hardlink_to", "mkdir", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
})  # fmt: skip
_PATH_CALLS_BY_ARGUMENTS = {"stat": 0, "rename": 1, "replace": 1}
"""Calls that a `Folder` has as well, with the number of arguments that a path takes."""
_MODULES = ("os.", "shutil.")
_HARMLESS = frozenset({"os.fspath", "os.path.normpath", "os.path.relpath", "os.path.join"})


def workspace_findings(root: Path) -> list[str]:
    """Report each place that opens, lists or changes something below the workspace by its path.

    A model may have written the files of the workspace, and a path follows the links in them;
    `Folder` and `PathGuard` do not.
    """
    return [
        f"{source.path}:{line}: {call} follows links of the workspace; use Folder or PathGuard"
        for source in product_sources(root)
        if source.path not in ALLOWED
        for line, call in _calls(source)
    ]


def _calls(source: Source) -> Iterator[tuple[int, str]]:
    if "workspace" not in source.text:
        return
    scopes = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for scope in scopes:
        names = _names_of_paths(scope)
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and _is_path_call(node, names):
                yield node.lineno, ast.unparse(node.func)


def _names_of_paths(scope: ast.AST) -> set[str]:
    """Return the names that stand for paths below the workspace, as far as this scope shows."""
    names = {"workspace"}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and _is_below(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_below(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is the workspace or a path below it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_below(node.left, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        follows = node.func.attr in {"resolve", "absolute", "expanduser", "joinpath"}
        return follows and _is_below(node.func.value, names)
    if isinstance(node, ast.Attribute):
        if node.attr == "path":
            return _is_below(node.value, names)
        return node.attr.strip("_") == "workspace"
    return isinstance(node, ast.Name) and node.id in names


def _is_path_call(node: ast.Call, names: set[str]) -> bool:
    if isinstance(node.func, ast.Name):
        return node.func.id == "open" and any(_is_below(each, names) for each in node.args)
    if not isinstance(node.func, ast.Attribute):
        return False
    name = dotted(node.func)
    if name.startswith(_MODULES) and name not in _HARMLESS:
        return any(_is_below(each, names) for each in node.args)
    if not _is_below(node.func.value, names):
        return False
    count = _PATH_CALLS_BY_ARGUMENTS.get(node.func.attr)
    return node.func.attr in _PATH_CALLS or count == len(node.args)
