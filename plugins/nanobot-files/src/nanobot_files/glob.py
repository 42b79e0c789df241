"""glob: files by name."""

from __future__ import annotations

from pydantic import Field

from nanobot_core import ToolContext
from nanobot_files.base import FileParams, FileTool
from nanobot_files.listing import place, render_lines
from nanobot_files.pattern import PathPattern
from nanobot_files.walk import Walk
from nanobot_files.worker import Watch, run_to_end


class GlobParams(FileParams):
    """Parameters of `GlobTool`."""

    pattern: str = Field(description="Such as *.py (at any depth), src/**/*.{ts,tsx}.")
    path: str = Field(default=".", description="Folder to search; the workspace by default.")
    head_limit: int = Field(default=100, ge=1, le=5_000, description="Most files to list.")


class GlobTool(FileTool[GlobParams]):
    """Finds files by a pattern of their path, newest first."""

    name = "glob"
    description = (
        "Find files by name, newest first. Skips what .gitignore names and folders such as .git "
        "and node_modules. To search in files use grep; to see one folder use list_dir."
    )
    parameters_model = GlobParams
    read_only = True
    compactable = True

    async def run(self, context: ToolContext, params: GlobParams) -> str:
        """Find the files."""
        watch = Watch(self._files.settings.search_timeout_s)
        return await run_to_end(lambda: self._find(context, params, watch), watch)

    def _find(self, context: ToolContext, params: GlobParams, watch: Watch) -> str:
        pattern = PathPattern(params.pattern)
        guard = self._files.guard(context)
        root = guard.resolve_read(params.path)
        found = [each for each in Walk(guard, watch).files(root) if pattern.matches(each.names)]
        if not found:
            return f"No file below {params.path} matches {params.pattern}."
        found.sort(key=lambda each: (-each.facts.st_mtime_ns, each.names))
        lines = [
            place(root.joinpath(*each.names), guard.workspace)
            for each in found[: params.head_limit]
        ]
        remedy = "narrow the pattern or raise head_limit"
        return render_lines(lines, len(found), self._files.settings.max_page_chars, remedy)
