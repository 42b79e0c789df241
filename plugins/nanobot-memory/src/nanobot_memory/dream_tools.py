"""The tools of Dream's second phase. They reach a draft, and nothing else that can be changed."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field

from nanobot_core import ModelTool, Tool, ToolInputError, finish_in_thread

if TYPE_CHECKING:
    from nanobot_core import ToolContext
    from nanobot_memory.draft import Draft
    from nanobot_memory.files import MemoryFiles

MAX_READ_BYTES: Final = 50_000
_CLOSED: Final = frozenset({"memory", "sessions", "guests", ".nanobot", ".git"})
"""Folders of the workspace with words of others, which no model may carry over."""


class ReadParams(BaseModel):
    """Parameters of `ReadTool`."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="File, relative to the workspace, such as skills/x/SKILL.md.")


class EditParams(BaseModel):
    """Parameters of `EditTool`."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="SOUL.md, USER.md, MEMORY.md or topics/<name>.md.")
    old_text: str = Field(description="Lines to replace, as in the file; empty appends new_text.")
    new_text: str = Field(description="Lines to put there; empty removes the old ones.")


class WriteParams(BaseModel):
    """Parameters of `WriteTool`."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="skills/<name>/SKILL.md")
    content: str = Field(description="The whole file, front matter first.")


class ReadTool(ModelTool[ReadParams]):
    """Reads a file of the workspace; only the owner's memory has it."""

    name = "read_file"
    description = "Read a text file of the workspace, such as a skill. The memory files are given."
    parameters_model = ReadParams
    read_only = True

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    async def run(self, context: ToolContext, params: ReadParams) -> str:
        """Return the beginning of the file."""
        return await finish_in_thread(lambda: self._read(context, params.path))

    def _read(self, context: ToolContext, name: str) -> str:
        path = PurePosixPath(name.strip())
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ToolInputError(f"'{name}' is not a path below the workspace")
        if path.parts[0].casefold() in _CLOSED:
            raise ToolInputError(f"'{name}' cannot be read here")
        if not context.files.may_read(self._files.root.path / path):
            raise ToolInputError(f"'{name}' cannot be read here")
        try:
            data = self._files.root.read(path, MAX_READ_BYTES)
        except OSError as error:
            raise ToolInputError(f"cannot read '{name}': {error.strerror}") from error
        return data.decode("utf-8", "replace")


class EditTool(ModelTool[EditParams]):
    """Changes lines of the memory files in the draft."""

    name = "edit_file"
    description = (
        "Replace whole lines of a memory file, or append lines. Only lines that a finding names "
        "can be replaced or removed, and only what a finding says can be added."
    )
    parameters_model = EditParams
    exclusive = True

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    async def run(self, context: ToolContext, params: EditParams) -> str:
        """Change the draft."""
        return self._draft.edit(params.path, params.old_text, params.new_text)


class WriteTool(ModelTool[WriteParams]):
    """Adds a skill to the draft."""

    name = "write_file"
    description = "Write a new skill that a finding asks for: skills/<name>/SKILL.md."
    parameters_model = WriteParams
    exclusive = True

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    async def run(self, context: ToolContext, params: WriteParams) -> str:
        """Change the draft."""
        return self._draft.write(params.path, params.content)


def tools_for(files: MemoryFiles, draft: Draft, *, is_owners: bool) -> tuple[Tool, ...]:
    """Return the tools of a run. Without the owner's memory there is only `EditTool`.

    A guest's memory must not get what the owner keeps in the workspace.
    """
    if not is_owners:
        return (EditTool(draft),)
    return (ReadTool(files), EditTool(draft), WriteTool(draft))
