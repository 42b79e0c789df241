"""list_dir: what is in a folder."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from pydantic import Field

from nanobot_core import PathGuard, ToolContext
from nanobot_files.base import FileParams, FileTool
from nanobot_files.listing import render_lines
from nanobot_files.walk import Walk
from nanobot_files.worker import Watch, run_to_end


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
        watch = Watch(self._files.settings.search_timeout_s)
        return await run_to_end(lambda: self._list(context, params, watch), watch)

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
                lines.append(_render(entry.name, facts, target))
    return lines


def _tree(guard: PathGuard, root: Path, watch: Watch) -> list[str]:
    walk = Walk(guard, watch, gitignore=False)
    return [
        _render(each.text, each.facts) + (" (not entered)" if each.skipped else "")
        for each in walk.entries(root)
    ]


def _render(name: str, facts: os.stat_result, target: str = "") -> str:
    plain = name.encode(errors="replace").decode()
    if stat.S_ISDIR(facts.st_mode):
        return f"{plain}/"
    if stat.S_ISREG(facts.st_mode):
        return f"{plain}  {facts.st_size:,}"
    return f"{plain} -> {target}" if target else f"{plain}  (no regular file)"
