"""write_file and edit_file: what changes, and what stays as it was."""

from __future__ import annotations

import asyncio
import codecs
import stat
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from nanobot_core import ToolDenied, ToolInputError
from nanobot_files.edit_file import EditFileTool
from nanobot_files.passages import Span, find_spans
from nanobot_files.read_file import ReadFileTool
from nanobot_files.write_file import WriteFileTool

if TYPE_CHECKING:
    from conftest import Bench, MakeBench

pytestmark = pytest.mark.anyio


async def test_new_file_is_reported_with_its_size(bench: Bench) -> None:
    text = await bench.text(WriteFileTool, path="new/folder/a.txt", content="grün\nzwei")

    assert text == "Created new/folder/a.txt: 10 bytes, 2 lines"
    assert (bench.workspace / "new/folder/a.txt").read_text() == "grün\nzwei"


@pytest.mark.parametrize(("content", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2)])
async def test_lines_are_counted_as_editors_do(bench: Bench, content: str, lines: int) -> None:
    assert f", {lines} lines" in await bench.text(WriteFileTool, path="a.txt", content=content)


async def test_replaced_file_keeps_encoding_line_endings_and_mode(bench: Bench) -> None:
    path = bench.put("a.sh", codecs.BOM_UTF16_LE + "eins\r\nzwei\r\n".encode("utf-16-le"))
    path.chmod(0o750)

    text = await bench.text(WriteFileTool, path="a.sh", content="drei\nvier\n")

    assert text.startswith("Replaced")
    assert path.read_bytes() == codecs.BOM_UTF16_LE + "drei\r\nvier\r\n".encode("utf-16-le")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


async def test_replaced_file_becomes_utf8_where_its_encoding_lacks_a_character(
    bench: Bench,
) -> None:
    path = bench.put("a.txt", "grün".encode("cp1252"))

    assert "is UTF-8 now" in await bench.text(WriteFileTool, path="a.txt", content="日本")
    assert path.read_text() == "日本"


async def test_file_too_large_to_edit_can_still_be_replaced(make_bench: MakeBench) -> None:
    bench = make_bench(max_edit_bytes=1_000)
    path = bench.put("a.txt", "x" * 2_000)

    await bench.text(WriteFileTool, path="a.txt", content="new")

    assert path.read_text() == "new"


async def test_half_a_character_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolInputError, match="lone surrogate"):
        await bench.text(WriteFileTool, path="a.txt", content="\udc80")


@pytest.mark.parametrize("path", ["sessions/a.jsonl", ".nanobot/x", "memory/history.jsonl"])
async def test_own_records_are_not_written(bench: Bench, path: str) -> None:
    with pytest.raises(ToolDenied):
        await bench.text(WriteFileTool, path=path, content="")


async def test_edit_replaces_the_one_occurrence(bench: Bench) -> None:
    path = bench.put("a.py", "x = 1\ny = 2\n")

    text = await bench.text(EditFileTool, path="a.py", old_text="y = 2", new_text="y = 3")

    assert text == "Edited a.py: 1 replacement(s), at line 2"
    assert path.read_text() == "x = 1\ny = 3\n"


@pytest.mark.parametrize(
    ("content", "old"),
    [
        ("a  \nb\t\nc\n", "a\nb\nc"),
        ("a\r\nb\r\nc\r\n", "a\nb\nc"),
        ("a\nb\nc\n", "a  \r\nb\r\nc"),
        ("say \u201cit\u2019s\u201d\n", 'say "it\'s"'),
        ('say "it\'s"\n', "say \u201cit\u2019s\u201d"),
        ("a\n   \nb\n", "a\n\nb"),
        ("ab\na\n", "a  "),
    ],
)
async def test_small_differences_are_forgiven(bench: Bench, content: str, old: str) -> None:
    path = bench.put("a.txt", content)

    await bench.text(EditFileTool, path="a.txt", old_text=old, new_text="NEW")

    assert path.read_bytes().decode().count("NEW") == 1


async def test_edit_keeps_bom_line_endings_and_stray_bytes(bench: Bench) -> None:
    path = bench.put("a.txt", codecs.BOM_UTF8 + "äöü\r\nzwei\r\n".encode() + b"\xff\r\n")

    await bench.text(EditFileTool, path="a.txt", old_text="zwei", new_text="2\n3")

    assert path.read_bytes() == codecs.BOM_UTF8 + "äöü\r\n2\r\n3\r\n".encode() + b"\xff\r\n"


async def test_edit_reports_a_character_that_the_encoding_lacks(bench: Bench) -> None:
    bench.put("a.txt", "grün".encode("cp1252"))

    with pytest.raises(ToolInputError, match=r"cp1252.*\\u65e5|charmap.*\\u65e5"):
        await bench.text(EditFileTool, path="a.txt", old_text="gr", new_text="日")


async def test_long_run_of_white_space_does_not_hold_up_an_edit(bench: Bench) -> None:
    bench.put("a.txt", " " * 1_000_000 + "x\n \nend\n")

    await bench.text(EditFileTool, path="a.txt", old_text="\n\nend", new_text="")

    assert (bench.workspace / "a.txt").stat().st_size == 1_000_002


@pytest.mark.parametrize("data", [b"a\0b", codecs.BOM_UTF16_LE + b"a"])
async def test_binary_or_damaged_file_is_not_edited(bench: Bench, data: bytes) -> None:
    bench.put("a.bin", data)

    with pytest.raises(ToolInputError, match="cannot be edited as text"):
        await bench.text(EditFileTool, path="a.bin", old_text="a", new_text="b")


async def test_file_over_the_limit_is_not_edited(make_bench: MakeBench) -> None:
    bench = make_bench(max_edit_bytes=1_000)
    bench.put("a.txt", "x" * 1_001)

    with pytest.raises(ToolInputError, match="up to 1,000"):
        await bench.text(EditFileTool, path="a.txt", old_text="x", new_text="y")


async def test_several_matches_are_counted_and_placed(bench: Bench) -> None:
    path = bench.put("a.txt", "x\n" * 12)

    with pytest.raises(ToolInputError, match=r"occurs 12 times .* 1, 2, .*10 and 2 more"):
        await bench.text(EditFileTool, path="a.txt", old_text="x", new_text="y")
    await bench.text(EditFileTool, path="a.txt", old_text="x", new_text="y", replace_all=True)

    assert path.read_text() == "y\n" * 12


async def test_missing_passage_brings_the_most_similar_one(bench: Bench) -> None:
    bench.put("a.py", "import os\n\ndef total(items):\n    return sum(items)\n")
    old = "def total(items):\n    return add(items)\n"

    with pytest.raises(ToolInputError) as caught:
        await bench.text(EditFileTool, path="a.py", old_text=old, new_text="x")

    text = str(caught.value)
    assert "begins at line 3" in text
    assert "-    return add(items)\n+    return sum(items)" in text


async def test_single_misspelt_line_is_found_by_its_likeness(bench: Bench) -> None:
    bench.put("a.py", "one\ndef calculate_total(items):\n")

    with pytest.raises(ToolInputError, match="begins at line 2"):
        await bench.text(
            EditFileTool, path="a.py", old_text="def calculate_totl(items):", new_text="x"
        )


@pytest.mark.parametrize("old", ["zzzz", "\n\n\n", "   "])
async def test_nothing_similar_is_reported(bench: Bench, old: str) -> None:
    bench.put("a.py", "one\ntwo\n")

    with pytest.raises(ToolInputError, match="Nothing similar"):
        await bench.text(EditFileTool, path="a.py", old_text=old, new_text="x")


async def test_edit_that_changes_nothing_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolInputError, match="the same"):
        await bench.text(EditFileTool, path="a.py", old_text="x", new_text="x")


async def test_change_since_the_last_reading_is_reported_to_that_session_only(bench: Bench) -> None:
    path = bench.put("a.txt", "one two three")
    await bench.text(ReadFileTool, "cli:a", path="a.txt")
    path.write_text("one two three four")

    other = await bench.text(EditFileTool, "cli:b", path="a.txt", old_text="one", new_text="1")
    mine = await bench.text(EditFileTool, "cli:a", path="a.txt", old_text="two", new_text="2")
    again = await bench.text(EditFileTool, "cli:a", path="a.txt", old_text="three", new_text="3")

    assert "Warning" not in other
    assert "had changed since you last read it" in mine
    assert "Warning" not in again


async def test_overwriting_what_changed_is_reported(bench: Bench) -> None:
    path = bench.put("a.txt", "one")
    await bench.text(ReadFileTool, path="a.txt")
    path.write_text("other")

    assert "Warning" in await bench.text(WriteFileTool, path="a.txt", content="mine")


async def test_edits_of_many_sessions_side_by_side_are_all_kept(bench: Bench) -> None:
    path = bench.put("a.txt", "".join(f"<{n}>" for n in range(20)))

    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(
                bench.text(
                    EditFileTool, f"cli:{n}", path="a.txt", old_text=f"<{n}>", new_text=f"[{n}]"
                )
            )

    assert path.read_text() == "".join(f"[{n}]" for n in range(20))


@given(
    st.text("ab \n\r\t\u2019'", max_size=40), st.text("ab \n\r\t\u2019'", min_size=1, max_size=8)
)
async def test_spans_lie_in_the_text_in_order_and_exact_ones_win(text: str, wanted: str) -> None:
    spans = find_spans(text, wanted)

    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert all(former.end <= later.start for former, later in pairwise(spans))
    if wanted in text:
        assert {text[span.start : span.end] for span in spans} == {wanted}


@given(st.text(max_size=60), st.text(max_size=60), st.text(min_size=1, max_size=20))
async def test_a_passage_that_is_there_is_found(before: str, after: str, wanted: str) -> None:
    spans = find_spans(before + wanted + after, wanted)

    assert spans
    assert all(isinstance(span, Span) for span in spans)
