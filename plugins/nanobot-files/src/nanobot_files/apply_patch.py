"""apply_patch: changes in several files, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from nanobot_core import (
    JsonObject,
    PathGuard,
    ToolContext,
    ToolError,
    ToolFailed,
    ToolInputError,
)
from nanobot_files.files import Access, FileParams, FileTool, Loaded
from nanobot_files.patch import AddFile, Change, DeleteFile, UpdateFile, apply_hunks, parse_patch
from nanobot_files.text_file import TextFile, require_characters
from nanobot_files.worker import run_to_end


class ApplyPatchParams(FileParams):
    """Parameters of `ApplyPatchTool`."""

    patch: str = Field(min_length=1, description="The patch, from *** Begin Patch on.")


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to write or, without data, to remove; and its former content."""

    path: Path
    data: bytes | None
    former: Loaded | None
    mode: int | None = None


class ApplyPatchTool(FileTool[ApplyPatchParams]):
    """Prepares all changes, then writes them, and reverts them if one cannot be written."""

    name = "apply_patch"
    description = (
        "Change several files at once, all or none. Between '*** Begin Patch' and '*** End Patch': "
        "'*** Add File: p' with + lines; '*** Delete File: p'; '*** Update File: p', maybe "
        "'*** Move to: q', then hunks: '@@' (maybe with a line above the place), then lines that "
        "begin with ' ' (context), '-' or '+'. Give three lines of context. For one passage "
        "edit_file is simpler."
    )
    parameters_model = ApplyPatchParams

    async def run(self, context: ToolContext, params: ApplyPatchParams) -> str:
        """Apply the patch."""
        return await run_to_end(lambda _: self._apply(context, params))

    def targets(self, arguments: JsonObject) -> list[tuple[Access, str]]:
        """See `FileTool`; empty for an invalid patch, which changes nothing."""
        try:
            changes = parse_patch(str(arguments.get("patch")))
        except ToolError:
            return []
        moved = [each.move_to for each in changes if isinstance(each, UpdateFile) and each.move_to]
        return [("write", path) for path in (*(each.path for each in changes), *moved)]

    def _apply(self, context: ToolContext, params: ApplyPatchParams) -> str:
        changes = parse_patch(require_characters(params.patch))
        guard = self._files.guard(context)
        with self._files.writing:
            steps: list[_Step] = []
            lines: list[str] = []
            for change in changes:
                prepared = self._prepare(guard, change)
                lines.append(_describe(change) + self._stale(context.session_key, prepared))
                steps += prepared
            _require_distinct(steps)
            self._write(guard, context.session_key, steps)
        return "\n".join(lines)

    def _prepare(self, guard: PathGuard, change: Change) -> list[_Step]:
        path = guard.resolve_write(change.path)
        match change:
            case AddFile():
                _require_absent(path, change.path)
                return [_Step(path, change.content.encode(), None)]
            case DeleteFile():
                return [_Step(path, None, self._files.load(guard, path))]
            case UpdateFile():
                return self._prepare_update(guard, path, change)

    def _prepare_update(self, guard: PathGuard, path: Path, change: UpdateFile) -> list[_Step]:
        former = self._files.load(guard, path)
        document = TextFile.parse(former.data, change.path)
        text = apply_hunks(document.text, change.hunks, change.path, document.newline)
        data = document.render(text)
        if change.move_to is None:
            return [_Step(path, data, former)]
        target = guard.resolve_write(change.move_to)
        _require_absent(target, change.move_to)
        return [_Step(target, data, None, former.mode), _Step(path, None, former)]

    def _stale(self, session_key: str, steps: Sequence[_Step]) -> str:
        notes = (
            self._files.stale_note(session_key, step.path, step.former.version)
            for step in steps
            if step.former is not None
        )
        return "".join(notes)

    def _write(self, guard: PathGuard, session_key: str, steps: Sequence[_Step]) -> None:
        done: list[_Step] = []
        try:
            for step in steps:
                done.append(step)
                if step.data is None:
                    guard.remove(step.path)
                else:
                    guard.write_atomic(step.path, step.data, mode=step.mode)
        except ToolError as error:
            _take_back(guard, done, error)
            raise ToolFailed(f"nothing was changed: {error}") from error
        for step in steps:
            if step.data is not None:
                self._files.note_saved(guard, session_key, step.path)


def _take_back(guard: PathGuard, done: Sequence[_Step], cause: ToolError) -> None:
    """Restore every file of `done`; the last of them may or may not have been changed."""
    broken: list[str] = []
    for step in reversed(done):
        try:
            if step.former is not None:
                guard.write_atomic(step.path, step.former.data, mode=step.former.mode)
            elif step.path.exists():
                guard.remove(step.path)
        except ToolError:
            broken.append(str(step.path))
    # The step that failed usually cannot be restored either, and does not need to be.
    if broken[1:] or (broken and broken[0] != str(done[-1].path)):
        names = ", ".join(broken)
        raise ToolFailed(f"{cause}; these files could not be restored: {names}") from cause


def _require_absent(path: Path, shown: str) -> None:
    if path.exists():
        raise ToolInputError(f"'{shown}' exists already; use '*** Update File: ' to change it")


def _require_distinct(steps: Sequence[_Step]) -> None:
    paths = [step.path for step in steps]
    for path in paths:
        if paths.count(path) > 1:
            raise ToolInputError(f"'{path}' occurs twice in the patch; put its hunks together")


def _describe(change: Change) -> str:
    match change:
        case AddFile():
            return f"Added {change.path}"
        case DeleteFile():
            return f"Deleted {change.path}"
        case UpdateFile(move_to=None):
            return f"Updated {change.path}"
        case UpdateFile():
            return f"Moved {change.path} to {change.move_to}"
