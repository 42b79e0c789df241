"""Server-sent events, however their bytes arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from nanobot_core.providers.sse import EventParser, EventTooLargeError, ServerEvent

_LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
_LINES = st.one_of(
    st.sampled_from(["", "data", "data:", ": comment", "event: error", "id: 7", "data:  two"]),
    st.text(st.characters(exclude_characters="\r\n"), max_size=12).map(
        lambda text: f"data: {text}"
    ),
)


def _parse(*pieces: bytes, limit: int = 10_000) -> list[ServerEvent]:
    parser = EventParser(limit)
    return [event for piece in pieces for event in parser.feed(piece)]


@given(st.lists(st.tuples(_LINES, _LINE_ENDS)), st.booleans(), st.data())
def test_any_division_into_pieces_gives_the_same_events(
    lines: list[tuple[str, str]], bom: bool, data: st.DataObject
) -> None:
    stream = (("\ufeff" if bom else "") + "".join(line + end for line, end in lines)).encode(
        "utf-8", "surrogatepass"
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert _parse(*pieces) == _parse(stream)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_what_is_written_as_data_is_read_again(texts: list[str]) -> None:
    stream = "".join(f"data: {text}\n\n" for text in texts).encode()
    assert [event.data for event in _parse(stream)] == texts


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\ndata: two\n\n", [ServerEvent("one"), ServerEvent("two")]),
        (b"data: a\ndata: b\n\n", [ServerEvent("a\nb")]),
        (b"data:no space\r\n\r\n", [ServerEvent("no space")]),
        (b"data:  one space is kept\r\r", [ServerEvent(" one space is kept")]),
        (b": comment\n\n\n", []),
        (b"data\n\n", [ServerEvent("")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [ServerEvent("x", "error"), ServerEvent("y")]),
        (b"event: lonely\n\n", []),
        (b"retry: 10\nid: 4\nunknown: z\ndata: x\n\n", [ServerEvent("x")]),
        (b"data: never closed\n", []),
        (
            b"\xef\xbb\xbfdata: after a byte order mark\n\n",
            [ServerEvent("after a byte order mark")],
        ),
        (b"data: \xff\n\n", [ServerEvent("\ufffd")]),
    ],
)
def test_the_stream_is_read_as_the_standard_says(stream: bytes, events: list[ServerEvent]) -> None:
    assert _parse(stream) == events


def test_a_line_feed_after_a_divided_line_end_opens_no_line() -> None:
    assert _parse(b"data: a\r", b"\ndata: b\r", b"", b"\n\r\n") == [ServerEvent("a\nb")]


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 200, b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60 + b"\n"]
)
def test_an_event_beyond_the_limit_is_refused(stream: bytes) -> None:
    with pytest.raises(EventTooLargeError, match="100 bytes"):
        _parse(stream, limit=100)
