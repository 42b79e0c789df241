"""The plugin's contract, its entry module, and its hook for other packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core.testing import PluginContract
from nanobot_skills.chat import check_skills
from nanobot_skills.plugin import SkillsPlugin

if TYPE_CHECKING:
    from conftest import Shelf, WriteSkill

pytestmark = pytest.mark.anyio


class TestSkillsPlugin(PluginContract):
    plugin_id = "skills"

    def make_plugin(self) -> object:
        return SkillsPlugin()


def test_importing_the_entry_module_loads_neither_yaml_nor_pydantic() -> None:
    program = (
        "import sys, json; import nanobot_skills.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_skills', 'pydantic', 'yaml', 'typer')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout

    assert sorted(json.loads(output)) == [
        *("nanobot_skills", "nanobot_skills.contribution", "nanobot_skills.plugin")
    ]


async def test_used_before_its_start_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="before its start hook"):
        await SkillsPlugin().gather_context(None)  # type: ignore[arg-type]  # not looked at


async def test_doctor_reports_broken_skills_then_those_that_await_approval(
    shelf: Shelf, write: WriteSkill
) -> None:
    assert (await check_skills(shelf.context)).status == "ok"

    write(shelf.folder, "eager", always="true")
    waiting = await check_skills(shelf.context)
    assert (waiting.status, waiting.message) == ("warning", "awaiting approval: eager")

    Path(write(shelf.folder, "demo")).write_text("x")
    broken = await check_skills(shelf.context)
    assert broken.status == "warning"
    assert "demo/SKILL.md:1: begin the file" in broken.message
