"""The tool that reads skills."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import Tool, ToolInputError
from nanobot_core.testing import FakePluginContext, ToolContract, call_in, output_text
from nanobot_skills import SkillSource
from nanobot_skills.read_skill import ReadSkillTool

if TYPE_CHECKING:
    from conftest import MakeShelf, Shelf, WriteSkill

pytestmark = pytest.mark.anyio


class TestReadSkill(ToolContract):
    plugin_id = "skills"
    sample_arguments = {"name": "summarize", "path": "SKILL.md"}  # noqa: RUF012 - as the suite has it

    def make_tool(self, context: FakePluginContext) -> Tool:
        return ReadSkillTool(context)


async def read(shelf: Shelf, *, is_owner: bool = True, **arguments: str) -> str:
    tool = ReadSkillTool(shelf.context)
    call = replace(call_in(shelf.context.workspace), is_owner=is_owner)
    return output_text(await tool.execute(call, dict(arguments)))


async def test_instructions_come_with_the_folder_and_the_further_files(
    shelf: Shelf, write: WriteSkill
) -> None:
    folder = write(shelf.folder, "demo", body="Do it.").parent
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.sh").write_text("echo")
    (folder / "table.md").write_text("| a |")

    assert await read(shelf, name="demo") == (
        f"[skill demo, in {folder}]\n[further files: table.md, scripts/run.sh]\n\nDo it."
    )
    assert await read(shelf, name="demo", path="scripts/run.sh") == "echo"


async def test_guests_read_what_they_see_and_no_paths_of_the_machine(
    make_shelf: MakeShelf, write: WriteSkill, tmp_path: Path
) -> None:
    write(tmp_path / "package", "packaged")
    shelf = make_shelf(sources=[SkillSource(tmp_path / "package", "a package")])
    write(shelf.folder, "private")

    assert await read(shelf, name="packaged", is_owner=False) == "[skill packaged]\n\nDo it."
    with pytest.raises(ToolInputError, match="there is no skill 'private'"):
        await read(shelf, name="private", is_owner=False)


async def test_a_misspelt_name_gets_similar_ones(shelf: Shelf, write: WriteSkill) -> None:
    write(shelf.folder, "letters")

    with pytest.raises(ToolInputError, match="no skill 'leters'; similar names: letters"):
        await read(shelf, name="leters")


@pytest.mark.parametrize(
    "path", ["../other/SKILL.md", "/etc/passwd", "a/../../x", "", ".", "link", "pipe", "a\0b", "no"]
)
async def test_nothing_outside_the_folder_and_no_link_is_read(
    shelf: Shelf, write: WriteSkill, tmp_path: Path, path: str
) -> None:
    write(shelf.folder, "other")
    folder = write(shelf.folder, "demo").parent
    (tmp_path / "secret").write_text("a key")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")

    with pytest.raises(ToolInputError):
        await read(shelf, name="demo", path=path)
    assert "link" not in await read(shelf, name="demo")


@pytest.mark.parametrize(
    ("data", "reason"), [(b"\xff", "not a text file"), (b"x" * 256_001, "larger than 256,000")]
)
async def test_other_files_than_short_texts_are_refused(
    shelf: Shelf, write: WriteSkill, data: bytes, reason: str
) -> None:
    (write(shelf.folder, "demo").parent / "data").write_bytes(data)

    with pytest.raises(ToolInputError, match=reason):
        await read(shelf, name="demo", path="data")


async def test_what_is_missing_is_said_above_the_instructions(
    shelf: Shelf, write: WriteSkill
) -> None:
    write(shelf.folder, "demo", requires_bins="no-such-program")

    text = await read(shelf, name="demo")

    assert "[unavailable here: it needs the program no-such-program]" in text


def test_instructions_stay_in_the_conversation() -> None:
    assert not ReadSkillTool.compactable
