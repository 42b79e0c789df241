"""notebook_edit: changes one cell of a Jupyter notebook and keeps the notebook valid."""

from __future__ import annotations

from typing import Literal

import nbformat
from pydantic import Field

from nanobot_core import ToolContext, ToolInputError
from nanobot_files.files import FileParams, FileTool
from nanobot_files.text_file import require_characters
from nanobot_files.worker import run_to_end

_MAJOR = 4
_AS_IT_IS = nbformat.NO_CONVERT
_CELL_IDS_SINCE = (4, 5)


class Notebook:
    """Cells of a notebook in its own format version; versions before 4 are refused.

    Args:
        node: what nbformat made of the file.
        trailing_newline: whether the file ended with one.
    """

    def __init__(self, node: nbformat.NotebookNode, *, trailing_newline: bool) -> None:
        self._node = node
        self._trailing_newline = trailing_newline

    @classmethod
    def empty(cls) -> Notebook:
        """Return a notebook without cells, in the newest format."""
        return cls(nbformat.v4.new_notebook(), trailing_newline=True)  # type: ignore[no-untyped-call]  # nbformat has no annotations here

    @classmethod
    def parse(cls, data: bytes, shown: str) -> Notebook:
        """Read a notebook.

        Args:
            shown: its path, for the error.

        Raises:
            ToolInputError: it is not a valid notebook of version 4.
        """
        try:
            node = nbformat.reads(data.decode(), as_version=_AS_IT_IS)  # type: ignore[no-untyped-call]  # nbformat has no annotations here
            if node.nbformat != _MAJOR:
                problem = f"'{shown}' has notebook format {node.nbformat}; convert it to 4 first"
                raise ToolInputError(problem)
            nbformat.validate(node)
        except (ValueError, AttributeError, nbformat.ValidationError) as error:
            line = str(error).partition("\n")[0]
            raise ToolInputError(f"'{shown}' is not a valid notebook: {line}") from error
        return cls(node, trailing_newline=data.endswith(b"\n"))

    def __len__(self) -> int:
        return len(self._node.cells)

    def replace(self, index: int, source: str, cell_type: str | None) -> None:
        """Give a cell a new source, and a new kind unless it is ``None``."""
        former = self._cell(index)
        kind = cell_type or former.cell_type
        cell = self._new_cell(kind, source)
        cell.metadata = former.metadata
        if "id" in former:
            cell.id = former.id
        if kind != "code" and "attachments" in former:
            cell.attachments = former.attachments
        self._node.cells[index] = cell

    def insert(self, index: int, source: str, cell_type: str) -> None:
        """Put a new cell before the one at `index`, or at the end."""
        if index > len(self):
            raise ToolInputError(f"the notebook has {len(self)} cells; insert at 0 to {len(self)}")
        self._node.cells.insert(index, self._new_cell(cell_type, source))

    def delete(self, index: int) -> None:
        """Remove a cell."""
        self._cell(index)
        del self._node.cells[index]

    def render(self) -> bytes:
        """Return the content of the file."""
        text: str = nbformat.writes(self._node, version=_AS_IT_IS)  # type: ignore[no-untyped-call]  # as above
        return (text.rstrip("\n") + ("\n" if self._trailing_newline else "")).encode()

    def _cell(self, index: int) -> nbformat.NotebookNode:
        if index >= len(self):
            count = len(self)
            raise ToolInputError(
                f"the notebook has {count} cells, numbered from 0; none is {index}"
            )
        cell: nbformat.NotebookNode = self._node.cells[index]
        return cell

    def _new_cell(self, kind: str, source: str) -> nbformat.NotebookNode:
        make = getattr(nbformat.v4, f"new_{kind}_cell")
        cell: nbformat.NotebookNode = make(source)
        if (self._node.nbformat, self._node.nbformat_minor) < _CELL_IDS_SINCE:
            del cell["id"]
        return cell


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
