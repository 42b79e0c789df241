"""notebook_edit: cells change and the notebook stays valid."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import nbformat
import pytest

from nanobot_core import JsonValue, ToolFailed, ToolInputError
from nanobot_files.notebook_edit import NotebookEditTool

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.anyio


def _notebook(minor: int = 5, **changes: JsonValue) -> str:
    cells: list[dict[str, JsonValue]] = [
        {
            "cell_type": "code",
            "metadata": {"tags": ["kept"]},
            "source": ["x = 1\n", "x"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1"]},
            ],
            "execution_count": 4,
        },
        {"cell_type": "markdown", "metadata": {}, "source": "# Title", "attachments": {}},
    ]
    if minor >= 5:
        for cell, name in zip(cells, ("first", "second"), strict=True):
            cell["id"] = name
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": minor, **changes}
    return json.dumps(whole)


def _read(bench: Bench) -> list[dict[str, JsonValue]]:
    text = (bench.workspace / "n.ipynb").read_text()
    nbformat.validate(nbformat.reads(text, as_version=nbformat.NO_CONVERT))  # type: ignore[no-untyped-call]  # nbformat has no annotations here
    cells: list[dict[str, JsonValue]] = json.loads(text)["cells"]
    return cells


async def test_replaced_code_cell_loses_its_outputs_and_keeps_the_rest(bench: Bench) -> None:
    bench.put("n.ipynb", _notebook())

    text = await bench.text(NotebookEditTool, path="n.ipynb", cell_index=0, new_source="y\nz")

    cell = _read(bench)[0]
    assert text == "Replaced cell 0 of n.ipynb; it has 2 cells now"
    assert cell == {
        "cell_type": "code",
        "execution_count": None,
        "id": "first",
        "metadata": {"tags": ["kept"]},
        "outputs": [],
        "source": ["y\n", "z"],
    }


async def test_cell_of_an_older_format_gets_no_id(bench: Bench) -> None:
    bench.put("n.ipynb", _notebook(4))

    await bench.text(NotebookEditTool, path="n.ipynb", cell_index=0, new_source="y")

    assert "id" not in _read(bench)[0]


async def test_cell_can_change_its_kind(bench: Bench) -> None:
    bench.put("n.ipynb", _notebook())

    await bench.text(
        NotebookEditTool, path="n.ipynb", cell_index=0, new_source="text", cell_type="markdown"
    )

    assert _read(bench)[0]["cell_type"] == "markdown"


async def test_markdown_cell_keeps_its_attachments(bench: Bench) -> None:
    bench.put("n.ipynb", _notebook())

    await bench.text(NotebookEditTool, path="n.ipynb", cell_index=1, new_source="# New")

    assert _read(bench)[1]["attachments"] == {}


@pytest.mark.parametrize("minor", [4, 5])
@pytest.mark.parametrize("index", [0, 1, 2])
async def test_cell_is_inserted_in_its_place(bench: Bench, index: int, minor: int) -> None:
    bench.put("n.ipynb", _notebook(minor))

    await bench.text(
        NotebookEditTool, path="n.ipynb", cell_index=index, new_source="new", edit_mode="insert"
    )

    cells = _read(bench)
    assert len(cells) == 3
    assert cells[index]["source"] == ["new"]
    assert ("id" in cells[index]) is (minor == 5)


async def test_cell_is_deleted(bench: Bench) -> None:
    bench.put("n.ipynb", _notebook() + "\n")

    await bench.text(NotebookEditTool, path="n.ipynb", cell_index=0, edit_mode="delete")

    assert [cell["id"] for cell in _read(bench)] == ["second"]
    assert (bench.workspace / "n.ipynb").read_text().endswith("}\n")


@pytest.mark.parametrize(("mode", "index"), [("replace", 2), ("delete", 2), ("insert", 3)])
async def test_number_without_a_cell_is_reported(bench: Bench, mode: str, index: int) -> None:
    bench.put("n.ipynb", _notebook())

    with pytest.raises(ToolInputError, match="has 2 cells"):
        await bench.text(NotebookEditTool, path="n.ipynb", cell_index=index, edit_mode=mode)


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        "{}",
        _notebook(cells="none"),
        _notebook(nbformat=3),
        '{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []}',
        '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "odd"}]}',
    ],
)
async def test_file_that_is_not_a_notebook_is_left_alone(bench: Bench, content: str) -> None:
    path = bench.put("n.ipynb", content)

    with pytest.raises(ToolInputError, match="notebook"):
        await bench.text(NotebookEditTool, path="n.ipynb", cell_index=0, new_source="x")

    assert path.read_text() == content


async def test_insert_creates_a_notebook(bench: Bench) -> None:
    async def edit(mode: str) -> str:
        return await bench.text(
            NotebookEditTool, path="n.ipynb", cell_index=0, new_source="x = 1", edit_mode=mode
        )

    for mode in ("replace", "delete"):
        with pytest.raises(ToolInputError, match=r"n\.ipynb"):
            await edit(mode)
    shown = await edit("insert")

    assert "new notebook" in shown
    assert [(cell["cell_type"], cell["source"]) for cell in _read(bench)] == [("code", ["x = 1"])]


async def test_other_files_are_sent_to_edit_file(bench: Bench) -> None:
    with pytest.raises(ToolInputError, match="use edit_file"):
        await bench.text(NotebookEditTool, path="a.py", cell_index=0, new_source="x")


async def test_without_its_library_it_names_the_extra(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "nanobot_files.notebook", raising=False)
    monkeypatch.setitem(sys.modules, "nbformat", None)
    bench.put("n.ipynb", _notebook())
    with pytest.raises(ToolFailed, match=r"nanobot-files\[notebooks\]"):
        await bench.text(NotebookEditTool, path="n.ipynb", cell_index=0, new_source="y")
