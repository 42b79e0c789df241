"""read_file on PDF and office documents: text in pages, and hostile files that cost one call."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import ToolFailed, ToolInputError
from nanobot_files.read_file import ReadFileTool

if TYPE_CHECKING:
    from conftest import Bench, MakeBench, Papers

pytestmark = pytest.mark.anyio

DOCUMENTS = {
    "a.pdf": ["[page 1]", "Hello", "[page 2]", "World"],
    "a.docx": ["Hello\tthere", "World", "left\tright"],
    "a.pptx": ["[slide 1]", "Hello", "[slide 2]", "World"],
    "a.xlsx": ["[sheet One]", "1\ttwo\t\t3.5", "[sheet Two]", "\tdeep"],
    "a.odt": ["Title", "Hello", "World"],
}


@pytest.fixture(scope="session")
def documents(papers: Papers) -> dict[str, bytes]:
    return {
        "a.pdf": papers.pdf("Hello", "World"),
        "a.docx": papers.word("Hello\tthere", "World"),
        "a.pptx": papers.slides("Hello", "World"),
        "a.xlsx": papers.workbook({"One": [[1, "two", None, 3.5]], "Two": [[], [None, "deep"]]}),
        "a.odt": papers.open_document("Title", "Hello", "World"),
    }


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_document_is_read_as_lines(
    bench: Bench, documents: dict[str, bytes], name: str
) -> None:
    bench.put(name, documents[name])

    text = await bench.text(ReadFileTool, path=name)

    shown = [line.partition("|")[2] for line in text.splitlines()]
    assert [line for line in shown if line] == DOCUMENTS[name]
    assert text.endswith(f"[end of file, {text.count('|')} lines]")


async def test_document_comes_in_pages(bench: Bench, papers: Papers) -> None:
    bench.put("a.docx", papers.word(*(f"line {number}" for number in range(1, 101))))

    text = await bench.text(ReadFileTool, path="a.docx", offset=10, limit=2)

    assert text == "10|line 10\n11|line 11\n\n[lines 10-11 of 101; read on with offset=12]"
    with pytest.raises(ToolInputError, match="has 101 lines"):
        await bench.text(ReadFileTool, path="a.docx", offset=500)


async def test_changed_document_is_read_again(bench: Bench, papers: Papers) -> None:
    bench.put("a.docx", papers.word("before"))
    await bench.text(ReadFileTool, path="a.docx")
    bench.put("a.docx", papers.word("after the change"))

    assert "after the change" in await bench.text(ReadFileTool, path="a.docx")


async def test_name_does_not_decide_what_a_file_is(bench: Bench, papers: Papers) -> None:
    bench.put("letter.txt", papers.word("Hello"))

    assert "1|Hello" in await bench.text(ReadFileTool, path="letter.txt")


@pytest.mark.parametrize("name", ["a.zip", "a.docx"])
async def test_archive_that_is_not_a_document_is_reported_as_binary(
    bench: Bench, name: str, papers: Papers
) -> None:
    bench.put(name, papers.archive({"a.txt": b"text", "content.xml": b"<a/>"}))

    with pytest.raises(ToolInputError, match="binary file"):
        await bench.text(ReadFileTool, path=name)


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS) - {"a.odt"}))
async def test_without_the_extra_the_answer_names_the_install_line(
    bench: Bench,
    documents: dict[str, bytes],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "blocked.py").write_text(
        "import runpy, sys\n"
        "for name in ('pypdf', 'openpyxl', 'defusedxml', 'defusedxml.ElementTree'):\n"
        "    sys.modules[name] = None\n"
        "runpy.run_module('nanobot_files.extract', run_name='__main__')\n"
    )
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'blocked.py'}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    bench.put(name, documents[name])

    with pytest.raises(ToolFailed, match=r"pip install 'nanobot-files\[documents\]'"):
        await bench.text(ReadFileTool, path=name)


async def test_encrypted_pdf_is_reported_as_such(bench: Bench, papers: Papers) -> None:
    bench.put("a.pdf", papers.encrypted_pdf("password"))

    with pytest.raises(ToolInputError, match="is encrypted"):
        await bench.text(ReadFileTool, path="a.pdf")


async def test_pdf_that_is_encrypted_without_a_password_is_read(
    bench: Bench, papers: Papers
) -> None:
    bench.put("a.pdf", papers.encrypted_pdf(""))

    assert "secret" in await bench.text(ReadFileTool, path="a.pdf")


async def test_encrypted_open_document_is_reported_as_such(bench: Bench, papers: Papers) -> None:
    manifest = b"<manifest><encryption-data/></manifest>"
    document = papers.with_part(papers.open_document("x"), "META-INF/manifest.xml", manifest)
    bench.put("a.odt", document)

    with pytest.raises(ToolInputError, match="is encrypted"):
        await bench.text(ReadFileTool, path="a.odt")


async def test_older_format_or_password_brings_the_way_to_convert(bench: Bench) -> None:
    bench.put("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2_000))

    with pytest.raises(ToolInputError, match="libreoffice --convert-to"):
        await bench.text(ReadFileTool, path="a.doc")


@pytest.mark.parametrize("start", [b"%PDF-1.7\n", b"PK\x03\x04"])
async def test_two_gigabytes_are_refused_before_they_are_read(bench: Bench, start: bytes) -> None:
    os.truncate(bench.put("a.pdf", start), 2_000_000_000)

    with pytest.raises(ToolInputError, match=r"has 2,000,000,000 bytes, and 50,000,000 are read"):
        await bench.text(ReadFileTool, path="a.pdf")


async def test_document_of_too_much_text_is_shown_up_to_the_limit(
    bench: Bench, papers: Papers
) -> None:
    bench.put("a.docx", papers.word(*["x" * 100_000] * 100))

    text = await bench.text(ReadFileTool, path="a.docx", limit=1)

    assert "[the document continues, but reading it did not end within 30 seconds and 8,0" in text


async def test_pages_before_damage_are_shown_with_a_note(bench: Bench, papers: Papers) -> None:
    text = papers.pdf("Hello", "World").replace(b"(World) Tj ET", b"(World) Tj [[")
    bench.put("a.pdf", text.replace(b"/Contents 7 0 R", b"/Contents <<<< 0 R"))

    assert "Hello" in await bench.text(ReadFileTool, path="a.pdf")


async def test_cancelled_reading_ends_the_parser(make_bench: MakeBench, papers: Papers) -> None:
    bench = make_bench(document_timeout_s=600)
    bench.put("a.xlsx", papers.workbook({"One": [[n, "x" * 50] for n in range(60_000)]}))

    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.text(ReadFileTool, path="a.xlsx"))
        async with asyncio.timeout(5):
            while not _parsers():  # noqa: ASYNC110  # another process gives no event
                await asyncio.sleep(0.01)
        call.cancel()

    assert call.cancelled()
    assert _parsers() == []


def _parsers() -> list[str]:
    """Parsers that this process started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            command = (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == str(os.getpid()) and b"nanobot_files.extract" in command:
            found.append(entry.name)
    return found
