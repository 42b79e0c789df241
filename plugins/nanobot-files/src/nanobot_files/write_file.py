"""write_file: a whole file at once."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from nanobot_core import PathGuard, ToolContext, ToolInputError
from nanobot_files.files import FileParams, FileTool, Loaded
from nanobot_files.text_file import TextFile, require_characters
from nanobot_files.worker import run_to_end


class WriteFileParams(FileParams):
    """Parameters of `WriteFileTool`."""

    path: str = Field(description="File, absolute or relative to the workspace.")
    content: str = Field(description="The whole content.")


class WriteFileTool(FileTool[WriteFileParams]):
    """Writes a file; an existing one keeps its permissions, encoding and line endings."""

    name = "write_file"
    description = (
        "Create a file, or replace the whole content of one; missing folders are made. To change "
        "a part of a file use edit_file, which is safer and shorter."
    )
    parameters_model = WriteFileParams
    idempotent = True

    async def run(self, context: ToolContext, params: WriteFileParams) -> str:
        """Write the file."""
        return await run_to_end(lambda _: self._write(context, params))

    def _write(self, context: ToolContext, params: WriteFileParams) -> str:
        content = require_characters(params.content)
        guard = self._files.guard(context)
        path = guard.resolve_write(params.path)
        with self._files.writing:
            former = self._former(guard, path)
            data, note = _encode(content, former, params.path)
            if former is not None:
                note += self._files.stale_note(context.session_key, path, former.version)
            self._files.save(guard, context.session_key, path, data)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        verb = "Created" if former is None else "Replaced"
        return f"{verb} {params.path}: {len(data):,} bytes, {lines:,} lines{note}"

    def _former(self, guard: PathGuard, path: Path) -> Loaded | None:
        try:
            return self._files.load(guard, path)
        except ToolInputError:
            # Missing, or too large to compare; the write itself reports other problems.
            return None


def _encode(content: str, former: Loaded | None, shown: str) -> tuple[bytes, str]:
    """Return `content` in the encoding of the former file if possible, and otherwise a note."""
    if former is None or not former.data:
        return content.encode(), ""
    try:
        document = TextFile.parse(former.data, shown)
        return document.render(document.with_newlines(content)), ""
    except ToolInputError:
        return content.encode(), "\nNote: the file is UTF-8 now; it was stored in another way."
