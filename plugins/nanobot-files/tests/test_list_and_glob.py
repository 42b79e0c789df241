"""list_dir and glob: names, order, and what is left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from nanobot_core import ToolDenied, ToolInputError
from nanobot_files.grep import GrepTool
from nanobot_files.listing import GlobTool, ListDirTool
from nanobot_files.pattern import PathPattern

if TYPE_CHECKING:
    from conftest import Bench, MakeBench

pytestmark = pytest.mark.anyio


async def test_folder_is_listed_sorted_with_marks_and_sizes(bench: Bench) -> None:
    bench.put("b.txt", "12345")
    bench.put("a/c.txt")
    (bench.workspace / "link").symlink_to("b.txt")
    os.mkfifo(bench.workspace / "pipe")

    assert await bench.text(ListDirTool) == (
        "a/\nb.txt  5\nlink -> b.txt\npipe  (not a regular file)"
    )


async def test_recursive_listing_names_noise_without_entering_it(bench: Bench) -> None:
    bench.put("a/b.txt", "1")
    bench.put("node_modules/x/y.js")
    bench.put("ignored.log")
    bench.put(".gitignore", "*.log")

    assert await bench.text(ListDirTool, recursive=True) == (
        ".gitignore  5\na/\na/b.txt  1\nignored.log  0\nnode_modules/ (not entered)"
    )


async def test_long_listing_is_cut_with_a_count(bench: Bench) -> None:
    for n in range(10):
        bench.put(f"{n}.txt")

    text = await bench.text(ListDirTool, max_entries=3)

    assert text.startswith("0.txt  0\n1.txt  0\n2.txt  0\n\n[3 of 10 shown;")


async def test_listing_is_cut_at_its_characters(make_bench: MakeBench) -> None:
    bench = make_bench(max_page_chars=1_000)
    for n in range(100):
        bench.put(f"{n:03}{'x' * 50}.txt")

    assert "[16 of 100 shown;" in await bench.text(ListDirTool)


async def test_empty_folder_is_reported_as_such(bench: Bench) -> None:
    assert await bench.text(ListDirTool) == ". is empty."


async def test_missing_folder_is_reported(bench: Bench) -> None:
    with pytest.raises(ToolInputError, match="no such file or folder"):
        await bench.text(ListDirTool, path="gone")


async def test_name_that_is_not_a_unicode_is_shown_replaced(bench: Bench) -> None:
    Path(os.fsdecode(os.fsencode(bench.workspace) + b"/a\xff")).write_bytes(b"")

    assert await bench.text(ListDirTool) == "a?  0"


async def test_links_are_not_followed_out_of_the_workspace(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench(restricted=True)
    (tmp_path / "secret.txt").write_text("")
    (bench.workspace / "out").symlink_to(tmp_path)

    assert "secret" not in await bench.text(ListDirTool, recursive=True)
    assert "secret" not in await bench.text(GlobTool, pattern="**")
    with pytest.raises(ToolDenied):
        await bench.text(ListDirTool, path="out")


async def test_state_of_nanobot_is_not_searched(bench: Bench) -> None:
    bench.put(".nanobot/tool-results/s/1.txt")
    bench.put(".nanobot/journal.txt")

    bench.put("sessions/telegram_1.txt")

    assert "No file" in await bench.text(GlobTool, pattern="*.txt")
    assert "No match" in await bench.text(GrepTool, pattern="x*")
    with pytest.raises(ToolDenied):
        await bench.text(GlobTool, pattern="*.txt", path=".nanobot/tool-results")
    # The bench's owner approves.
    assert "1.txt" in await bench.text(GlobTool, pattern="*.txt", path="sessions")


async def test_newest_file_comes_first(bench: Bench) -> None:
    for age, name in enumerate(["new.py", "mid.py", "old.py"]):
        os.utime(bench.put(f"src/{name}"), (1_000 - age, 1_000 - age))

    text = await bench.text(GlobTool, pattern="**/*.py")

    assert text == "src/new.py\nsrc/mid.py\nsrc/old.py"


async def test_glob_result_is_cut_with_a_count(bench: Bench) -> None:
    for n in range(5):
        bench.put(f"{n}.py")

    assert "[2 of 5 shown;" in await bench.text(GlobTool, pattern="*.py", head_limit=2)


async def test_gitignore_counts_from_every_level(bench: Bench) -> None:
    bench.put(".git/HEAD")
    bench.put(".gitignore", "*.log\n/build/\n# comment\n")
    bench.put("sub/.gitignore", "!keep.log\nlocal.txt\n")
    for name in ("a.log", "build/x.txt", "sub/keep.log", "sub/b.log", "sub/local.txt", "sub/a.txt"):
        bench.put(name)

    everywhere = await bench.text(GlobTool, pattern="*.{log,txt}")
    below = await bench.text(GlobTool, pattern="*.{log,txt}", path="sub")

    assert set(everywhere.splitlines()) == {"sub/keep.log", "sub/a.txt"}
    assert set(below.splitlines()) == {"sub/keep.log", "sub/a.txt"}


async def test_hostile_gitignore_does_not_hold_up_a_search(bench: Bench) -> None:
    bench.put(".gitignore", "*a" * 30 + "b\n" + "**/a/" * 20 + "b\n")
    bench.put("a" * 200)

    assert "a" * 200 in await bench.text(GlobTool, pattern="*")


async def test_gitignore_that_is_not_a_file_is_passed_over(bench: Bench) -> None:
    bench.put(".gitignore/x.txt")

    assert await bench.text(GlobTool, pattern="*.txt") == ".gitignore/x.txt"


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("./*.py", "a/b/c.py", False),
        ("/c.py", "c.py", True),
        ("a/*.py", "a/c.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/*.py", "a/c.py", True),
        ("a/**/*.py", "a/b/b/c.py", True),
        ("a/**", "a/b/c.py", True),
        ("**", "c.py", True),
        ("**/b/**/c.*", "a/b/b/x/c.py", True),
        ("**/b/**/c.*", "a/x/c.py", False),
        ("**/**/c.py", "c.py", True),
        ("*.{js,ts{,x}}", "a.tsx", True),
        ("*.{js,ts{,x}}", "a.ts", True),
        ("*.{js,ts{,x}}", "a.py", False),
        ("[ab]?.txt", "a1.txt", True),
        ("[!ab]?.txt", "a1.txt", False),
        ("a", "a/b", False),
        ("a/b", "a", False),
    ],
)
async def test_pattern_fits_as_people_expect(pattern: str, path: str, fits: bool) -> None:
    assert PathPattern(pattern).matches(path.split("/")) is fits


@pytest.mark.parametrize("pattern", ["", "/", "/.", "./", "../*.py", "a" * 1_001, "{a,b}" * 10])
async def test_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(ToolInputError):
        PathPattern(pattern)


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_replacing_names_by_wildcards_still_fits(names: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(names) - 1))
    end = data.draw(st.integers(start, len(names) - 1))
    pattern = "/".join(["", *names[:start], "**", *names[end:-1], "*"])

    assert PathPattern(pattern).matches(names)
