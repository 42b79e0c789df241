"""Some calls have one home."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rules.checks.source import Source, dotted, product_sources

HOMES = {
    "print": ("nanobot_core/cli/",),
    "asyncio.create_task": ("nanobot_core/tasks.py", "nanobot_core/hooks/"),
    "asyncio.ensure_future": ("nanobot_core/tasks.py", "nanobot_core/hooks/"),
    "os.environ": ("nanobot_core/config/",),
    "os.getenv": ("nanobot_core/config/",),
}
"""Name to the folders that may use it. ruff bans them too, but allows by file, not by name."""

EXCEPTIONS = {
    # LiteLLM reads some settings only there, while it is imported.
    ("plugins/nanobot-litellm/src/nanobot_litellm/library.py", "os.environ"),
}
"""(file, name) of uses outside of their home that nothing can replace."""


def call_findings(root: Path) -> list[str]:
    """Name each use of a name in `HOMES` outside its home."""
    return [
        f"{source.path}:{line}: {name} belongs to {' and '.join(HOMES[name])}"
        for source in product_sources(root)
        for name, line in _uses(source)
        if not source.path.startswith(HOMES[name]) and (source.path, name) not in EXCEPTIONS
    ]


def _uses(source: Source) -> Iterator[tuple[str, int]]:
    if not any(name.rpartition(".")[2] in source.text for name in HOMES):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Name | ast.Attribute):
            names = [dotted(node)]
        else:
            continue
        for name in names:
            if name in HOMES:
                yield name, node.lineno
