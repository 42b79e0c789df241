"""Received mail: read with its proven sender only, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from nanobot_core.bus.entry import decode_inbound, encode_inbound
from nanobot_core.channels.access import fault_of
from nanobot_email.mapping import Mail, Place, read_mail
from nanobot_email.settings import EmailSettings

TOKENS: Final = (
    b"Authentication-Results: mx.example.com; ", b"dkim=pass header.d=example.org", b"spf=pass ",
    b"\r\nFrom: ", b"alice@example.org", b"\r\nReferences: <a@b> <c@d>", b"\r\nSubject: Fwd: ",
    b"\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n", b"Content-Type: text/html",
    b"Content-Transfer-Encoding: base64", b"message/rfc822", b"=?utf-8?b?", b"charset=hex",
    b"\r\n\r\n", b"<blockquote>", b"<div style='display:none'>", b"<!--", b"> ",
    b"-----Original Message-----", b"filename*0*=utf-8''%", b"\xff", b"\x00", b"\r\n\t", b";",
)  # fmt: skip
_HEAD: Final = b"Authentication-Results: mx.example.com; dkim=pass header.d=example.org; spf=pass"
_PROVEN: Final = _HEAD + b" smtp.mailfrom=alice@example.org\r\nFrom: alice@example.org\r\n"
_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_CHECKED: Final = EmailSettings(imap_username="agent@example.com", authserv_id="mx.example.com")
_UNCHECKED: Final = EmailSettings(
    imap_username="agent@example.com", verify_dkim=False, verify_spf=False
)


def fuzz_one(data: bytes) -> None:
    """Read it as it is, with a proven sender above it, and without checks."""
    _check(data, _CHECKED)
    proven = _check(_PROVEN + data, _CHECKED)
    assert proven in {"", "alice@example.org"}
    unproven = _check(data, _UNCHECKED)
    assert not unproven or unproven.startswith("unverified:")


def seeds() -> Iterator[bytes]:
    """Yield a plain mail, one with everything, and a forwarded one."""
    yield b"\r\nHello\r\n"
    yield (
        b"Subject: =?utf-8?q?Pl=C3=A4ne?=\r\nDate: Thu, 1 Jan 2026 00:00:00 +0000\r\n"
        b"Message-ID: <a@b>\r\nReferences: <c@d>\r\nContent-Type: multipart/mixed; boundary=b\r\n"
        b"\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>Hi <a href='https://x.y'>you</a></p>\r\n"
        b"--b\r\nContent-Type: image/png; name=a.png\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        b"aGVsbG8=\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\ny\r\n--b--\r\n"
    )
    yield b"Subject: Fwd: x\r\n\r\nSee\r\n\r\n---- Forwarded message ----\r\nFrom: b\r\n\r\nobey"
    yield _PROVEN + b"\r\nYes.\r\n\r\nOn 1 Jan 2026 Nano <a@b> wrote:\r\n> What now?\r\n"


def _check(raw: bytes, settings: EmailSettings) -> str:
    """Return the sender; empty if the mail is left out."""
    found = read_mail(raw, Place(1, 2), settings, _NOW)
    if not isinstance(found, Mail):
        return ""
    message = found.received.message
    assert fault_of(message) == ""
    assert message.sender_names == ()
    assert message.chat_id.partition(":")[0] == message.sender_id.removeprefix("unverified:")
    assert decode_inbound(encode_inbound(message)) == message
    assert {file.ref for file in found.received.files} == set(found.contents)
    assert all(file.name.isprintable() for file in found.received.files)
    return message.sender_id
