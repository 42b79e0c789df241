"""Every hook is documented, called, used by a plugin of ours, and named in a test."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.manifest import KINDS
from tests.rules.checks.sample import write_tree

PROGRAM: Final = "for programs that override it in an AgentHook, as with the original"
POLICY: Final = "for rules of an owner; the cookbook shows it"

UNUSED: Final = {
    "admit_message": POLICY,
    "after_delivery": POLICY,
    "contribute_stores": "the core has a session store and two buses",
    "on_stream_end": PROGRAM,
    "rewrite_inbound": POLICY,
    "rewrite_outbound": POLICY,
    "rewrite_tool_result": POLICY,
    "settings_changed": "our plugins are cheap to create again when their section changes",
}
"""Hooks that no plugin in `plugins` implements, with the reason."""


def hook_findings(root: Path, hooks: Iterable[tuple[str, str | None, Kind]]) -> list[str]:
    """Name what is missing below `root` for each (name, docstring, kind)."""
    used = _implemented(root.glob("plugins/*/src/**/*.py"))
    core = "\n".join(
        path.read_text("utf-8")
        for path in root.glob("nanobot_core/**/*.py")
        if path.parts[-2:] not in {("hooks", "specs.py"), ("hooks", "caller.py")}
    )
    folders = (root.glob("tests/**/*.py"), root.glob("plugins/*/tests/**/*.py"))
    tests = "\n".join(
        path.read_text("utf-8")
        for folder in folders
        for path in folder
        if path.name != Path(__file__).name
    )
    findings = []
    for name, docstring, kind in hooks:
        if not docstring:
            findings.append(f"{name}: has no docstring")
        if name in used and name in UNUSED:
            findings.append(f"{name}: is used, so remove it from UNUSED")
        if name not in used and name not in UNUSED:
            findings.append(f"{name}: is used by no plugin")
        if not _is_called(name, kind, core):
            findings.append(f"{name}: is called nowhere")
        if name not in UNUSED and not re.search(rf"\b{name}\b", tests):
            findings.append(f"{name}: is named in no test")
    return findings


def absent_plugins(root: Path) -> set[str]:
    """Return the plugins of the core's extras whose folders are not below `root`."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    named = {name for names in project["optional-dependencies"].values() for name in names}
    plugins = {name for name in named if name.startswith("nanobot-") and "[" not in name}
    return {name for name in plugins if not (root / "plugins" / name).is_dir()}


def _is_called(name: str, kind: Kind, core: str) -> bool:
    if name in KINDS.values():
        return True
    if kind in {Kind.CONTRIBUTE, Kind.OWN}:
        return re.search(rf"""["']{name}["']""", core) is not None
    # A guard may keep the call point: `if name := hooks.name: name(event)`.
    return re.search(rf"\.{name}(\.traced)?\(|\b{name} := .*\.{name}:", core) is not None


def _implemented(paths: Iterable[Path]) -> set[str]:
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    marker = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(marker, ast.Attribute):
                        found.add(marker.attr)
                    elif isinstance(marker, ast.Name) and marker.id == "hookimpl":
                        found.add(node.name)
    return found


def test_every_hook_is_documented_used_called_and_tested(repository: Path) -> None:
    hooks = [
        (name, point.declaration.__doc__, point.kind) for name, point in declared_hooks().items()
    ]

    findings = hook_findings(repository, hooks)

    if absent_plugins(repository):
        # Hooks that only an absent plugin uses look like unused ones.
        findings = [each for each in findings if not each.endswith(("no plugin", "no test"))]
    assert findings == []


def test_the_table_names_only_hooks_that_exist() -> None:
    assert not set(UNUSED) - set(declared_hooks())


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "nanobot_core/a.py": "hooks.called(event)\n",
            "plugins/x/src/x/plugin.py": "@on.called(blocking=True)\ndef f(event): ...\n",
            "plugins/x/tests/test_x.py": "# called\n",
        },
    )

    found = hook_findings(
        tmp_path,
        [("called", "Documented.", Kind.OBSERVE), ("forgotten", None, Kind.OBSERVE)],
    )

    assert found == [
        "forgotten: has no docstring",
        "forgotten: is used by no plugin",
        "forgotten: is called nowhere",
        "forgotten: is named in no test",
    ]
