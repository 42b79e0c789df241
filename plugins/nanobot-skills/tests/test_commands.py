"""``nanobot skills`` as a user runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import WriteSkill

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder; the first command in it describes the installed plugins."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def workspace(machine: Path) -> Path:
    return machine / ".nanobot" / "workspace"


@pytest.fixture
def run(machine: Path) -> Run:
    """Runs a command: ``run("list", "--json")``."""
    environment = {**os.environ, "HOME": str(machine), "COLUMNS": "100", "NO_COLOR": "1"}
    environment.pop("NANOBOT_CONFIG", None)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nanobot_core", "skills", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )

    return run


def test_the_built_in_skills_are_listed_and_conform(run: Run) -> None:
    listed = run("list")
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "SOURCE", "DESCRIPTION"]
    assert [line.split()[0] for line in lines[1:]] == [
        *("clawhub", "cron", "github", "memory", "skill-creator", "summarize", "tmux", "weather")
    ]
    assert all(len(line) <= 140 for line in lines)

    rows = json.loads(run("list", "--json").stdout)
    assert set(rows[0]) == {"name", "state", "source", "description", "file"}
    assert Path(rows[0]["file"]).is_file()

    checked = run("check")
    assert (checked.returncode, checked.stdout) == (0, "")
    assert checked.stderr == "8 skills checked, 0 errors\n"


def test_a_skill_is_created_checked_shown_and_approved(run: Run, workspace: Path) -> None:
    created = run("new", "release-notes", "--description", 'Writes "notes": all of them.')
    file = workspace / "skills" / "release-notes" / "SKILL.md"
    assert created.stdout == f"Wrote {file}\n", created.stderr
    assert run("check", "release-notes").returncode == 0
    again = run("new", "release-notes")
    assert again.returncode == 1
    assert "it exists already" in again.stderr

    file.write_text(
        file.read_text().replace("\n---\n\n", '\nmetadata:\n  nanobot-always: "true"\n---\n\n')
    )
    shown = run("show", "release-notes")
    assert "State: awaiting approval" in shown.stdout
    assert 'Writes "notes": all of them.' in shown.stdout
    approved = run("approve", "release-notes")
    assert approved.stdout.startswith("Approved this content of 'release-notes':")
    assert "State: active" in approved.stdout
    assert "State: active" in run("show", "release-notes").stdout
    assert run("approve", "release-notes").stdout == "'release-notes' needs no approval.\n"


def test_check_names_file_line_and_remedy_and_fails(
    run: Run, workspace: Path, write: WriteSkill
) -> None:
    folder = workspace / "skills"
    write(folder, "odd").write_text("---\nname: odd\nalways: true\ndescription: x\n---\nText\n")
    write(folder, "worse").write_text("---\nname: 'worse\n---\n")

    found = run("check")
    lines = found.stdout.splitlines()

    assert found.returncode == 1
    assert f"{folder}/odd/SKILL.md:3: 'always' is not a key of the format" in found.stdout
    assert any(line.startswith(f"{folder}/worse/SKILL.md:2: invalid YAML") for line in lines)
    one = run("check", "worse")
    assert (one.returncode, len(one.stdout.splitlines())) == (1, 1)
    assert run("check", "weather").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "nothing"), 1, "there is no skill 'nothing'"),
        (("check", "nothing"), 1, "there is no skill 'nothing'"),
        (("approve", "nothing"), 1, "there is no skill 'nothing'"),
        (("approve", "../../etc"), 1, "there is no skill"),
        (("new", "../evil"), 2, "lower-case letters"),
        (("new", "Evil"), 2, "lower-case letters"),
    ],
)
def test_mistakes_are_reported(run: Run, words: tuple[str, ...], code: int, message: str) -> None:
    result = run(*words)

    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_link_in_place_of_the_folder_is_not_written_through(
    run: Run, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "skills").mkdir(parents=True, exist_ok=True)
    (workspace / "skills" / "linked").symlink_to(tmp_path)

    result = run("new", "linked")

    assert result.returncode == 1
    assert list(tmp_path.iterdir()) == []
