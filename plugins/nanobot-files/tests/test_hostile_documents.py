"""Documents that were made to harm their reader: each costs its call, and draws nothing in."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import ToolError
from nanobot_files.read_file import ReadFileTool

if TYPE_CHECKING:
    from conftest import Bench, MakeBench, Papers

pytestmark = pytest.mark.anyio
CANARY = "canary-of-the-outside"
MAX_GROWTH_KIB = 100_000

ENTITIES = b'<!DOCTYPE x [<!ENTITY a0 "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 12)
)
WORD_BODY = (
    b'%s]><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    b"<w:body><w:p><w:r><w:t>%s</w:t></w:r></w:p></w:body></w:document>"
)
SHEET_BODY = (
    b'%s]><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    b'<row r="1"><c r="A1" t="inlineStr"><is><t>%s</t></is></c></row></sheetData></worksheet>'
)
HOLDERS: dict[str, tuple[Callable[[Papers], bytes], bytes]] = {
    "word/document.xml": (lambda papers: papers.word("x"), WORD_BODY),
    "ppt/slides/slide1.xml": (lambda papers: papers.slides("x"), WORD_BODY),
    "ppt/presentation.xml": (lambda papers: papers.slides("x"), WORD_BODY),
    "xl/worksheets/sheet1.xml": (lambda papers: papers.workbook({"One": [[1]]}), SHEET_BODY),
    "xl/workbook.xml": (lambda papers: papers.workbook({"One": [[1]]}), SHEET_BODY),
    "content.xml": (lambda papers: papers.open_document("x"), WORD_BODY),
}


@pytest.mark.parametrize("part", HOLDERS)
async def test_entities_are_not_expanded(bench: Bench, part: str, papers: Papers) -> None:
    make, body = HOLDERS[part]
    bench.put("a", papers.with_part(make(papers), part, body % (ENTITIES, b"&a11;")))

    assert "aaaaaaaaaaaaaaaaaaaaa" not in await _text_or_reason(bench)


@pytest.mark.parametrize("part", HOLDERS)
async def test_other_files_are_not_drawn_in(
    bench: Bench, tmp_path: Path, part: str, papers: Papers
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    declared = f'<!DOCTYPE x [<!ENTITY f SYSTEM "file://{tmp_path}/secret">'.encode()
    make, body = HOLDERS[part]
    bench.put("a", papers.with_part(make(papers), part, body % (declared, b"&f;")))

    assert CANARY not in await _text_or_reason(bench)


async def test_slide_that_names_a_file_outside_the_archive_is_not_found(
    bench: Bench, tmp_path: Path, papers: Papers
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    relations = (
        '<Relationships><Relationship Id="rId7" Target="../../../../..'
        f'{tmp_path}/secret"/></Relationships>'
    )
    document = papers.with_part(
        papers.slides("x"), "ppt/_rels/presentation.xml.rels", relations.encode()
    )
    bench.put("a", document)

    assert CANARY not in await _text_or_reason(bench)


MEGABYTE = 1_000_000


def _filled(papers: Papers, pieces: Iterator[bytes]) -> bytes:
    return papers.with_part(papers.word("x"), "word/document.xml", pieces)


def _paragraphs() -> Iterator[bytes]:
    yield b"<w>"
    yield from repeat(b"<p/>" * 100_000, 300)


def _depth() -> Iterator[bytes]:
    yield from repeat(b"<p>" * 100_000, 50)
    yield from repeat(b"</p>" * 100_000, 50)


BOMBS: dict[str, Callable[[Papers], bytes]] = {
    "zeros": lambda papers: _filled(papers, repeat(bytes(MEGABYTE), 300)),
    "spaces": lambda papers: _filled(papers, repeat(b" " * MEGABYTE, 300)),
    "paragraphs": lambda papers: _filled(papers, _paragraphs()),
    "depth": lambda papers: _filled(papers, _depth()),
    "more than is unpacked": lambda papers: papers.with_part(
        papers.word("x"), "word/media/x", repeat(bytes(MEGABYTE), 600)
    ),
    "parts": lambda papers: papers.archive(
        {"word/document.xml": b"<w/>", **{f"{n}": b"" for n in range(30_000)}}
    ),
    "dimension": lambda papers: papers.with_part(
        papers.workbook({"One": [[1]]}),
        "xl/worksheets/sheet1.xml",
        b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        b'<dimension ref="A1:XFD1048576"/><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v>'
        b"</c></row></sheetData></worksheet>",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_bomb_costs_its_call_only(make_bench: MakeBench, name: str, papers: Papers) -> None:
    bench = make_bench(document_timeout_s=5)
    bench.put("a", BOMBS[name](papers))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    said = await _text_or_reason(bench)

    assert len(said) < 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MAX_GROWTH_KIB


def _a_pdf(papers: Papers) -> bytes:
    return papers.pdf("Hello", "World")


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    make=st.sampled_from([each for each, _ in HOLDERS.values()] + [_a_pdf]),
    position=st.floats(0, 1),
    damage=st.binary(min_size=1, max_size=40),
    is_cut=st.booleans(),
)
async def test_no_damage_ends_in_anything_but_words(
    bench: Bench,
    papers: Papers,
    make: Callable[[Papers], bytes],
    position: float,
    damage: bytes,
    is_cut: bool,
) -> None:
    data = make(papers)
    place = int(position * len(data))
    bench.put("a", data[:place] + damage + (b"" if is_cut else data[place + len(damage) :]))

    assert await _text_or_reason(bench)


async def _text_or_reason(bench: Bench) -> str:
    try:
        return await bench.text(ReadFileTool, path="a")
    except ToolError as error:
        return str(error)
