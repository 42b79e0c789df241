"""Images that people attach, in a form and size that models accept."""

from __future__ import annotations

import base64
import mimetypes
from io import BytesIO
from pathlib import Path

from nanobot_core.folder import Folder
from nanobot_core.messages import ImageBlock

MAX_IMAGE_BYTES = 5_000_000
"""Bytes of one image in a request; services refuse larger ones."""
MAX_FILE_BYTES = 50_000_000
MAX_PIXELS = 50_000_000
"""A small file may hold a picture that fills the memory: larger ones are not decoded."""
_ACCEPTED = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_READ_FORMATS = (*_ACCEPTED, "BMP", "TIFF")
_JPEG_QUALITY = 85
_EXTRA = "install nanobot-core[images] to have it scaled"


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
    try:
        data = Folder(path.parent).read(path.name, MAX_FILE_BYTES + 1)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if len(data) > MAX_FILE_BYTES:
        return f"it is larger than {MAX_FILE_BYTES // 1_000_000} MB"
    found = _scaled(data, max_side)
    if isinstance(found, str):
        return found
    scaled_type, data = found or (media_type, data)
    if len(data) > MAX_IMAGE_BYTES:
        remedy = "" if found else f"; {_EXTRA}"
        return f"it is larger than {MAX_IMAGE_BYTES // 1_000_000} MB{remedy}"
    return ImageBlock(scaled_type, base64.b64encode(data).decode(), str(path))


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
