"""What the plugin gives, and what its tools share."""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import LazyTool, ToolDenied
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_files import plugin
from nanobot_files.edit_file import EditFileTool
from nanobot_files.files import Files, FileVersions, Version
from nanobot_files.grep import GrepTool
from nanobot_files.read_file import ReadFileTool
from nanobot_files.settings import FilesSettings

if TYPE_CHECKING:
    from conftest import MakeBench


def test_every_tool_is_found_under_its_name(tmp_path: Path) -> None:
    for lazy in plugin.contribute_tools(FakePluginContext(tmp_path)):
        assert isinstance(lazy, LazyTool)
        module, _, name = lazy.factory.partition(":")

        assert getattr(importlib.import_module(module), name).name == lazy.name


def test_settings_are_found_and_read_camel_case() -> None:
    (section,) = plugin.contribute_settings()
    module, _, name = section.model.partition(":")

    assert getattr(importlib.import_module(module), name) is FilesSettings
    settings = FilesSettings.model_validate({"extraReadRoots": ["/srv"]})
    assert settings.extra_read_roots == (Path("/srv"),)


def test_the_description_of_grep_says_how_to_begin() -> None:
    assert "count or list the files first" in GrepTool.description
    assert "use glob" in GrepTool.description


@pytest.mark.promise(34)
def test_importing_the_entry_module_loads_neither_tools_nor_libraries() -> None:
    program = (
        "import sys, json; import nanobot_files.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_files', 'pydantic', 'pathspec', 'nbformat')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout

    assert sorted(json.loads(output)) == ["nanobot_files", "nanobot_files.plugin"]


@pytest.mark.promise(45)
def test_two_applications_share_nothing(tmp_path: Path) -> None:
    first, second = FakePluginContext(tmp_path), FakePluginContext(tmp_path)

    assert first.shared(Files) is first.shared(Files)
    assert first.shared(Files) is not second.shared(Files)


def test_what_an_application_shared_goes_with_it(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path)
    shared = weakref.ref(context.shared(Files))

    del context
    gc.collect()

    assert shared() is None


def test_oldest_versions_are_forgotten() -> None:
    versions = FileVersions(limit=2)
    for name in ("a", "b", "c"):
        versions.remember("s", Path(name), Version(1, 1, 1))

    assert not versions.is_stale("s", Path("a"), Version(2, 2, 2))
    assert versions.is_stale("s", Path("c"), Version(2, 2, 2))


@pytest.mark.anyio
async def test_restriction_of_the_core_and_own_roots_count(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("content")

    assert "content" in await make_bench().text(ReadFileTool, path=str(outside))
    with pytest.raises(ToolDenied):
        await make_bench(restricted=True).text(ReadFileTool, path=str(outside))
    allowed = make_bench(restricted=True, extraReadRoots=[str(tmp_path)])
    assert "content" in await allowed.text(ReadFileTool, path=str(outside))
    with pytest.raises(ToolDenied):
        await allowed.text(EditFileTool, path=str(outside), old_text="content", new_text="x")


def test_configuration_is_out_of_reach(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path)
    guard = context.shared(Files).guard(call_in(context.workspace, context.files))

    with pytest.raises(ToolDenied, match="nanobot itself"):
        guard.resolve_read(str(context.protected_paths[0]))
