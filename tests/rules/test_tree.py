"""What is committed is named well and gives nothing away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rules.checks.sample import write_tree
from tests.rules.checks.tree import (
    committed_files,
    file_name_findings,
    index_hosts,
    leak_findings,
)


def test_files_say_what_they_hold(repository: Path) -> None:
    assert file_name_findings(repository) == []


def test_no_file_names_a_registry_or_a_machine(repository: Path) -> None:
    assert leak_findings(repository, index_hosts()) == []


@pytest.mark.parametrize(
    "path", ["nanobot_core/utils.py", "nanobot_core/common/text.py", "docs/misc.md", "uv.lock"]
)
def test_vague_names_and_lock_files_are_named(tmp_path: Path, path: str) -> None:
    (found,) = file_name_findings(write_tree(tmp_path, {path: ""}))

    assert found.startswith(f"{path}: ")


@pytest.mark.parametrize(
    "path", ["plugins/a/src/a.pth", "sitecustomize.py", "plugins/a/src/usercustomize/__init__.py"]
)
def test_files_that_each_start_of_python_runs_are_named(tmp_path: Path, path: str) -> None:
    (found,) = file_name_findings(write_tree(tmp_path, {path: ""}))

    assert found.startswith(f"{path}: each start of Python")


# Each line is put together here, so that this file does not hold what it looks for.
@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("index = 'https://files.pytho" + "nhosted.org/x'", "names a package registry"),
        ("see https://py" + "pi.org/project/x", "names a package registry"),
        ("url: https://mirror.example/api" + "/simple/", "names a package registry"),
        ("from inner" + ".example import x", "names a package registry"),
        ("open('/ro" + "ot/notes')", "names a path of one machine"),
        ("cd /wo" + "rk", "names a path of one machine"),
    ],
)
def test_lines_that_give_something_away_are_named(tmp_path: Path, line: str, finding: str) -> None:
    write_tree(tmp_path, {"a.txt": f"first\n{line}\n"})

    assert leak_findings(tmp_path, {"inner.example"}) == [f"a.txt:2: {finding}"]


@pytest.mark.parametrize(
    "line", ["and/or", "~/work/x", "tests/work/a", "a simple/ path", "/rooted"]
)
def test_harmless_lines_pass(tmp_path: Path, line: str) -> None:
    assert leak_findings(write_tree(tmp_path, {"a.txt": line})) == []


def test_ignored_files_are_not_looked_at(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    write_tree(tmp_path, {".gitignore": "uv.lock\n", "uv.lock": "", "a.txt": ""})

    assert committed_files(tmp_path) == [".gitignore", "a.txt"]
