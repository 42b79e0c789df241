"""Which format a recording has."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_transcription.recording import load_recording


@pytest.mark.parametrize(
    ("content", "name", "sent_as", "media_type"),
    [
        (b"OggS\0", "a.oga", "recording.ogg", "audio/ogg"),
        (b"OggS\0", "a.opus", "recording.ogg", "audio/ogg"),
        (b"OggS\0", "no extension", "recording.ogg", "audio/ogg"),
        (b"ID3\x04", "a.MP3", "recording.mp3", "audio/mpeg"),
        (b"\xff\xfb\x90", "a.mp3", "recording.mp3", "audio/mpeg"),
        (b"fLaC", "a.flac", "recording.flac", "audio/flac"),
        (b"RIFF\0\0\0\0WAVEfmt ", "a.wav", "recording.wav", "audio/wav"),
        (b"\x1a\x45\xdf\xa3", "a.webm", "recording.webm", "audio/webm"),
        (b"\0\0\0\x20ftypM4A ", "a.m4a", "recording.m4a", "audio/mp4"),
        (b"\0\0\0\x20ftypisom", "a.mov", "recording.mp4", "video/mp4"),
        (b"#!AMR\n", "a.amr", "recording.amr", "application/octet-stream"),
        (b"?", 'a.x"\r\ny', "recording", "application/octet-stream"),
        (b"?", "a", "recording", "application/octet-stream"),
    ],
)
def test_the_format_is_reported_by_the_content(
    tmp_path: Path, content: bytes, name: str, sent_as: str, media_type: str
) -> None:
    (tmp_path / name).write_bytes(content)

    recording = load_recording(tmp_path / name, 1_000, "custom")

    assert (recording.name, recording.media_type) == (sent_as, media_type)
    assert recording.data == content
    assert "data" not in repr(recording)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@given(
    st.binary(min_size=1, max_size=20), st.text(st.characters(exclude_characters="/\0"), max_size=9)
)
def test_every_content_and_extension_gives_a_plain_name(
    folder: Path, content: bytes, extension: str
) -> None:
    path = folder / f"a.{extension.encode(errors='ignore').decode()}"
    path.write_bytes(content)

    name = load_recording(path, 100, "custom").name

    assert name.isascii()
    assert name.replace(".", "", 1).isalnum()
    path.unlink()
