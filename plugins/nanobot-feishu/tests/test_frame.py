"""The codec of frames."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_core.chat import Cause, HandshakeRefused
from nanobot_feishu.client import ping_interval, refusal
from nanobot_feishu.frame import Frame, FrameError, decode, encode
from nanobot_feishu.link import Parts

# Written by lark-oapi 1.7 (`lark_oapi.ws.pb.pbbp2_pb2.Frame`).
RECORDED = {
    "0801108580808080808080800118f681801020012a0d0a047479706512056576656e742a110a0a6d65737361"
    "67655f696412036d2d312a080a0373756d1201312a080a037365711201302a0d0a0874726163655f69641201"
    "743a046a736f6e420a7b2261223a22c3bc227d": Frame(
        seq_id=1,
        log_id=2**63 + 5,
        service=33554678,
        method=1,
        headers=(
            ("type", "event"),
            ("message_id", "m-1"),
            ("sum", "1"),
            ("seq", "0"),
            ("trace_id", "t"),
        ),
        payload_type="json",
        payload='{"a":"ü"}'.encode(),
    ),
    "0800100018ffffffffffffffffff0120002a0c0a0474797065120470696e67": Frame(
        service=-1, headers=(("type", "ping"),)
    ),
    "08071009180120013204677a697042004a0178": Frame(
        seq_id=7,
        log_id=9,
        service=1,
        method=1,
        payload_encoding="gzip",
        payload=b"",
        log_id_new="x",
    ),
}
UINT64 = st.integers(0, 2**64 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("recorded", RECORDED)
def test_frames_are_those_of_the_sdk(recorded: str) -> None:
    assert encode(RECORDED[recorded]).hex() == recorded
    assert decode(bytes.fromhex(recorded)) == RECORDED[recorded]


@given(
    st.builds(
        Frame,
        seq_id=UINT64,
        log_id=UINT64,
        service=INT32,
        method=INT32,
        headers=st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple),
        payload_encoding=st.none() | st.text(),
        payload_type=st.none() | st.text(),
        payload=st.none() | st.binary(),
        log_id_new=st.none() | st.text(),
    )
)
def test_what_is_encoded_is_decoded(frame: Frame) -> None:
    unknown = b"\x98\x06\x01" + b"\xa2\x06\x01x" + b"\xa9\x06" + bytes(8) + b"\xad\x06" + bytes(4)
    assert decode(encode(frame)) == frame
    assert decode(encode(frame) + unknown) == frame


@given(st.binary(max_size=60), st.integers(0, 60))
def test_other_bytes_are_refused_and_nothing_else_happens(data: bytes, cut: int) -> None:
    whole = bytes.fromhex(next(iter(RECORDED)))
    for odd in (data, whole[:cut] + data):
        try:
            decode(odd)
        except FrameError:
            continue


@pytest.mark.parametrize(
    ("config", "ping_s"),
    [
        ({"PingInterval": 90, "ReconnectCount": -1}, 90.0),
        ({"PingInterval": None}, None),
        ({"PingInterval": 0}, None),
        ({"PingInterval": "x"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_an_interval_that_is_missing_is_not_used(config: object, ping_s: float | None) -> None:
    assert ping_interval(config) == ping_s


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ({"handshake-status": "514", "handshake-msg": "auth"}, Cause.CREDENTIALS),
        ({"handshake-status": "514", "handshake-autherrcode": "1000040350"}, Cause.BUSY),
        ({}, Cause.UNREACHABLE),
    ],
)
def test_a_refused_connection_says_why(headers: dict[str, str], cause: Cause) -> None:
    assert refusal(HandshakeRefused("Feishu", 403, headers)).cause is cause


@given(st.permutations(range(4)))
def test_parts_are_joined_in_any_order(order: list[int]) -> None:
    parts = Parts()
    for place, index in enumerate(order):
        headers = (("message_id", "m"), ("sum", "4"), ("seq", str(index)))
        joined = parts.join(Frame(headers=headers, payload=b"%d" % index))
        assert joined == (b"0123" if place == 3 else None)
    assert parts.join(Frame(payload=b"alone")) == b"alone"
    odd = (("message_id", "m"), ("sum", "2"), ("seq", "9"))
    assert parts.join(Frame(headers=odd, payload=b"x")) is None
