"""Every file tool, led astray in every way of the corpus: nothing outside is seen or changed."""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nanobot_core import JsonObject, Tool, ToolError
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_files.apply_patch import ApplyPatchTool
from nanobot_files.edit_file import EditFileTool
from nanobot_files.grep import GrepTool
from nanobot_files.listing import GlobTool, ListDirTool
from nanobot_files.notebook_edit import NotebookEditTool
from nanobot_files.read_file import ReadFileTool
from nanobot_files.write_file import WriteFileTool
from tests.security.corpora import paths

pytestmark = pytest.mark.anyio
CANARY = "canary-of-the-outside"
CONFIG = "canary-of-the-configuration"


@dataclass(frozen=True)
class Way:
    """One way to call a tool with a path."""

    make: Callable[[FakePluginContext], Tool]
    arguments: Callable[[str], JsonObject]
    writes: bool = False


def _patch(*lines: str) -> JsonObject:
    return {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


WAYS = {
    "read_file": Way(ReadFileTool, lambda path: {"path": path}),
    "list_dir": Way(ListDirTool, lambda path: {"path": path}),
    "list_dir recursive": Way(ListDirTool, lambda path: {"path": path, "recursive": True}),
    "glob": Way(GlobTool, lambda path: {"path": path, "pattern": "**/*"}),
    "glob pattern": Way(GlobTool, lambda path: {"pattern": path}),
    "grep": Way(
        GrepTool, lambda path: {"path": path, "pattern": "canary", "output_mode": "content"}
    ),
    "grep glob": Way(
        GrepTool, lambda path: {"glob": path, "pattern": "canary", "output_mode": "content"}
    ),
    "write_file": Way(WriteFileTool, lambda path: {"path": path, "content": "x"}, writes=True),
    "edit_file": Way(
        EditFileTool,
        lambda path: {"path": path, "old_text": "canary", "new_text": "x"},
        writes=True,
    ),
    "notebook_edit": Way(
        NotebookEditTool,
        lambda path: {"path": path, "cell_index": 0, "new_source": "x"},
        writes=True,
    ),
    "apply_patch add": Way(
        ApplyPatchTool, lambda path: _patch(f"*** Add File: {path}", "+x"), writes=True
    ),
    "apply_patch update": Way(
        ApplyPatchTool,
        lambda path: _patch(f"*** Update File: {path}", "@@", f"-{CANARY}", "+x"),
        writes=True,
    ),
    "apply_patch delete": Way(
        ApplyPatchTool, lambda path: _patch(f"*** Delete File: {path}"), writes=True
    ),
    "apply_patch move": Way(
        ApplyPatchTool,
        lambda path: _patch("*** Update File: a.txt", f"*** Move to: {path}", "@@", "-in", "+x"),
        writes=True,
    ),
}


class World:
    """A workspace full of traps, and what lies outside of it."""

    def __init__(self, tmp_path: Path, *, restricted: bool) -> None:
        self.root = tmp_path.resolve()
        self.outside = self.root / "outside"
        (self.outside / "deep").mkdir(parents=True)
        (self.outside / "secret.txt").write_text(CANARY)
        self.context = FakePluginContext(
            tmp_path,
            plugin_id="files",
            environment={"PATH": os.defpath},
            restrict_to_workspace=restricted,
        )
        self.workspace = self.context.workspace
        self.files = self.context.files
        if not restricted:  # and the owner says yes to everything
            self.files = self.files.granting([Path("/")])
        self.config = self.context.protected_paths[0]
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIG)
        self._fill()

    def _fill(self) -> None:
        (self.workspace / "sub").mkdir()
        (self.workspace / "a.txt").write_text("in\n")
        for folder in ("sessions", "memory/.git", ".nanobot"):
            (self.workspace / folder).mkdir(parents=True)
        (self.workspace / "sessions" / "a.jsonl").write_text("record\n")
        links: dict[str, Path | str] = {
            "link": self.outside,
            "link-to-file": self.outside / "secret.txt",
            "link-to-missing": self.outside / "missing",
            "chain": "link",
            "relative": "../outside",
            "sub/up": "..",
            "loop": "loop",
            "to-root": "/",
            "to-zero": "/dev/zero",
            "to-proc": "/proc",
            "to-config": self.config,
            "to-records": "sessions",
        }
        for name, target in links.items():
            (self.workspace / name).symlink_to(target)

    def path(self, text: str) -> str:
        return text.replace("{outside}", str(self.outside)).replace(
            "{workspace}", str(self.workspace)
        )

    async def call(self, way: Way, path: str) -> str:
        """Return what the model reads, errors included."""
        try:
            arguments = way.arguments(path)
            output = await way.make(self.context).execute(
                call_in(self.workspace, self.files), arguments
            )
        except ToolError as error:
            return str(error)
        return output_text(output)

    def outside_state(self) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for folder in (self.outside, self.config.parent):
            for path in sorted(folder.rglob("*")):
                found[str(path)] = path.read_bytes() if path.is_file() else None
        found["beside"] = "\n".join(sorted(path.name for path in self.root.iterdir())).encode()
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, restricted=True)


def test_number_of_cases(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {name: len(group) for name, group in paths.GROUPS.items()}
    total = sum(numbers.values())
    with capsys.disabled():
        sys.stdout.write(f"\npath escapes: {total} paths, {total * len(WAYS)} cases\n")

    assert total > 300
    assert [name for name, group in paths.GROUPS.items() if len(set(group)) < len(group)] == []


@pytest.mark.parametrize("group", paths.GROUPS)
@pytest.mark.parametrize("name", WAYS)
async def test_no_path_leads_a_tool_out_of_the_workspace(
    world: World, name: str, group: str
) -> None:
    before = world.outside_state()
    shown = []
    for text in paths.GROUPS[group]:
        said = await world.call(WAYS[name], world.path(text))
        if CANARY in said.replace(f"-{CANARY}", "") or CONFIG in said or "root:x:" in said:
            shown.append(text)

    assert shown == []
    assert world.outside_state() == before


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.writes])
async def test_own_records_are_written_by_no_tool(
    tmp_path: Path, name: str, restricted: bool
) -> None:
    world = World(tmp_path, restricted=restricted)

    for text in paths.OWN_RECORDS:
        await world.call(WAYS[name], text)

    assert (world.workspace / "sessions" / "a.jsonl").read_text() == "record\n"
    assert [path.name for path in (world.workspace / "memory").rglob("*")] == [".git"]
    assert list((world.workspace / ".nanobot").iterdir()) == []
    assert [path.name for path in (world.workspace / "sessions").iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("name", WAYS)
async def test_without_restriction_devices_and_configuration_stay_closed(
    tmp_path: Path, name: str
) -> None:
    world = World(tmp_path, restricted=False)
    (world.workspace / "hard").hardlink_to(world.config)
    before = world.config.read_bytes()

    for text in (*paths.PSEUDO, "to-zero", "to-config", str(world.config), "hard"):
        said = await world.call(WAYS[name], world.path(text))
        assert CONFIG not in said
        assert "PATH=" not in said

    assert world.config.read_bytes() == before


@pytest.mark.parametrize("name", WAYS)
async def test_pipe_socket_and_sparse_file_hold_no_tool(world: World, name: str) -> None:
    os.mkfifo(world.workspace / "pipe")
    with (world.workspace / "sparse").open("wb") as file:
        file.truncate(2_000_000_000)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for path in ("pipe", "sparse"):
        await world.call(WAYS[name], path)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


@contextmanager
def _repeating(swap: Callable[[], None]) -> Iterator[None]:
    """Call `swap` over and over in a thread, as another process could."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            swap()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if not way.writes])
async def test_no_tool_reads_through_a_folder_that_is_swapped_for_a_link(
    world: World, name: str
) -> None:
    folder, real, door = (world.workspace / name for name in ("swapped", "real", "door"))
    folder.mkdir()
    (folder / "secret.txt").write_text("inside")
    door.symlink_to(world.outside)

    def swap() -> None:
        folder.rename(real)
        door.rename(folder)
        folder.rename(door)
        real.rename(folder)

    with _repeating(swap):
        for _ in range(30 if "grep" in name else 150):
            said = await world.call(
                WAYS[name], "swapped/secret.txt" if name == "read_file" else "swapped"
            )
            assert CANARY not in said
            assert "deep" not in said


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.writes])
async def test_no_tool_writes_through_a_file_that_is_swapped_for_a_link(
    world: World, name: str
) -> None:
    before = world.outside_state()
    target, door, plain = (world.workspace / name for name in ("swapped", "door", "plain"))
    target.write_text("inside")

    def swap() -> None:
        door.symlink_to(world.outside / "secret.txt")
        door.replace(target)
        plain.write_text(CANARY)
        plain.replace(target)

    with _repeating(swap):
        for _ in range(150):
            await world.call(WAYS[name], "swapped")

    assert world.outside_state() == before
