"""read_skill: a skill's instructions, and the further files in its folder."""

from __future__ import annotations

import asyncio
import difflib
import os
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import ModelTool, ToolContext, ToolInputError, ToolOutput
from nanobot_skills.front_matter import visible_text
from nanobot_skills.library import Library, LoadedSkill
from nanobot_skills.skill import FILE_NAME, MAX_BYTES

if TYPE_CHECKING:
    from nanobot_core import PluginContext

MAX_LISTED = 50
_MAX_LOOKED_AT = 500


class ReadSkillParams(BaseModel):
    """Parameters of `ReadSkillTool`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64, description="Name of the skill.")
    path: str = Field(
        default=FILE_NAME, max_length=500, description="File in the folder of the skill."
    )


class ReadSkillTool(ModelTool[ReadSkillParams]):
    """Reads one text file of a skill, wherever the skill is.

    The results are not compactable: instructions must stay in the conversation that follows them.
    """

    name = "read_skill"
    description = (
        "Read a skill before you do a task that it describes. Returns its instructions and the "
        "names of its further files; read one of those with path."
    )
    parameters_model = ReadSkillParams
    read_only = True
    for_guests = True

    def __init__(self, ctx: PluginContext) -> None:
        self._library = ctx.shared(Library)

    async def run(self, context: ToolContext, params: ReadSkillParams) -> ToolOutput:
        """Read one file."""
        skills = self._library.visible(await self._library.load(), is_owner=context.is_owner)
        by_name = {each.name: each for each in skills}
        each = by_name.get(params.name)
        if each is None:
            close = difflib.get_close_matches(params.name, by_name, n=3)
            hint = f"; similar names: {', '.join(close)}" if close else ""
            raise ToolInputError(f"there is no skill '{params.name}'{hint}")
        if PurePath(params.path) == PurePath(FILE_NAME):
            return await asyncio.to_thread(_overview, each, is_owner=context.is_owner)
        return await asyncio.to_thread(_read_file, each, params.path)


def _overview(each: LoadedSkill, *, is_owner: bool) -> str:
    """Return the instructions, below what a model must know to use them."""
    where = f", in {each.found.path}" if is_owner else ""
    lines = [f"[skill {each.name}{where}]"]
    if each.missing:
        lines.append(f"[unavailable here: it needs {' and '.join(each.missing)}]")
    if files := _further_files(each):
        lines.append(f"[further files: {', '.join(files)}]")
    return "\n".join(lines) + f"\n\n{each.skill.body}"


def _further_files(each: LoadedSkill) -> list[str]:
    """Return the files beside SKILL.md and one level deeper, at most `MAX_LISTED`."""
    found: list[str] = []
    for folder in _entries(each, PurePath(), folders=True):
        found += [f"{folder}/{name}" for name in _entries(each, PurePath(folder), folders=False)]
    files = [name for name in _entries(each, PurePath(), folders=False) if name != FILE_NAME]
    return [*files, *found][:MAX_LISTED]


def _entries(each: LoadedSkill, folder: PurePath, *, folders: bool) -> list[str]:
    try:
        with (
            each.found.place.door.directory(each.found.folder / folder) as handle,
            os.scandir(handle) as entries,
        ):
            return sorted(
                entry.name
                for entry in islice(entries, _MAX_LOOKED_AT)
                if entry.name.isprintable()
                and not entry.name.startswith(".")
                and (entry.is_dir if folders else entry.is_file)(follow_symlinks=False)
            )
    except OSError:
        return []


def _read_file(each: LoadedSkill, path: str) -> str:
    try:
        data = each.found.place.door.read(each.found.folder / _below(path), MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "it cannot be opened").lower()
        raise ToolInputError(f"cannot read '{path}' of skill '{each.name}': {reason}") from error
    if len(data) > MAX_BYTES:
        raise ToolInputError(f"'{path}' is larger than {MAX_BYTES:,} bytes")
    try:
        return visible_text(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ToolInputError(f"'{path}' is not a text file in UTF-8") from error


def _below(path: str) -> PurePath:
    pure = PurePath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise ToolInputError(f"'{path}' is not in the folder of the skill; give a path below it")
    return pure
