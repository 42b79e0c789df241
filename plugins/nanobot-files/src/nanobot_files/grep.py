"""grep: lines in files that match a regular expression."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from nanobot_core import PathGuard, ToolContext
from nanobot_files.base import FileParams, FileTool
from nanobot_files.excerpt import Excerpts, count_matches
from nanobot_files.file_type import pattern_of_type
from nanobot_files.listing import place, render_lines
from nanobot_files.pattern import PathPattern
from nanobot_files.search import Matches, Query, search
from nanobot_files.walk import Walk
from nanobot_files.worker import Watch, run_to_end

_MAX_FILE_BYTES = 100_000_000
_EVERY_LINE = 1_000_000_000


class GrepParams(FileParams):
    """Parameters of `GrepTool`."""

    pattern: str = Field(min_length=1, description="Regular expression (Python), line by line.")
    path: str = Field(default=".", description="Folder or file; the workspace by default.")
    glob: str | None = Field(default=None, description="Only files like this, such as *.{ts,tsx}.")
    type: str | None = Field(default=None, description="Only this kind: py, js, ts, md, …")
    output_mode: Literal["files_with_matches", "content", "count"] = Field(
        default="files_with_matches", description="What to return."
    )
    context: int = Field(default=0, ge=0, le=50, description="Lines around each match (content).")
    case_insensitive: bool = Field(default=False, description="Disregard case.")
    head_limit: int = Field(default=100, ge=1, le=5_000, description="Most files or matches.")


class GrepTool(FileTool[GrepParams]):
    """Searches files, with ripgrep where it is installed and the same answers without it."""

    name = "grep"
    description = (
        "Search in files. Skips binary files, what .gitignore names, and folders such as .git and "
        "node_modules. For a broad search count or list the files first, then look at content. To "
        "find files by name use glob."
    )
    parameters_model = GrepParams
    read_only = True
    compactable = True

    async def run(self, context: ToolContext, params: GrepParams) -> str:
        """Search."""
        limit_s = self._files.settings.search_timeout_s
        watch = Watch(limit_s)
        query = Query(params.pattern, params.case_insensitive, _max_per_file(params))
        guard, scope = await run_to_end(lambda: self._collect(context, params, watch), watch)
        ripgrep = shutil.which("rg", path=self._files.search_path or "")
        matches = await search(scope.root, scope.names, query, ripgrep=ripgrep, limit_s=limit_s)
        reading = Watch(limit_s)
        return await run_to_end(
            lambda: self._render(guard, scope, matches, params, reading), reading
        )

    def _collect(
        self, context: ToolContext, params: GrepParams, watch: Watch
    ) -> tuple[PathGuard, _Scope]:
        wanted = [PathPattern(params.glob)] if params.glob else []
        if params.type:
            wanted.append(PathPattern(pattern_of_type(params.type)))
        guard = self._files.guard(context)
        root = guard.resolve_read(params.path)
        if not root.is_dir():
            with guard.open_read(root):
                return guard, _Scope(root.parent, (root.name,))
        names = [
            each.text
            for each in Walk(guard, watch).files(root)
            if each.facts.st_size <= _MAX_FILE_BYTES
            and all(pattern.matches(each.names) for pattern in wanted)
        ]
        return guard, _Scope(root, names)

    def _render(
        self, guard: PathGuard, scope: _Scope, matches: Matches, params: GrepParams, watch: Watch
    ) -> str:
        excerpts = Excerpts(guard, watch, params.context)
        lines: list[str] = []
        total = taken = 0
        for name in scope.names:
            numbers = matches.lines.get(name)
            if not numbers or not excerpts.is_text(scope.root / name):
                continue
            shown = place(scope.root / name, guard.workspace)
            room = params.head_limit - taken
            if params.output_mode == "content":
                total += len(numbers)
                kept = numbers[: max(room, 0)]
                taken += len(kept)
                lines += excerpts.around(scope.root / name, shown, kept)
            else:
                total += 1
                if room > 0:
                    taken += 1
                    lines.append(count_matches(shown, numbers, params.output_mode))
        if not total:
            return f"No match for {params.pattern} below {params.path}."
        remedy = "narrow the search with path, glob or type, or raise head_limit"
        room = self._files.settings.max_page_chars
        text = render_lines(lines, len(lines) + total - taken, room, remedy)
        return f"{text}\n[there are more matches than were counted]" if matches.cut else text


class _Scope(NamedTuple):
    """The files to search: names relative to a folder, in the order in which they are told."""

    root: Path
    names: Sequence[str]


def _max_per_file(params: GrepParams) -> int:
    match params.output_mode:
        case "files_with_matches":
            return 1
        case "content":
            # One more than is shown, so that it can be told that there are more.
            return params.head_limit + 1
        case "count":
            return _EVERY_LINE
