"""Images and documents that people attach, in a form and size that models accept."""

from __future__ import annotations

import base64
import mimetypes
from io import BytesIO
from pathlib import Path

from nanobot_core.folder import Folder
from nanobot_core.messages import ImageBlock

MAX_IMAGE_BYTES = 5_000_000
"""Bytes of one image in a request; services refuse larger ones."""
MAX_DOCUMENT_BYTES = 20_000_000
"""Bytes of one PDF document in a request; a service accepts 32 MB in base64 for all of it."""
MAX_FILE_BYTES = 50_000_000
MAX_PIXELS = 50_000_000
"""A small file may hold a picture that fills the memory: larger ones are not decoded."""
_ACCEPTED = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_READ_FORMATS = (*_ACCEPTED, "BMP", "TIFF")
_JPEG_QUALITY = 85
_PDF = "application/pdf"
_PDF_HEAD = b"%PDF-"
_EXTRA = "install nanobot-core[images] to have it scaled"


def load_document(path: Path) -> ImageBlock | str | None:
    """Return the PDF document in `path`, why it cannot be sent, or ``None``; blocks."""
    if mimetypes.guess_type(path.name)[0] != _PDF:
        return None
    data = _content(path, MAX_DOCUMENT_BYTES)
    if isinstance(data, str):
        return data
    if not data.startswith(_PDF_HEAD):
        return "it is not a PDF document"
    return ImageBlock(_PDF, base64.b64encode(data).decode(), str(path))


def load_image(path: Path, max_side: int) -> ImageBlock | str | None:
    """Return the image in `path`, why it cannot be shown, or ``None`` if it is not one. Blocks.

    A picture that is too large is scaled if Pillow is installed.

    Args:
        path: a file whose content may be hostile.
        max_side: pixels of the longer side.
    """
    media_type = mimetypes.guess_type(path.name)[0] or ""
    if not media_type.startswith("image/"):
        return None
    data = _content(path, MAX_FILE_BYTES)
    if isinstance(data, str):
        return data
    found = _scaled(data, max_side)
    if isinstance(found, str):
        return found
    scaled_type, data = found or (media_type, data)
    if len(data) > MAX_IMAGE_BYTES:
        remedy = "" if found else f"; {_EXTRA}"
        return f"it is larger than {MAX_IMAGE_BYTES // 1_000_000} MB{remedy}"
    return ImageBlock(scaled_type, base64.b64encode(data).decode(), str(path))


def _content(path: Path, max_bytes: int) -> bytes | str:
    """Return the content of a file, or why it cannot be read."""
    try:
        data = Folder(path.parent).read(path.name, max_bytes + 1)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    too_large = f"it is larger than {max_bytes // 1_000_000} MB"
    return too_large if len(data) > max_bytes else data


def _scaled(data: bytes, max_side: int) -> tuple[str, bytes] | str | None:
    """Return media type and content of a picture that fits, or why it cannot be shown.

    Returns:
        ``None`` without Pillow.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        return None
    try:
        with Image.open(BytesIO(data), formats=_READ_FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                return f"it has more than {MAX_PIXELS // 1_000_000} million pixels"
            fits = max(width, height) <= max_side and len(data) <= MAX_IMAGE_BYTES
            if fits and image.format in _ACCEPTED:
                return _ACCEPTED[image.format], data
            image.draft("RGB", (max_side, max_side))  # decodes less of a JPEG file
            upright = ImageOps.exif_transpose(image)
            has_alpha = upright.has_transparency_data
            shown = upright.convert("RGBA" if has_alpha else "RGB")
            shown.thumbnail((max_side, max_side))
            output = BytesIO()
            kind = "PNG" if has_alpha else "JPEG"
            shown.save(output, kind, quality=_JPEG_QUALITY)
            return _ACCEPTED[kind], output.getvalue()
    except Exception as error:  # noqa: BLE001 - isolation point: a decoder on hostile data
        return f"it cannot be decoded: {type(error).__name__}"
