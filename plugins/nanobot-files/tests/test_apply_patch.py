"""apply_patch: the format, where hunks land, and all or nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from nanobot_core import PathGuard, ToolDenied, ToolError, ToolFailed, ToolInputError
from nanobot_files.apply_patch import ApplyPatchTool
from nanobot_files.patch import Hunk, UpdateFile, apply_hunks, parse_patch

if TYPE_CHECKING:
    from conftest import Bench, MakeBench

pytestmark = pytest.mark.anyio


def _patch(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch\n"


async def test_files_are_added_changed_moved_and_deleted_in_one_call(bench: Bench) -> None:
    bench.put("change.py", "a\nb\nc\n")
    bench.put("gone.py", "x")
    bench.put("old.py", "def f():\n    pass\n").chmod(0o755)
    patch = _patch(
        "*** Add File: new/n.txt\n+one\n+two\n"
        "*** Update File: change.py\n@@\n a\n-b\n+B\n c\n"
        "*** Delete File: gone.py\n"
        "*** Update File: old.py\n*** Move to: moved/new.py\n@@ def f():\n-    pass\n+    return 1"
    )

    text = await bench.text(ApplyPatchTool, patch=patch)

    assert text == (
        "Added new/n.txt\nUpdated change.py\nDeleted gone.py\nMoved old.py to moved/new.py"
    )
    found = {
        str(path.relative_to(bench.workspace)): path.read_text()
        for path in bench.workspace.rglob("*.*")
    }
    assert found == {
        "new/n.txt": "one\ntwo\n",
        "change.py": "a\nB\nc\n",
        "moved/new.py": "def f():\n    return 1\n",
    }
    assert stat.S_IMODE((bench.workspace / "moved/new.py").stat().st_mode) == 0o755


async def test_move_without_a_change_keeps_the_content(bench: Bench) -> None:
    bench.put("a.bin.txt", "text")

    await bench.text(ApplyPatchTool, patch=_patch("*** Update File: a.bin.txt\n*** Move to: b.txt"))

    assert (bench.workspace / "b.txt").read_text() == "text"


async def test_windows_line_endings_and_encoding_are_kept(bench: Bench) -> None:
    path = bench.put("a.txt", "grün\r\nb\r\n".encode("cp1252"))

    await bench.text(ApplyPatchTool, patch=_patch("*** Update File: a.txt\n@@\n-b\n+ö"))

    assert path.read_bytes() == "grün\r\nö\r\n".encode("cp1252")


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ("*** Update File: b.txt\n@@\n-missing\n+x", "fits nowhere"),
        ("*** Update File: b.txt\n@@ no such anchor\n+x", "fits nowhere"),
        ("*** Update File: gone.txt\n@@\n-a\n+x", "no such file"),
        ("*** Delete File: gone.txt", "no such file"),
        ("*** Add File: b.txt\n+x", "exists already"),
        ("*** Update File: b.txt\n*** Move to: a.txt", "exists already"),
        ("*** Update File: a.txt\n@@\n-a\n+x", "occurs twice"),
        ("*** Update File: b.txt\nodd", "' ', '\\+' or '-'"),
        ("*** Update File: b.txt\n@@", "lines of a hunk"),
        ("*** Update File: b.txt", "a hunk for"),
        ("*** Add File: c.txt\nodd", "begins with '\\+'"),
        ("odd", "expected"),
    ],
)
async def test_nothing_changes_when_one_change_cannot_be_made(
    bench: Bench, second: str, reason: str
) -> None:
    bench.put("a.txt", "a\n")
    bench.put("b.txt", "b\n")

    with pytest.raises(ToolInputError, match=reason):
        await bench.text(
            ApplyPatchTool, patch=_patch(f"*** Update File: a.txt\n@@\n-a\n+A\n{second}")
        )

    assert (bench.workspace / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("patch", ["text", "*** Begin Patch\n*** End Patch", "*** Begin Patch\nx"])
async def test_text_that_is_not_a_patch_is_refused(bench: Bench, patch: str) -> None:
    with pytest.raises(ToolInputError):
        await bench.text(ApplyPatchTool, patch=patch)


async def test_path_that_may_not_be_written_is_refused(make_bench: MakeBench) -> None:
    bench = make_bench(restricted=True)
    for path in ("../x", "/etc/x", "sessions/x"):
        with pytest.raises(ToolDenied):
            await bench.text(ApplyPatchTool, patch=_patch(f"*** Add File: {path}\n+x"))


async def test_files_already_written_are_restored_when_a_later_one_fails(bench: Bench) -> None:
    bench.put("a.txt", "a\n").chmod(0o640)
    bench.put("d.txt", "d\n")
    bench.put("file", "")
    patch = _patch(
        "*** Update File: a.txt\n@@\n-a\n+A\n"
        "*** Add File: new.txt\n+new\n"
        "*** Delete File: d.txt\n"
        "*** Add File: file/below.txt\n+x"
    )

    with pytest.raises(ToolFailed, match="nothing was changed"):
        await bench.text(ApplyPatchTool, patch=patch)

    assert (bench.workspace / "a.txt").read_text() == "a\n"
    assert stat.S_IMODE((bench.workspace / "a.txt").stat().st_mode) == 0o640
    assert (bench.workspace / "d.txt").read_text() == "d\n"
    assert not (bench.workspace / "new.txt").exists()


async def test_file_that_cannot_be_restored_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put("a.txt", "a\n")
    bench.put("file", "")
    write = PathGuard.write_atomic

    def write_once(guard: PathGuard, path: Path, data: bytes, *, mode: int | None = None) -> None:
        if data == b"a\n":
            raise ToolFailed("the disk is full")
        write(guard, path, data, mode=mode)

    monkeypatch.setattr(PathGuard, "write_atomic", write_once)
    patch = _patch("*** Update File: a.txt\n@@\n-a\n+A\n*** Add File: file/below.txt\n+x")

    with pytest.raises(ToolFailed, match=r"could not be restored: .*a\.txt"):
        await bench.text(ApplyPatchTool, patch=patch)


async def test_change_since_the_last_reading_is_reported(bench: Bench) -> None:
    from nanobot_files.read_file import ReadFileTool

    path = bench.put("a.txt", "a\n")
    await bench.text(ReadFileTool, path="a.txt")
    path.write_text("a\nb\n")

    text = await bench.text(ApplyPatchTool, patch=_patch("*** Update File: a.txt\n@@\n-a\n+A"))

    assert "Warning" in text


@pytest.mark.parametrize(
    ("text", "hunk", "expected"),
    [
        ("a\nb\n", Hunk((), ("b",), ("B", "C")), "a\nB\nC\n"),
        ("a\nb", Hunk((), ("b",), ("b", "c")), "a\nb\nc\n"),
        ("x\na\nx\n", Hunk(("a",), ("x",), ("y",)), "x\na\ny\n"),
        ("x\na\nx\n", Hunk((), ("x",), ("y",), at_end=True), "x\na\ny\n"),
        ("a  \nb\n", Hunk((), ("a", "b"), ("a", "B")), "a  \nB\n"),
        ("it\u2019s\n", Hunk((), ("it's",), ("its",)), "its\n"),
        ("a\n", Hunk((), (), ("b",)), "a\nb\n"),
        ("a\nc\n", Hunk(("a",), (), ("b",)), "a\nb\nc\n"),
        ("", Hunk((), (), ("b",)), "b\n"),
        ("a", Hunk((), (), ("b",)), "a\nb\n"),
    ],
)
async def test_hunk_lands_where_it_is_meant(text: str, hunk: Hunk, expected: str) -> None:
    assert apply_hunks(text, [hunk], "file", "\n") == expected


async def test_end_of_file_mark_and_blank_context_lines_are_read() -> None:
    (change,) = parse_patch(
        _patch("*** Update File: a\n@@ class A\n@@ def f\n x\n\n-y\n*** End of File")
    )

    assert isinstance(change, UpdateFile)
    assert change.hunks == (Hunk(("class A", "def f"), ("x", "", "y"), ("x", ""), at_end=True),)


@given(st.data())
def test_a_hunk_with_its_context_changes_just_its_lines(data: st.DataObject) -> None:
    lines = [f"line {n}" for n in range(data.draw(st.integers(1, 30)))]
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    new = data.draw(st.lists(st.sampled_from(["new", "", "line 0"]), max_size=4))
    body = "".join([*(f"-{line}\n" for line in lines[start:end]), *(f"+{line}\n" for line in new)])
    text = "".join(f"{line}\n" for line in lines)

    (change,) = parse_patch(_patch(f"*** Update File: f\n@@\n{body}".rstrip("\n") + "\n"))

    assert isinstance(change, UpdateFile)
    result = apply_hunks(text, change.hunks, "f", "\n")
    assert result == "".join(f"{line}\n" for line in [*lines[:start], *new, *lines[end:]])


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for each in (text, _patch(text), _patch(f"*** Update File: a\n{text}")):
        try:
            parse_patch(each)
        except ToolError:
            continue
