"""Text of documents that are XML in a zip archive: Word, PowerPoint and OpenDocument.

A walk through the markup in document order: a paragraph is a line, a table's row is a line with a
tab between cells. Formats: ECMA-376 part 1 (Office Open XML) and ISO/IEC 26300 (OpenDocument).
Runs in the process of `nanobot_files.extract`.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

_NO_SPACES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class _Markup:
    """Names of elements, without their namespaces.

    Attributes:
        paragraphs: elements that become a line of their own.
        row: a table's row.
        cell: a cell of it.
        text: elements that hold the text; ``None`` where it is between all others.
        spaces: elements that mean white space.
        dropped: elements of which nothing is shown.
        parts: elements that begin a part of the document, and the attribute with its name.
    """

    paragraphs: frozenset[str]
    row: str
    cell: str
    text: str | None
    spaces: Mapping[str, str]
    dropped: frozenset[str]
    parts: Mapping[str, str] = field(default_factory=dict)


_OFFICE_OPEN = _Markup(
    paragraphs=frozenset({"p"}),
    row="tr",
    cell="tc",
    text="t",
    spaces={"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"},
    # Tab stops have the name of tabs; a fallback repeats the choice before it.
    dropped=frozenset({"pPr", "Fallback"}),
)
_OPEN_DOCUMENT = _Markup(
    paragraphs=frozenset({"p", "h"}),
    row="table-row",
    cell="table-cell",
    text=None,
    spaces={"tab": "\t", "line-break": "\n", "s": " "},
    dropped=frozenset({"tracked-changes", "note-citation"}),
    parts={"page": "slide", "table": "sheet"},
)


def word_text(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the lines of a Word document, then its notes."""
    names = set(archive.namelist())
    for name in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        if name in names:
            yield from _lines(archive, name, _OFFICE_OPEN)


def slides_text(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the lines of a presentation, slide after slide in the order of showing."""
    folder = "ppt"
    targets = _relations(archive, f"{folder}/_rels/presentation.xml.rels")
    number = 0
    for element in _elements(archive, f"{folder}/presentation.xml"):
        if _local(element.tag) != "sldId":
            continue
        number += 1
        ids = [value for name, value in element.attrib.items() if name.endswith("}id")]
        slide = posixpath.normpath(posixpath.join(folder, targets[ids[0]]))
        yield f"[slide {number}]"
        yield from _lines(archive, slide.lstrip("/"), _OFFICE_OPEN)


def open_document_text(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the lines of an OpenDocument text, table or presentation."""
    yield from _lines(archive, "content.xml", _OPEN_DOCUMENT)


def _relations(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    return {
        element.attrib["Id"]: element.attrib["Target"]
        for element in _elements(archive, name)
        if _local(element.tag) == "Relationship"
    }


def _elements(archive: zipfile.ZipFile, name: str) -> Iterator[Element]:
    for event, element in _events(archive, name):
        if event == "end":
            yield element


def _events(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[str, Element]]:
    from defusedxml.ElementTree import iterparse

    with archive.open(name) as part:
        yield from iterparse(part, events=("start", "end"), forbid_dtd=True)


def _lines(archive: zipfile.ZipFile, name: str, markup: _Markup) -> Iterator[str]:
    rows: list[list[list[str]]] = []
    for event, element in _events(archive, name):
        tag = _local(element.tag)
        if event == "start":
            if tag == markup.row:
                rows.append([])
            elif tag == markup.cell and rows:
                rows[-1].append([])
            elif tag in markup.parts and not rows:
                yield _heading(element, markup.parts[tag])
        elif tag in markup.dropped:
            element.clear()
        elif tag in markup.paragraphs:
            line = _text(element, markup)
            # Text after an element belongs to its parent, which may be a paragraph.
            element.clear()
            if rows and rows[-1]:
                rows[-1][-1].append(line)
            else:
                yield line
        elif tag == markup.row:
            line = _row(rows.pop())
            element.clear()
            if rows and rows[-1]:
                rows[-1][-1].append(line)
            elif line:
                yield line


def _heading(element: Element, word: str) -> str:
    names = (value for name, value in element.attrib.items() if _local(name) == "name")
    return f"[{word} {next(names, '')}]".replace(" ]", "]")


def _row(cells: list[list[str]]) -> str:
    return "\t".join(" ".join(" ".join(cell).split()) for cell in cells).rstrip("\t")


def _text(paragraph: Element, markup: _Markup) -> str:
    if markup.text is None:
        for element in paragraph.iter():
            if space := markup.spaces.get(_local(element.tag)):
                element.text = space
        return "".join(paragraph.itertext())
    found: list[str] = []
    for element in paragraph.iter():
        tag = _local(element.tag)
        found.append((element.text or "") if tag == markup.text else markup.spaces.get(tag, ""))
    return "".join(found)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
