"""A hook is called behind its guard, so that its event is built for listeners only."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.kinds import Kind
from tests.rules.checks.sample import write_tree
from tests.rules.checks.source import Source, core_sources, dotted

CALLED = {
    name
    for name, point in declared_hooks().items()
    if point.kind not in {Kind.CONTRIBUTE, Kind.OWN}
}


def unguarded(sources: Iterable[Source]) -> list[str]:
    """Name each call of a hook in a file without ``if hooks.NAME``."""
    findings = []
    for source in sources:
        nodes = list(ast.walk(source.tree))
        guards = {
            part.attr
            for node in nodes
            if isinstance(node, ast.If)
            for part in ast.walk(node.test)
            if isinstance(part, ast.Attribute)
        }
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            owner, _, name = dotted(node.func).removesuffix(".traced").rpartition(".")
            if owner.endswith("hooks") and name in CALLED - guards:
                findings.append(f"{source.path}:{node.lineno}: calls '{name}' without its guard")
    return findings


@pytest.mark.promise(8)
def test_every_call_of_a_hook_is_behind_its_guard(repository: Path) -> None:
    sources = (each for each in core_sources(repository) if "/hooks/" not in each.path)

    assert unguarded(sources) == []


def test_a_call_without_a_guard_is_named(tmp_path: Path) -> None:
    code = "if hooks.before_turn:\n    hooks.before_turn(1)\nself.hooks.after_turn(2)\n"
    root = write_tree(tmp_path, {"nanobot_core/a.py": code})

    assert unguarded(core_sources(root)) == [
        "nanobot_core/a.py:3: calls 'after_turn' without its guard"
    ]
