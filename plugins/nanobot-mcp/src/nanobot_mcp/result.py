"""Converts a server's answers to results for the model."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from nanobot_core import (
    ContentBlock,
    ImageBlock,
    JsonObject,
    MediaStore,
    NanobotError,
    TextBlock,
    ToolResult,
    truncate_middle,
)

MAX_TEXT_CHARS = 900_000
_MAX_BLOCKS = 1_000
_SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that all supported model services accept."""

_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")
Answer: TypeAlias = "CallToolResult | ReadResourceResult | GetPromptResult"
_Content: TypeAlias = "TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource"
_Resource: TypeAlias = "TextResourceContents | BlobResourceContents"


async def render_answer(answer: Answer, media: MediaStore, max_image_bytes: int) -> ToolResult:
    """Return `answer` as a result of limited size. Files other than images are saved in `media`."""
    page = _Page(media, max_image_bytes)
    if isinstance(answer, CallToolResult):
        await page.add_all(answer.content)
        data = answer.structured_content
        if not page.has_text and data is not None:
            page.add_text(json.dumps(data, ensure_ascii=False))
        return page.result(answer.is_error, data if isinstance(data, dict) else None)
    if isinstance(answer, ReadResourceResult):
        for part in answer.contents[:_MAX_BLOCKS]:
            await page.add_resource(part, is_only=len(answer.contents) == 1)
        return page.result()
    for message in answer.messages[:_MAX_BLOCKS]:
        page.add_text(f"[{message.role}]")
        await page.add_all([message.content])
    return page.result()


class _Page:
    """Collects the blocks of one result."""

    def __init__(self, media: MediaStore, max_image_bytes: int) -> None:
        self._media = media
        self._max_image_bytes = max_image_bytes
        self._blocks: list[ContentBlock] = []
        self._files: list[str] = []

    @property
    def has_text(self) -> bool:
        return any(isinstance(block, TextBlock) for block in self._blocks)

    def result(self, is_error: bool = False, data: JsonObject | None = None) -> ToolResult:
        images = [block for block in self._blocks if isinstance(block, ImageBlock)]
        texts = [block.text for block in self._blocks if isinstance(block, TextBlock)]
        text = truncate_middle("\n".join(texts), MAX_TEXT_CHARS)
        content: tuple[ContentBlock, ...] = (TextBlock(text), *images) if text else tuple(images)
        return ToolResult(
            content if images else text, is_error=is_error, media=tuple(self._files), data=data
        )

    def add_text(self, text: str) -> None:
        self._blocks.append(TextBlock(text))

    async def add_all(self, parts: Sequence[_Content]) -> None:
        for part in parts[:_MAX_BLOCKS]:
            match part:
                case TextContent():
                    self.add_text(part.text)
                case ImageContent() | AudioContent():
                    await self._add_encoded(part.type, part.mime_type, part.data)
                case ResourceLink():
                    words = [part.description] if part.description else []
                    self.add_text(" ".join([f"[resource {part.name}: {part.uri}]", *words]))
                case EmbeddedResource():
                    await self.add_resource(part.resource)
        if len(parts) > _MAX_BLOCKS:
            self.add_text(f"[{len(parts) - _MAX_BLOCKS} more parts omitted]")

    async def add_resource(self, resource: _Resource, *, is_only: bool = False) -> None:
        if isinstance(resource, TextResourceContents):
            self.add_text(resource.text if is_only else f"[{resource.uri}]\n{resource.text}")
        else:
            await self._add_encoded(resource.uri, resource.mime_type or "", resource.blob)

    async def _add_encoded(self, name: str, mime_type: str, encoded: str) -> None:
        """Show images, decode texts, and save anything else as a file."""
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            self.add_text(f"[{name}: {mime_type or 'a file'} with invalid base64]")
            return
        kind = mime_type.partition(";")[0].strip().lower()
        if kind in _SHOWN_IMAGES and len(content) <= self._max_image_bytes:
            self._blocks.append(ImageBlock(kind, encoded))
            return
        text = _decoded(content) if kind.startswith(_TEXT_TYPES) else None
        if text is not None:
            self.add_text(f"[{name}]\n{text}")
            return
        await self._keep(name, kind, content)

    async def _keep(self, name: str, kind: str, content: bytes) -> None:
        shown = f"{name}: {kind or 'a file'}, {len(content):,} bytes"
        stem = name.rstrip("/").rpartition("/")[2] or "file"
        if "." not in stem:
            stem += mimetypes.guess_extension(kind) or ".bin"
        try:
            path = await self._media.save(stem, _pieces(content))
        except (NanobotError, OSError) as error:
            self.add_text(f"[{shown}; it could not be saved: {error}]")
            return
        self._files.append(str(path))
        self.add_text(f"[{shown}; saved as {path}]")


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
