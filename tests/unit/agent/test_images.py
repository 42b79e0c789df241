"""Images that people attach: scaled to what models accept, and nothing that fills the memory."""

from __future__ import annotations

import base64
import io
import sys
import zlib
from pathlib import Path

import pytest

from nanobot_core import ImageBlock
from nanobot_core.agent.images import (
    MAX_DOCUMENT_BYTES,
    MAX_IMAGE_BYTES,
    load_document,
    load_image,
)

image_module = pytest.importorskip("PIL.Image")


def picture(path: Path, size: tuple[int, int], mode: str = "RGB", **options: object) -> Path:
    image_module.new(mode, size, 127).save(path, **options)
    return path


def opened(block: object) -> object:
    assert isinstance(block, ImageBlock)
    return image_module.open(io.BytesIO(base64.b64decode(block.data)))


def test_a_picture_that_fits_is_sent_as_it_is(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", (40, 30))
    block = load_image(path, 40)
    assert block == ImageBlock("image/png", base64.b64encode(path.read_bytes()).decode(), str(path))


@pytest.mark.parametrize(
    ("name", "mode", "kind"),
    [
        ("a.jpg", "RGB", "JPEG"),
        ("a.png", "RGB", "JPEG"),
        ("a.png", "RGBA", "PNG"),
        ("a.png", "P", "JPEG"),
        ("a.gif", "L", "JPEG"),
        ("a.bmp", "RGB", "JPEG"),
        ("a.tiff", "CMYK", "JPEG"),
    ],
)
def test_a_larger_picture_is_scaled(tmp_path: Path, name: str, mode: str, kind: str) -> None:
    block = load_image(picture(tmp_path / name, (400, 200), mode), 100)
    shown = opened(block)
    assert (shown.size, shown.format) == ((100, 50), kind)  # type: ignore[attr-defined]  # Pillow's image
    assert isinstance(block, ImageBlock)
    assert block.media_type == f"image/{kind.lower()}"


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    exif = image_module.Exif()
    exif[0x0112] = 6
    shown = opened(load_image(picture(tmp_path / "a.jpg", (400, 200), exif=exif), 100))
    assert shown.size == (50, 100)  # type: ignore[attr-defined]  # Pillow's image


def test_a_bomb_is_not_decoded(tmp_path: Path) -> None:
    side = (8_000).to_bytes(4, "big")
    header = b"IHDR" + side + side + bytes([8, 2, 0, 0, 0])
    chunks = [header, b"IDAT" + zlib.compress(bytes(1_000)), b"IEND"]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        for chunk in chunks
    )
    (tmp_path / "a.png").write_bytes(data)
    assert load_image(tmp_path / "a.png", 100) == "it has more than 50 million pixels"


@pytest.mark.parametrize("data", [b"", b"<html>", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(20)])
def test_what_is_no_picture_is_named_with_a_reason(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.png").write_bytes(data)
    reason = load_image(tmp_path / "a.png", 100)
    assert isinstance(reason, str)
    assert reason.startswith("it cannot be decoded")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (4, 3))
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    assert load_image(tmp_path / "b.png", 100) == "it cannot be read: not a regular file"


def test_another_file_is_no_image(tmp_path: Path) -> None:
    assert load_image(tmp_path / "a.txt", 100) is None


def test_without_pillow_a_small_file_is_sent_and_a_large_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    small.write_bytes(b"png")
    large.write_bytes(bytes(MAX_IMAGE_BYTES + 1))
    assert isinstance(load_image(small, 100), ImageBlock)
    assert load_image(large, 100) == (
        "it is larger than 5 MB; install nanobot-core[images] to have it scaled"
    )


def test_a_document_is_loaded_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 x")
    block = load_document(tmp_path / "a.pdf")
    assert isinstance(block, ImageBlock)
    assert block.is_document
    assert base64.b64decode(block.data) == b"%PDF-1.7 x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "it is not a PDF document"),
        (b"%PDF-" + bytes(MAX_DOCUMENT_BYTES), "it is larger than 20 MB"),
    ],
)
def test_a_document_that_cannot_be_sent_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.pdf").write_bytes(data)
    assert load_document(tmp_path / "a.pdf") == reason
    assert load_document(tmp_path / "a.png") is None
