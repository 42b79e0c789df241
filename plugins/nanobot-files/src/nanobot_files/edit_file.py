"""edit_file: one passage replaced by another."""

from __future__ import annotations

from pydantic import Field

from nanobot_core import ToolContext, ToolInputError
from nanobot_files.files import FileParams, FileTool
from nanobot_files.passages import Span, describe_nearest, find_spans, line_number
from nanobot_files.text_file import TextFile, require_characters
from nanobot_files.worker import run_to_end

_MAX_PLACES = 10


class EditFileParams(FileParams):
    """Parameters of `EditFileTool`."""

    path: str = Field(description="File, absolute or relative to the workspace.")
    old_text: str = Field(
        min_length=1, description="Text to replace, exactly as in the file, without LINE|."
    )
    new_text: str = Field(description="Text to put there; empty removes the passage.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class EditFileTool(FileTool[EditFileParams]):
    """Replaces text in place; every other byte of the file stays as it is."""

    name = "edit_file"
    description = (
        "Replace a passage of a text file. old_text must occur once, or set replace_all; give "
        "enough lines around it to be unique. Read the file first. For changes in several files "
        "use apply_patch, for a new file write_file, for .ipynb notebook_edit."
    )
    parameters_model = EditFileParams

    async def run(self, context: ToolContext, params: EditFileParams) -> str:
        """Edit the file."""
        return await run_to_end(lambda _: self._edit(context, params))

    def _edit(self, context: ToolContext, params: EditFileParams) -> str:
        old, new = require_characters(params.old_text), require_characters(params.new_text)
        if old == new:
            raise ToolInputError("old_text and new_text are the same; nothing would change")
        guard = self._files.guard(context)
        path = guard.resolve_write(params.path)
        with self._files.writing:
            loaded = self._files.load(guard, path)
            document = TextFile.parse(loaded.data, params.path)
            spans = _choose(document.text, params)
            edited = _splice(document.text, spans, document.with_newlines(new))
            note = self._files.stale_note(context.session_key, path, loaded.version)
            self._files.save(guard, context.session_key, path, document.render(edited))
        places = _places(document.text, spans)
        return f"Edited {params.path}: {len(spans)} replacement(s), at {places}{note}"


def _choose(text: str, params: EditFileParams) -> list[Span]:
    spans = find_spans(text, params.old_text)
    if not spans:
        nearest = describe_nearest(text, params.old_text)
        hint = nearest or "Nothing similar is there either; read the file."
        raise ToolInputError(f"old_text was not found in '{params.path}'. {hint}")
    if len(spans) > 1 and not params.replace_all:
        raise ToolInputError(
            f"old_text occurs {len(spans)} times in '{params.path}', at {_places(text, spans)}; "
            "add lines around it until it is unique, or set replace_all"
        )
    return spans


def _splice(text: str, spans: list[Span], new: str) -> str:
    parts, position = [], 0
    for span in spans:
        parts += [text[position : span.start], new]
        position = span.end
    return "".join([*parts, text[position:]])


def _places(text: str, spans: list[Span]) -> str:
    numbers = [str(line_number(text, span.start)) for span in spans[:_MAX_PLACES]]
    more = f" and {len(spans) - _MAX_PLACES} more" if len(spans) > _MAX_PLACES else ""
    return f"line {', '.join(numbers)}{more}"
