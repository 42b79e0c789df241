"""The promises of the plugin system, and the tests that prove them.

``promises.toml`` states each promise once. A test that proves one is marked
``@pytest.mark.promise(21)``; a test may prove several.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = ("tests", "plugins/*/tests")
_MARK = "pytest.mark.promise"


class Promise(NamedTuple):
    """One promise. The fields are those of the file, with the title of its group."""

    group: str
    number: int
    title: str
    text: str
    missing: str = ""
    plugin: str = ""


class Proof(NamedTuple):
    """A test with the mark."""

    path: str
    """Relative to the repository, with slashes."""
    name: str
    numbers: tuple[int, ...]
    """Empty if the arguments of the mark are not numbers."""


def load_promises(root: Path) -> list[Promise]:
    """Return the promises that are stated below `root`, in the order of the file."""
    data = tomllib.loads((root / "tests" / "promises.toml").read_text("utf-8"))
    return [Promise(group["title"], **row) for group in data["group"] for row in group["promise"]]


def find_proofs(root: Path) -> list[Proof]:
    """Return the marked tests below `root`, by path."""
    files = {path for folder in TESTS for path in root.glob(f"{folder}/**/test_*.py")}
    return [
        proof
        for path in sorted(files)
        if _MARK in (text := path.read_text("utf-8"))
        for proof in _marks(path.relative_to(root).as_posix(), ast.parse(text))
    ]


def promise_findings(root: Path) -> list[str]:
    """Name promises that nothing proves, and marks that mean nothing."""
    promises, proofs = load_promises(root), find_proofs(root)
    known = {promise.number for promise in promises}
    proved = {number for proof in proofs for number in proof.numbers}
    findings = [
        f"{proof.path}: the mark of '{proof.name}' needs numbers from tests/promises.toml"
        for proof in proofs
        if not proof.numbers or not known.issuperset(proof.numbers)
    ]
    for promise in promises:
        if promise.number in proved and promise.missing:
            findings.append(f"promise {promise.number}: has a test, so remove 'missing'")
        is_absent = bool(promise.plugin) and not (root / "plugins" / promise.plugin).is_dir()
        if promise.number not in proved and not promise.missing and not is_absent:
            findings.append(f"promise {promise.number}: no test has its mark")
    numbers = [promise.number for promise in promises]
    findings += [f"promise {each}: stated twice" for each in known if numbers.count(each) > 1]
    return findings


def render_promises(root: Path) -> str:
    """Return all promises with the files of their tests, as Markdown."""
    proofs = find_proofs(root)
    blocks: list[str] = []
    group = ""
    for promise in load_promises(root):
        if promise.group != group:
            group = promise.group
            blocks.append(f"## {group}")
        blocks += [f"### {promise.number}. {promise.title}", promise.text]
        if promise.missing:
            blocks.append(f"*Not yet: {promise.missing}.*")
        found = {proof.path for proof in proofs if promise.number in proof.numbers}
        blocks.append("\n".join(f"- `{path}`" for path in sorted(found)))
    return "\n\n".join(block for block in blocks if block)


def _marks(path: str, tree: ast.Module) -> Iterator[Proof]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for mark in node.decorator_list:
                if ast.unparse(mark).startswith(_MARK):
                    yield Proof(path, node.name, _numbers(mark))


def _numbers(mark: ast.expr) -> tuple[int, ...]:
    given = (
        [arg.value for arg in mark.args if isinstance(arg, ast.Constant)]
        if (isinstance(mark, ast.Call) and not mark.keywords)
        else []
    )
    return tuple(value for value in given if isinstance(value, int))
