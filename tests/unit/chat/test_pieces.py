"""Messages in pieces, as platforms take them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("markdown_it")
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import Button, OutboundMessage
from nanobot_core.chat import Piece, SendLimits, plan_pieces
from tests.unit.chat.room import LIMITS

BUTTONS = ((Button("Yes", "yes"),),)


def plan(
    content: str,
    *files: Path,
    limits: SendLimits = LIMITS,
    buttons: tuple[tuple[Button, ...], ...] = (),
    draft_id: str | None = None,
) -> list[tuple[str, list[str], bool]]:
    """Return text, names of files and whether there are buttons, of each piece."""
    media = tuple(map(str, files))
    message = OutboundMessage(
        channel="room",
        chat_id="room",
        content=content,
        media=media,
        buttons=buttons,
        draft_id=draft_id,
    )
    return [_seen(piece) for piece in plan_pieces(message, limits)]


def _seen(piece: Piece) -> tuple[str, list[str], bool]:
    return piece.text.text, [each.path.name for each in piece.files], bool(piece.buttons)


@pytest.fixture
def make(tmp_path: Path) -> Path:
    for name, size in {"a.jpg": 5, "b.jpg": 5, "c.pdf": 5, "big.jpg": 60, "huge.pdf": 101}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "empty.txt").touch()
    return tmp_path


def test_a_short_text_goes_with_the_files(make: Path) -> None:
    assert plan("look", make / "a.jpg", make / "b.jpg", make / "c.pdf") == [
        ("look", ["a.jpg", "b.jpg"], False),
        ("", ["c.pdf"], False),
    ]


@pytest.mark.parametrize("content", ["longer than a caption", "a" * 11])
def test_a_longer_text_goes_before_them(make: Path, content: str) -> None:
    assert plan(content, make / "a.jpg") == [(content, [], False), ("", ["a.jpg"], False)]


def test_a_draft_is_completed_by_a_text(make: Path) -> None:
    assert plan("look", make / "a.jpg", draft_id="d")[0] == ("look", [], False)


def test_buttons_are_below_the_last_text(make: Path) -> None:
    assert plan("word " * 10, make / "a.jpg", buttons=BUTTONS) == [
        (("word " * 8), [], False),
        ("word word", [], True),
        ("", ["a.jpg"], False),
    ]
    assert plan("", make / "a.jpg", buttons=BUTTONS)[0] == ("…", [], True)


def test_a_picture_over_its_limit_is_a_file(make: Path) -> None:
    media = (str(make / "big.jpg"),)
    message = OutboundMessage(channel="room", chat_id="room", content="", media=media)
    (piece,) = plan_pieces(message, LIMITS)
    assert piece.files[0].kind == "file"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("huge.pdf", "larger than"), ("empty.txt", "empty"), ("gone.txt", "not exist"), (".", "not")],
)
def test_the_text_says_which_file_is_missing(make: Path, name: str, reason: str) -> None:
    pieces = plan("", make / name, limits=SendLimits(text=400, file_bytes=100))
    assert len(pieces) == 1
    assert reason in pieces[0][0]
    assert pieces[0][1] == []


def test_a_platform_without_files_says_so(make: Path) -> None:
    (piece,) = plan("x", make / "a.jpg", limits=SendLimits(text=400, file_bytes=0))
    assert piece[0] == "x\n\n(a.jpg could not be sent: this chat takes no files.)"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.text(max_size=300), st.lists(st.sampled_from(["a.jpg", "b.jpg", "c.pdf"]), max_size=9))
def test_every_file_is_in_one_piece_in_order(make: Path, content: str, names: list[str]) -> None:
    paths = [make / name for name in names]
    pieces = plan(content, *paths)
    assert [name for _, files, _ in pieces for name in files] == names
    assert all(len(files) <= LIMITS.album_files for _, files, _ in pieces)
    assert all(text.strip() or files for text, files, _ in pieces)
    assert plan(content, *paths) == pieces
