"""Notebook: cells of a Jupyter notebook, with the library that the extra ``notebooks`` brings."""

from __future__ import annotations

import nbformat

from nanobot_core import ToolInputError

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
