"""notebook_edit: changes one cell of a Jupyter notebook and keeps the notebook valid."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nanobot_core import ToolContext, ToolFailed, ToolInputError
from nanobot_files.files import FileParams, FileTool
from nanobot_files.text_file import require_characters
from nanobot_files.worker import run_to_end

_NO_EXTRA = "notebooks require a library: python3 -m pip install 'nanobot-files[notebooks]'"
_DONE = {"replace": "Replaced", "insert": "Inserted", "delete": "Deleted"}


class NotebookEditParams(FileParams):
    """Parameters of `NotebookEditTool`."""

    path: str = Field(description="Notebook (.ipynb), absolute or relative to the workspace.")
    cell_index: int = Field(ge=0, description="Number of the cell, from 0; insert puts it there.")
    new_source: str = Field(default="", description="The whole source of the cell.")
    cell_type: Literal["code", "markdown", "raw"] | None = Field(
        default=None, description="Kind of the cell; insert makes code by default."
    )
    edit_mode: Literal["replace", "insert", "delete"] = Field(
        default="replace", description="What to do."
    )


class NotebookEditTool(FileTool[NotebookEditParams]):
    """Changes one cell and keeps the notebook valid."""

    name = "notebook_edit"
    description = (
        "Replace, insert or delete one cell of a Jupyter notebook (.ipynb), by its number from 0. "
        "insert creates the notebook if there is none. A code cell that is changed loses its "
        "outputs. For other files use edit_file."
    )
    parameters_model = NotebookEditParams

    async def run(self, context: ToolContext, params: NotebookEditParams) -> str:
        """Edit the notebook."""
        return await run_to_end(lambda _: self._edit(context, params))

    def _edit(self, context: ToolContext, params: NotebookEditParams) -> str:
        try:
            from nanobot_files.notebook import Notebook
        except ImportError as error:
            raise ToolFailed(_NO_EXTRA) from error
        source = require_characters(params.new_source)
        guard = self._files.guard(context)
        path = guard.resolve_write(params.path)
        if path.suffix.lower() != ".ipynb":
            raise ToolInputError(f"'{params.path}' is not a notebook (.ipynb); use edit_file")
        with self._files.writing:
            is_new = params.edit_mode == "insert" and not path.exists()
            loaded = None if is_new else self._files.load(guard, path)
            notebook = Notebook.parse(loaded.data, params.path) if loaded else Notebook.empty()
            index = params.cell_index
            match params.edit_mode:
                case "replace":
                    notebook.replace(index, source, params.cell_type)
                case "insert":
                    notebook.insert(index, source, params.cell_type or "code")
                case "delete":
                    notebook.delete(index)
            data = notebook.render()
            version = loaded and loaded.version
            note = self._files.stale_note(context.session_key, path, version) if version else ""
            self._files.save(guard, context.session_key, path, data)
        done = _DONE[params.edit_mode]
        place = f"the new notebook {params.path}" if is_new else params.path
        return f"{done} cell {index} of {place}; it has {len(notebook)} cells now{note}"
