"""grep: the same answers with and without ripgrep, bounded in time and size."""

from __future__ import annotations

import asyncio
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import ToolDenied, ToolFailed, ToolInputError
from nanobot_files.grep import Excerpts, GrepTool
from nanobot_files.matcher import main
from nanobot_files.search import Query, search
from nanobot_files.worker import Watch

if TYPE_CHECKING:
    from conftest import Bench, MakeBench

pytestmark = pytest.mark.anyio
RIPGREP = shutil.which("rg")
ENGINES = [
    pytest.param(True, id="ripgrep", marks=pytest.mark.skipif(not RIPGREP, reason="no ripgrep")),
    pytest.param(False, id="python"),
]


@pytest.fixture(params=ENGINES)
def both(request: pytest.FixtureRequest, make_bench: MakeBench) -> Bench:
    bench = make_bench(ripgrep=request.param)
    bench.put("a.py", "import os\nprint(1)\nprint(2)\n")
    bench.put("sub/b.txt", "no\nPrint me\n")
    bench.put("c.bin", b"print\0")
    bench.put("u.txt", "print über\r\n".encode("utf-16"))
    bench.put("node_modules/d.py", "print")
    return bench


async def test_files_are_listed_in_order(both: Bench) -> None:
    assert await both.text(GrepTool, pattern="print") == "a.py\nu.txt"


async def test_case_can_be_disregarded(both: Bench) -> None:
    text = await both.text(GrepTool, pattern="PRINT", case_insensitive=True)

    assert text == "a.py\nsub/b.txt\nu.txt"


async def test_lines_are_counted(both: Bench) -> None:
    assert await both.text(GrepTool, pattern="print", output_mode="count") == "a.py:2\nu.txt:1"


async def test_content_comes_with_numbers_and_context(both: Bench) -> None:
    both.put("d.md", "x\n1\n2\n3\nx\n")

    plain = await both.text(GrepTool, pattern="print", output_mode="content")
    around = await both.text(GrepTool, pattern="x", path="d.md", output_mode="content", context=1)

    assert plain == "a.py:2:print(1)\na.py:3:print(2)\nu.txt:1:print über"
    assert around == "d.md:1:x\nd.md-2-1\n--\nd.md-4-3\nd.md:5:x"


async def test_anchors_mean_lines_also_with_windows_endings(both: Bench) -> None:
    both.put("w.txt", "one\r\ntwo\r\n")

    assert await both.text(GrepTool, pattern="^two$") == "w.txt"


async def test_glob_and_type_narrow_the_search(both: Bench) -> None:
    assert await both.text(GrepTool, pattern="print", glob="*.txt") == "u.txt"
    assert await both.text(GrepTool, pattern="print", type="py") == "a.py"
    assert "No match" in await both.text(GrepTool, pattern="print", type="py", glob="*.txt")


async def test_single_file_can_be_searched(both: Bench) -> None:
    assert await both.text(GrepTool, pattern="print", path="a.py") == "a.py"
    assert await both.text(GrepTool, pattern="print", path="node_modules") == "node_modules/d.py"


async def test_limit_is_reported(both: Bench) -> None:
    both.put("many.txt", "print\n" * 30)

    content = await both.text(
        GrepTool, pattern="print", path="many.txt", output_mode="content", head_limit=5
    )
    files = await both.text(GrepTool, pattern="print", head_limit=1)

    assert content.count("many.txt:") == 5
    assert "narrow the search" in content
    assert "[1 of 3 shown;" in files


async def test_long_line_is_cut(both: Bench) -> None:
    both.put("long.txt", "x" * 5_000 + "needle")

    text = await both.text(GrepTool, pattern="needle", output_mode="content")

    assert "[line of 5,006 characters]" in text
    assert len(text) < 700


async def test_names_that_look_like_options_or_lines_are_only_names(both: Bench) -> None:
    both.put("-e", "needle")
    both.put("a\nb", "needle")

    assert await both.text(GrepTool, pattern="needle") == "-e\na\nb"


async def test_pattern_that_begins_with_a_dash_is_a_pattern(both: Bench) -> None:
    both.put("x.txt", "--help\n")

    assert await both.text(GrepTool, pattern="--help") == "x.txt"


@pytest.mark.parametrize("pattern", ["(unclosed", "[", "*", "(" * 500, "a{2,1}"])
async def test_bad_pattern_is_reported_as_such(both: Bench, pattern: str) -> None:
    with pytest.raises(ToolInputError, match="not a regular expression"):
        await both.text(GrepTool, pattern=pattern)


@pytest.mark.parametrize("pattern", ["a\nb", "a\0b", "a" * 1_001])
async def test_pattern_that_fits_no_line_is_refused(bench: Bench, pattern: str) -> None:
    with pytest.raises(ToolInputError):
        await bench.text(GrepTool, pattern=pattern)


async def test_unknown_type_brings_the_known_ones(bench: Bench) -> None:
    with pytest.raises(ToolInputError, match=r"unknown file type 'cobol'.*\bpy\b"):
        await bench.text(GrepTool, pattern="x", type="cobol")


@pytest.mark.parametrize("pattern", [r"(print)\(1\)(?=$)", r"(p)rint.\d.|\1", "(?i)PRINT"])
async def test_what_ripgrep_lacks_is_searched_by_python(both: Bench, pattern: str) -> None:
    assert "a.py" in await both.text(GrepTool, pattern=pattern)


async def test_catastrophic_pattern_ends_at_the_limit(make_bench: MakeBench) -> None:
    bench = make_bench(ripgrep=False, search_timeout_s=0.5)
    bench.put("a.txt", "a" * 60 + "b")

    with pytest.raises(ToolFailed, match=r"did not finish within 0\.5 seconds"):
        await bench.text(GrepTool, pattern="(a|aa)+$")


async def test_cancelling_ends_the_engine(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench(ripgrep=False, search_timeout_s=60)
    fingerprint = f"(a|aa)+$|{tmp_path.name}-unfindable"
    bench.put("a.txt", "a" * 60 + "b")

    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.text(GrepTool, pattern=fingerprint))
        async with asyncio.timeout(5):
            while not _running(fingerprint):  # noqa: ASYNC110 - a process tells no event
                await asyncio.sleep(0)
        call.cancel()

    assert not _running(fingerprint)


def _running(fingerprint: str) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if fingerprint.encode() in process.read_bytes():
                return True
        except OSError:
            continue
    return False


async def test_many_files_are_searched_in_portions(both: Bench) -> None:
    folder = "x" * 200
    for n in range(600):
        both.put(f"{folder}/{n}.md", "needle")

    text = await both.text(GrepTool, pattern="needle", type="md", head_limit=5_000)

    assert text.count(".md") + text.count("shown") >= 70
    assert "of 600 shown" in text


async def test_links_and_what_may_not_be_read_are_not_searched(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench(restricted=True)
    (tmp_path / "secret.txt").write_text("canary")
    (bench.workspace / "link.txt").symlink_to(tmp_path / "secret.txt")

    assert "No match" in await bench.text(GrepTool, pattern="canary")
    with pytest.raises(ToolDenied):
        await bench.text(GrepTool, pattern="canary", path="link.txt")


async def test_engine_that_breaks_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "rg"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    (tmp_path / "a.txt").write_text("needle")

    query = Query("needle", ignore_case=False, max_per_file=1)
    matches = await search(tmp_path, ["a.txt"], query, ripgrep=str(broken), limit_s=5)

    assert matches.lines == {"a.txt": [1]}


async def test_file_that_became_binary_or_unreadable_is_left_out(bench: Bench) -> None:
    guard = bench.context.files
    excerpts = Excerpts(guard, Watch(), context=0)
    binary = bench.put("a.bin", b"x\0")

    assert not excerpts.is_text(binary)
    assert not excerpts.is_text(bench.workspace / "gone")
    assert excerpts.around(binary, "a.bin", [1]) == []


async def test_engine_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    query = Query("needle", ignore_case=False, max_per_file=1)

    with pytest.raises(ToolFailed, match="cannot be run"):
        await search(tmp_path / "gone", ["a"], query, ripgrep=None, limit_s=5)


async def test_output_of_an_engine_is_bounded(tmp_path: Path) -> None:
    flooding = tmp_path / "rg"
    flooding.write_text("#!/bin/sh\nexec yes\n")
    flooding.chmod(0o755)
    query = Query("needle", ignore_case=False, max_per_file=1)

    matches = await search(tmp_path, ["a"], query, ripgrep=str(flooding), limit_s=20)

    assert matches.cut


WORDS = st.sampled_from(["foo", "bar", "Foo", "fo", "", " ", "\t", "é", "1", "x.y", "a-b", "ß"])
LINES = st.lists(WORDS, max_size=5).map(" ".join)
CONTENT = st.lists(LINES, max_size=8).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines))
)
ATOMS = st.sampled_from(
    ["foo", "o", r"\bfoo\b", r"\d", r"[a-f]", "[^o ]", ".", "(?:fo|x)", r"x\.y"]
)
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "*?", "{0,1}"])
PATTERNS = st.lists(
    st.tuples(ATOMS, REPEATS).map(lambda pair: "(" + pair[0] + ")" + pair[1]),
    min_size=1,
    max_size=3,
).flatmap(
    lambda parts: st.sampled_from(["{}", "^{}", "{}$", "{}|bar"]).map(
        lambda frame: frame.format("".join(parts))
    )
)


@pytest.mark.skipif(not RIPGREP, reason="no ripgrep")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(CONTENT, min_size=1, max_size=4), pattern=PATTERNS, ignore=st.booleans())
async def test_both_engines_give_the_same_answers(
    make_bench: MakeBench, contents: list[str], pattern: str, ignore: bool
) -> None:
    with_ripgrep, without = make_bench(), make_bench(ripgrep=False)
    for n in range(4):
        with_ripgrep.put(f"{n}.txt", contents[n] if n < len(contents) else "")

    async def answer(bench: Bench, mode: str) -> str:
        return await bench.text(
            GrepTool, pattern=pattern, case_insensitive=ignore, output_mode=mode
        )

    for mode in ("content", "count"):
        assert await answer(with_ripgrep, mode) == await answer(without, mode)


async def test_matcher_prints_paths_and_numbers(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\none")
    (tmp_path / "b").write_bytes(b"one\0")

    code = main(["ONE$", "i", "5", str(path), str(tmp_path / "b"), str(tmp_path / "gone")])

    assert code == 0
    assert capfdbinary.readouterr().out == f"{path}\0{1}\n{path}\0{3}\n".encode()
    assert main(["(", "-", "1", str(path)]) == 3
