"""What an editor sends as a prompt, as the text and the files that the agent receives."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from mimetypes import guess_extension
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from acp import schema
from acp.exceptions import RequestError

from nanobot_acp.attachment import Attachment

MAX_TEXT_CHARS: Final = 1_000_000
MAX_FILES: Final = 20
IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
INVALID_PARAMS: Final = -32602

Block: TypeAlias = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt.

    Attributes:
        text: its words, with links to resources where they stand and embedded texts at the end.
        files: its images and embedded files.
    """

    text: str
    files: tuple[Attachment, ...] = ()


def read_prompt(blocks: Sequence[Block]) -> Prompt:
    """Return the content of a prompt.

    Raises:
        RequestError: it is empty, too large, or has something that cannot be read.
    """
    words: list[str] = []
    embedded: list[str] = []
    files: list[Attachment] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                words.append(block.text)
            case schema.ResourceContentBlock():
                words.append(_link(block.name, block.uri))
            case schema.ImageContentBlock():
                if block.mime_type not in IMAGES:
                    raise _invalid(f"images are {', '.join(sorted(IMAGES))}")
                files.append(_file(block.uri or "image", block.mime_type, block.data))
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as it):
                words.append(_link(_name(it.uri), it.uri))
                embedded.append(_fenced(it.uri, it.text))
            case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as it):
                words.append(_link(_name(it.uri), it.uri))
                files.append(_file(it.uri, it.mime_type or "", it.blob))
            case _:
                raise _invalid("audio is not supported")
    text = "\n\n".join(part for part in ("".join(words).strip(), *embedded) if part)
    if not text and not files:
        raise _invalid("the prompt is empty")
    if len(text) > MAX_TEXT_CHARS:
        raise _invalid(f"a prompt has at most {MAX_TEXT_CHARS:,} characters; link to files instead")
    if len(files) > MAX_FILES:
        raise _invalid(f"a prompt has at most {MAX_FILES} files")
    return Prompt(text or "(See the attached files.)", tuple(files))


def _link(name: str, uri: str) -> str:
    return f"[{name}]({_place(uri)})"


def _place(uri: str) -> str:
    """Return the path of a file, or any other URI unchanged."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return unquote(parts.path) if parts.scheme == "file" else uri


def _name(uri: str) -> str:
    return _place(uri).rstrip("/").rpartition("/")[2] or "resource"


def _fenced(uri: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{_place(uri)}:\n{fence}\n{text}\n{fence}"


def _file(uri: str, mime_type: str, data: str) -> Attachment:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid("the content of a file is not base64") from error
    name = _name(uri)
    if "." not in name:
        name += guess_extension(mime_type) or ""
    return Attachment(name, content)


def _invalid(reason: str) -> RequestError:
    return RequestError(INVALID_PARAMS, reason)
