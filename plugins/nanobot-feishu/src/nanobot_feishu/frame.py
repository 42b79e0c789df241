"""Frame: the one protobuf message of Feishu's long connection, and its encoding (proto2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BITS = 64
_INT32_BITS = 31
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class FrameError(ValueError):
    """The bytes are not a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame.

    Attributes:
        method: 0 for control frames, 1 for data.
        headers: names and values, in order.
    """

    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    method: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    payload_encoding: str | None = None
    payload_type: str | None = None
    payload: bytes | None = None
    log_id_new: str | None = None

    def header(self, name: str) -> str:
        """Return the first header of that name, or an empty text."""
        return next((value for key, value in self.headers if key == name), "")


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    out = bytearray()
    for number, value in enumerate((frame.seq_id, frame.log_id, frame.service, frame.method), 1):
        out += _varint(number << 3 | _VARINT) + _varint(value)
    for name, text in frame.headers:
        out += _field(5, _field(1, name.encode()) + _field(2, text.encode()))
    if frame.payload_encoding is not None:
        out += _field(6, frame.payload_encoding.encode())
    if frame.payload_type is not None:
        out += _field(7, frame.payload_type.encode())
    if frame.payload is not None:
        out += _field(8, frame.payload)
    if frame.log_id_new is not None:
        out += _field(9, frame.log_id_new.encode())
    return bytes(out)


def decode(data: bytes) -> Frame:
    """Return the frame that bytes encode; unknown fields are ignored.

    Raises:
        FrameError: they do not encode one.
    """
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    headers: list[tuple[str, str]] = []
    for number, value in _fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 5:
            parts = {key: part for key, part in _fields(value) if isinstance(part, bytes)}
            headers.append((_text(parts.get(1, b"")), _text(parts.get(2, b""))))
        else:
            texts[number] = value
    if not {1, 2, 3, 4} <= numbers.keys():
        msg = "a required field is missing"
        raise FrameError(msg)
    return Frame(
        seq_id=numbers[1],
        log_id=numbers[2],
        service=_signed(numbers[3]),
        method=_signed(numbers[4]),
        headers=tuple(headers),
        payload_encoding=_text(texts[6]) if 6 in texts else None,
        payload_type=_text(texts[7]) if 7 in texts else None,
        payload=texts.get(8),
        log_id_new=_text(texts[9]) if 9 in texts else None,
    )


def _varint(value: int) -> bytes:
    rest = value & (1 << _MAX_VARINT_BITS) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _read_varint(data, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            msg = f"wire type {kind} is not known"
            raise FrameError(msg)
        part = data[position : position + size]
        if len(part) < size:
            msg = "it ends within a field"
            raise FrameError(msg)
        position += size
        if kind == _BYTES:
            yield number, part


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < _MAX_VARINT_BITS:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (1 << _MAX_VARINT_BITS) - 1, position
    msg = "it ends within a number, or a number is too long"
    raise FrameError(msg)


def _signed(value: int) -> int:
    low = value & (1 << _INT32_BITS + 1) - 1
    return low - (1 << _INT32_BITS + 1) if low >> _INT32_BITS else low


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        msg = "a text is not UTF-8"
        raise FrameError(msg) from error
