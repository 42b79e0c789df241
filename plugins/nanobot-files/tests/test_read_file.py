"""read_file: pages, encodings, images, and what it refuses."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from nanobot_core import ImageBlock, TextBlock, ToolDenied, ToolFailed, ToolInputError
from nanobot_files.read_file import PageLimits, ReadFileTool, read_page
from nanobot_files.text_file import UTF8, Encoding, TextFile, detect_encoding
from nanobot_files.worker import Watch

if TYPE_CHECKING:
    from conftest import Bench, MakeBench

pytestmark = pytest.mark.anyio


async def test_lines_are_numbered_and_the_end_is_reported(bench: Bench) -> None:
    bench.put("a.txt", "one\r\ntwo")

    assert await bench.text(ReadFileTool, path="a.txt") == (
        "1|one\n2|two\n\n[end of file, 2 lines]"
    )


async def test_page_reports_where_it_stands_and_how_to_go_on(bench: Bench) -> None:
    bench.put("a.txt", "".join(f"line {n}\n" for n in range(1, 101)))

    text = await bench.text(ReadFileTool, path="a.txt", offset=10, limit=2)

    assert text == "10|line 10\n11|line 11\n\n[lines 10-11 of 100; read on with offset=12]"


async def test_page_ends_where_its_characters_end(make_bench: MakeBench) -> None:
    bench = make_bench(max_page_chars=1_000)
    bench.put("a.txt", ("x" * 99 + "\n") * 50)

    text = await bench.text(ReadFileTool, path="a.txt")

    assert "read on with offset=10]" in text
    assert len(text) < 1_200


async def test_line_longer_than_a_page_is_cut_with_its_length(make_bench: MakeBench) -> None:
    bench = make_bench(max_page_chars=1_000)
    bench.put("a.txt", "x" * 200_000 + "\nend\n")

    text = await bench.text(ReadFileTool, path="a.txt")

    assert "[line of 200,000 characters, cut here]" in text
    assert (await bench.text(ReadFileTool, path="a.txt", offset=2)).startswith("2|end")


async def test_offset_behind_the_end_is_reported_with_the_number_of_lines(bench: Bench) -> None:
    bench.put("a.txt", "one\n")

    with pytest.raises(ToolInputError, match="has 1 lines"):
        await bench.text(ReadFileTool, path="a.txt", offset=5)


async def test_empty_file_is_reported_as_such(bench: Bench) -> None:
    bench.put("a.txt")

    assert await bench.text(ReadFileTool, path="a.txt") == "a.txt is empty."


async def test_missing_file_brings_similar_names(bench: Bench) -> None:
    bench.put("settings.yaml")

    with pytest.raises(ToolInputError, match=r"similar names there: settings\.yaml"):
        await bench.text(ReadFileTool, path="setings.yaml")
    with pytest.raises(ToolInputError, match="no such file"):
        await bench.text(ReadFileTool, path="nowhere/setings.yaml")
    with pytest.raises(ToolInputError, match="no such file"):
        await bench.text(ReadFileTool, path="quite-different")


async def test_first_page_of_a_huge_file_does_not_read_it_all(bench: Bench) -> None:
    path = bench.put("huge.log", "first\n" * 20_000)
    os.truncate(path, 2_000_000_000)

    text = await bench.text(ReadFileTool, path="huge.log", limit=1)

    assert text == (
        "1|first\n\n[lines 1-1 of a file of 2,000,000,000 bytes; read on with offset=2]"
    )


async def test_sparse_file_is_reported_as_binary(bench: Bench) -> None:
    path = bench.put("sparse")
    os.truncate(path, 2_000_000_000)

    with pytest.raises(ToolInputError, match="binary file of 2,000,000,000 bytes"):
        await bench.text(ReadFileTool, path="sparse")


async def test_cancelled_reading_stops(bench: Bench) -> None:
    path = bench.put("huge.log", "first\n" * 20_000)
    os.truncate(path, 2_000_000_000)

    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.text(ReadFileTool, path="huge.log", offset=2_000_000))
        for _ in range(5):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call}, timeout=5)

    assert call.cancelled()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("grün".encode(), "grün"),
        (codecs.BOM_UTF8 + "grün".encode(), "grün"),
        ("grün".encode("utf-16"), "grün"),
        (codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"), "grün"),
        ("grün".encode("utf-32"), "grün"),
        ("grün – “ja”".encode("cp1252"), "grün – “ja”"),
        ("äöü".encode() + b"\xff" + "ß".encode(), "äöü\ufffdß"),
    ],
)
async def test_encoding_is_recognised_and_stray_bytes_are_replaced(
    bench: Bench, data: bytes, expected: str
) -> None:
    bench.put("a.txt", data)

    assert (await bench.text(ReadFileTool, path="a.txt")).startswith(f"1|{expected}\n")


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
    ],
)
async def test_image_comes_as_an_image(bench: Bench, head: bytes, media_type: str) -> None:
    path = bench.put("picture", head + b"\0" * 20)

    output = await bench.output(ReadFileTool, path="picture")

    assert isinstance(output, tuple)
    text, image = output
    assert isinstance(text, TextBlock)
    assert isinstance(image, ImageBlock)
    assert (image.media_type, image.path) == (media_type, str(path))


async def test_image_over_the_limit_is_refused(make_bench: MakeBench) -> None:
    bench = make_bench(max_image_bytes=1_000)
    bench.put("a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 1_000)

    with pytest.raises(ToolInputError, match="larger than 1,000 bytes"):
        await bench.text(ReadFileTool, path="a.png")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", b"%PDF-1.7\nplain so far", "is broken"),
        ("a.docx", b"PK\3\4\0\0", "is broken"),
        ("a.bin", b"\0\1\2", "binary file of 3 bytes"),
    ],
)
async def test_what_is_not_a_text_is_reported_as_such(
    bench: Bench, name: str, data: bytes, reason: str
) -> None:
    bench.put(name, data)

    with pytest.raises(ToolInputError, match=reason):
        await bench.text(ReadFileTool, path=name)


async def test_device_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolDenied):
        await bench.text(ReadFileTool, path="/dev/zero")


async def test_watch_ends_work_when_its_time_is_up() -> None:
    with pytest.raises(ToolFailed, match="did not finish within"):
        Watch(limit_s=-1).check()


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=30)),
    first=st.integers(1, 20),
    max_lines=st.integers(1, 10),
    max_chars=st.integers(40, 400),
)
async def test_pages_one_after_another_give_the_whole_file(
    lines: list[str], first: int, max_lines: int, max_chars: int
) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    seen: list[str] = []
    at = 1
    while True:
        limits = PageLimits(at, max_lines, max_chars, count_on=True)
        page = read_page(io.BytesIO(data), UTF8, limits, Watch())
        assert page.total == len(lines)
        if not page.lines:
            break
        seen += page.lines
        at = page.last + 1

    assert seen == [f"{number}|{line}" for number, line in enumerate(lines, 1)]


@given(st.binary(max_size=300))
async def test_parsing_and_rendering_gives_the_same_bytes(data: bytes) -> None:
    try:
        document = TextFile.parse(data, "file")
    except ToolInputError:
        return
    assert document.render(document.text) == data


async def test_sample_that_ends_within_a_character_is_still_utf8() -> None:
    assert detect_encoding("ü".encode()[:1]) == UTF8
    assert detect_encoding(b"\xfc") == Encoding("cp1252")
