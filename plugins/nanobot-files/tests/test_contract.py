"""The contract of tools, for each of the eight."""

# ruff: noqa: RUF012 - the suite declares these attributes, not as class variables

from __future__ import annotations

from pathlib import Path

from nanobot_core import Tool
from nanobot_core.testing import FakePluginContext, ToolContract
from nanobot_files.apply_patch import ApplyPatchTool
from nanobot_files.edit_file import EditFileTool
from nanobot_files.grep import GrepTool
from nanobot_files.listing import GlobTool, ListDirTool
from nanobot_files.notebook_edit import NotebookEditTool
from nanobot_files.read_file import ReadFileTool
from nanobot_files.write_file import WriteFileTool

NOTEBOOK = """{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "source": "1",
"outputs": [], "execution_count": null}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"""


class _Contract(ToolContract):
    tool_class: type[Tool]

    def make_tool(self, context: FakePluginContext) -> Tool:
        return self.tool_class(context)  # type: ignore[call-arg]  # each of the eight takes it

    def prepare(self, workspace: Path) -> None:
        (workspace / "a.txt").write_text("one\ntwo\n")
        (workspace / "b.txt").unlink(missing_ok=True)


class TestReadFile(_Contract):
    tool_class = ReadFileTool
    sample_arguments = {"path": "a.txt", "offset": "1", "limit": 10}


class TestWriteFile(_Contract):
    tool_class = WriteFileTool
    sample_arguments = {"path": "b.txt", "content": "text"}


class TestEditFile(_Contract):
    tool_class = EditFileTool
    sample_arguments = {"path": "a.txt", "old_text": "one", "new_text": "1", "replace_all": "true"}


class TestListDir(_Contract):
    tool_class = ListDirTool
    sample_arguments = {"path": ".", "recursive": "true", "max_entries": "5"}


class TestGlob(_Contract):
    tool_class = GlobTool
    sample_arguments = {"pattern": "*.txt", "path": ".", "head_limit": 5}


class TestGrep(_Contract):
    tool_class = GrepTool
    sample_arguments = {
        "pattern": "two",
        "path": ".",
        "glob": "*.txt",
        "type": "txt",
        "output_mode": "content",
        "context": 1,
    }


class TestApplyPatch(_Contract):
    tool_class = ApplyPatchTool
    sample_arguments = {
        "patch": "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+1\n*** End Patch"
    }


class TestNotebookEdit(_Contract):
    tool_class = NotebookEditTool
    sample_arguments = {"path": "n.ipynb", "cell_index": 0, "new_source": "2", "cell_type": "code"}

    def prepare(self, workspace: Path) -> None:
        (workspace / "n.ipynb").write_text(NOTEBOOK)
