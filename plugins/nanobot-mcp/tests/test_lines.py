from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from nanobot_mcp.stdio import LineSplitter, LongLine

LIMIT = 20


@given(st.lists(st.binary(max_size=60)), st.lists(st.integers(0, 2_000), max_size=20))
def test_lines_come_out_as_they_went_in_however_they_are_cut(
    lines: list[bytes], cuts: list[int]
) -> None:
    wanted = [line.replace(b"\n", b" ") for line in lines]
    stream = b"".join(line + b"\n" for line in wanted)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    splitter = LineSplitter(LIMIT)

    found = [line for start, end in pairwise(places) for line in splitter.feed(stream[start:end])]

    assert len(found) == len(wanted)
    for line, original in zip(found, wanted, strict=True):
        if len(original) <= LIMIT:
            assert line == original
        else:
            assert isinstance(line, LongLine)
            assert line.size == len(original)
            assert original.startswith(line.head)
            assert original.endswith(line.tail)


def long_line(text: bytes) -> LongLine:
    (line,) = LineSplitter(10).feed(text + b"\n")
    assert isinstance(line, LongLine)
    return line


def test_the_id_of_a_long_answer_is_found_at_either_end() -> None:
    filler = b'"result":{"text":"' + b"x" * 10_000 + b'"}'

    assert long_line(b'{"jsonrpc":"2.0","id":17,' + filler + b"}").request_id() == 17
    assert long_line(b"{" + filler + b', "id" : "seven"}').request_id() == "seven"
    assert long_line(b"{" + filler + b"}").request_id() is None
