"""What the tests of this plugin share."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Ask, JsonValue, Tool, ToolOutput
from nanobot_core.testing import FakePluginContext, call_in, output_text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MakeTool = Callable[[FakePluginContext], Tool]


class Bench:
    """Calls tools in the workspace of one application."""

    def __init__(self, context: FakePluginContext) -> None:
        self.context = context
        self.workspace = context.workspace

    async def output(
        self,
        tool: MakeTool,
        /,
        session: str = "cli:a",
        **given: JsonValue,
    ) -> ToolOutput:
        made = tool(self.context)
        files = self.context.files
        call = replace(call_in(self.workspace, files), session_key=session)
        review = await made.review(call, dict(given))
        if isinstance(review.decision, Ask):  # the owner says yes
            call = replace(call, files=files.granting(review.decision.paths))
        return await made.execute(call, dict(given))

    async def text(
        self,
        tool: MakeTool,
        /,
        session: str = "cli:a",
        **given: JsonValue,
    ) -> str:
        return output_text(await self.output(tool, session, **given))

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path) -> MakeBench:
    """Make an application; settings are keywords, `restricted` confines to the workspace."""
    search_path = os.environ["PATH"]

    def make(*, restricted: bool = False, ripgrep: bool = True, **settings: JsonValue) -> Bench:
        environment = {"PATH": search_path} if ripgrep else {}
        return Bench(
            FakePluginContext(
                tmp_path,
                settings=settings,
                plugin_id="files",
                environment=environment,
                restrict_to_workspace=restricted,
            )
        )

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


@pytest.fixture(scope="session")
def papers() -> Papers:
    return Papers()


class Papers:
    """Documents, written by the libraries that people write them with, and hostile ones."""

    def word(self, *paragraphs: str) -> bytes:
        import docx

        document = docx.Document()
        for paragraph in paragraphs:
            document.add_paragraph(paragraph)
        table = document.add_table(1, 2)
        table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
        return _saved(document)

    def slides(self, *titles: str) -> bytes:
        import pptx

        presentation = pptx.Presentation()
        for title in titles:
            slide = presentation.slides.add_slide(presentation.slide_layouts[5])
            if slide.shapes.title is not None:
                slide.shapes.title.text = title
        return _saved(presentation)

    def workbook(self, sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
        import openpyxl

        book = openpyxl.Workbook(write_only=True)
        for title, rows in sheets.items():
            sheet = book.create_sheet(title)
            for row in rows:
                sheet.append(list(row))
        return _saved(book)

    def open_document(self, heading: str, *paragraphs: str) -> bytes:
        from odf.opendocument import (  # type: ignore[import-untyped]  # has no types
            OpenDocumentText,
        )
        from odf.text import H, P  # type: ignore[import-untyped]  # has no types

        document = OpenDocumentText()
        document.text.addElement(H(outlinelevel=1, text=heading))
        for paragraph in paragraphs:
            document.text.addElement(P(text=paragraph))
        return _saved(document)

    def pdf(self, *pages: str) -> bytes:
        """A PDF with one line on each page, as ISO 32000-1 describes it in its annex H."""
        count = len(pages)
        kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
        objects = [
            "<< /Type /Catalog /Pages 2 0 R >>",
            f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ]
        for number, text in enumerate(pages):
            content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
            page = (
                f"<< /Type /Page /Parent 2 0 R /Contents {5 + 2 * number} 0 R"
                " /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> >>"
            )
            objects += [page, f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"]
        data = b"%PDF-1.4\n"
        places = []
        for number, text in enumerate(objects, 1):
            places.append(len(data))
            data += f"{number} 0 obj\n{text}\nendobj\n".encode()
        table = "".join(f"{place:010} 00000 n \n" for place in places)
        table = f"0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>"
        end = f"xref\n{table}{trailer}\nstartxref\n{len(data)}\n%%EOF\n"
        return data + end.encode()

    def encrypted_pdf(self, password: str) -> bytes:
        from pypdf import PdfReader, PdfWriter

        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(self.pdf("secret"))))
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
        target = io.BytesIO()
        writer.write(target)
        return target.getvalue()

    def archive(self, parts: Mapping[str, bytes | Iterable[bytes]]) -> bytes:
        """A zip archive; a part that is larger than memory comes in pieces."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in parts.items():
                with made.open(name, "w") as part:
                    for piece in [data] if isinstance(data, bytes) else data:
                        part.write(piece)
        return target.getvalue()

    def with_part(self, document: bytes, name: str, data: bytes | Iterable[bytes]) -> bytes:
        """The document with another content of one part."""
        with zipfile.ZipFile(io.BytesIO(document)) as source:
            parts = {part: source.read(part) for part in source.namelist()}
        return self.archive({**parts, name: data})


def _saved(document: Any) -> bytes:  # noqa: ANN401  # three libraries, one method
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()
