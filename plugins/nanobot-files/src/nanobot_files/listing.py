"""list_dir and glob: the files in a folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from nanobot_core import PathGuard, ToolContext
from nanobot_files.files import FileParams, FileTool
from nanobot_files.pattern import PathPattern
from nanobot_files.walk import Walk
from nanobot_files.worker import Watch, run_to_end


def render_lines(lines: Sequence[str], total: int, max_chars: int, remedy: str) -> str:
    """Return `lines` as text, with a note of how many are left out.

    Args:
        lines: at most `total` of them, in order.
        max_chars: characters to give.
        remedy: what to do to see the others.
    """
    shown: list[str] = []
    room = max_chars
    for line in lines:
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line[:max_chars])
    if len(shown) < total:
        shown.append(f"\n[{len(shown):,} of {total:,} shown; {remedy}]")
    return "\n".join(shown)


def place(path: Path, workspace: Path) -> str:
    """Return `path` as shown in an answer: relative to the workspace if it is inside."""
    near = path.relative_to(workspace) if path.is_relative_to(workspace) else path
    return str(near).encode(errors="replace").decode()


class ListDirParams(FileParams):
    """Parameters of `ListDirTool`."""

    path: str = Field(default=".", description="Folder; the workspace by default.")
    recursive: bool = Field(default=False, description="List what is below as well.")
    max_entries: int = Field(default=200, ge=1, le=5_000, description="Most entries to list.")


class ListDirTool(FileTool[ListDirParams]):
    """Lists a folder, sorted by name."""

    name = "list_dir"
    description = (
        "List a folder: names sorted, folders end with /, files with their size in bytes. With "
        "recursive, folders such as .git and node_modules are named but not entered. To find "
        "files by name use glob, by content grep."
    )
    parameters_model = ListDirParams
    read_only = True
    compactable = True

    async def run(self, context: ToolContext, params: ListDirParams) -> str:
        """List the folder."""
        limit_s = self._files.settings.search_timeout_s
        return await run_to_end(lambda watch: self._list(context, params, watch), limit_s)

    def _list(self, context: ToolContext, params: ListDirParams, watch: Watch) -> str:
        guard = self._files.guard(context)
        root = guard.resolve_read(params.path)
        lines = _tree(guard, root, watch) if params.recursive else _folder(guard, root)
        if not lines:
            return f"{params.path} is empty."
        shown = lines[: params.max_entries]
        remedy = "raise max_entries, or list a folder below"
        return render_lines(shown, len(lines), self._files.settings.max_page_chars, remedy)


def _folder(guard: PathGuard, root: Path) -> list[str]:
    lines: list[str] = []
    with guard.open_directory(root) as folder, os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                facts = entry.stat(follow_symlinks=False)
                target = os.readlink(entry.name, dir_fd=folder) if entry.is_symlink() else ""
                lines.append(_entry_line(entry.name, facts, target))
    return lines


def _tree(guard: PathGuard, root: Path, watch: Watch) -> list[str]:
    walk = Walk(guard, watch, gitignore=False)
    return [
        _entry_line(each.text, each.facts) + (" (not entered)" if each.skipped else "")
        for each in walk.entries(root)
    ]


def _entry_line(name: str, facts: os.stat_result, target: str = "") -> str:
    plain = name.encode(errors="replace").decode()
    if stat.S_ISDIR(facts.st_mode):
        return f"{plain}/"
    if stat.S_ISREG(facts.st_mode):
        return f"{plain}  {facts.st_size:,}"
    return f"{plain} -> {target}" if target else f"{plain}  (not a regular file)"


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
        limit_s = self._files.settings.search_timeout_s
        return await run_to_end(lambda watch: self._find(context, params, watch), limit_s)

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
