"""Makes the mail that the agent sends."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from datetime import datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

from nanobot_core import shorten
from nanobot_core.chat import HTML, PLAIN, Piece, write_markup
from nanobot_email.address import ChatRef
from nanobot_email.mapping import own_message_id
from nanobot_email.memory import Thread

_SUBJECT_CHARS = 120
_REFERENCES = 20
_PAGE = "<!DOCTYPE html>\n<html><body>{}</body></html>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What surrounds the content of a mail.

    Attributes:
        sender: address of the agent.
        chat: conversation that it belongs to.
        thread: what is known of the conversation, or ``None``.
        answered: Message-ID of the mail that it answers, or ``None``.
        prefix: before the subject of an answer.
        key: the same when the same mail is sent again.
        sent_at: time of the first attempt.
    """

    sender: str
    chat: ChatRef
    thread: Thread | None
    answered: str | None
    prefix: str
    key: str
    sent_at: datetime


def build_mail(piece: Piece, envelope: Envelope) -> EmailMessage:
    """Return the mail for a piece of a message. Blocks, because it reads the files.

    Raises:
        OSError: a file cannot be read.
    """
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"] = envelope.sender
    mail["To"] = envelope.chat.address
    mail["Subject"] = _subject(piece, envelope)
    mail["Date"] = format_datetime(envelope.sent_at)
    mail["Message-ID"] = message_id_for(piece, envelope)
    references = envelope.thread.references if envelope.thread else ()
    answered = envelope.answered or (references[-1] if references else None)
    if answered:
        # Programs find a conversation by its first mail and by those that it answers last.
        listed = [reference for reference in references if reference != answered]
        listed = listed[:1] + listed[1:][-_REFERENCES:]
        mail["In-Reply-To"] = answered
        mail["References"] = " ".join([*listed, answered])
    mail["Auto-Submitted"] = "auto-replied" if answered else "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(write_markup(piece.text, PLAIN))
    if piece.text.spans:
        mail.add_alternative(_PAGE.format(write_markup(piece.text, HTML)), subtype="html")
    for upload in piece.files:
        kind = mimetypes.guess_type(upload.path.name)[0] or "application/octet-stream"
        main, _, sub = kind.partition("/")
        if main in {"message", "multipart"}:  # these have no encoding
            main, sub = "application", "octet-stream"
        content = upload.path.read_bytes()
        mail.add_attachment(content, maintype=main, subtype=sub, filename=upload.path.name)
    return mail


def message_id_for(piece: Piece, envelope: Envelope) -> str:
    """Return the Message-ID of a piece.

    It contains the content, because a refused mail is sent again in parts with the same key.
    """
    names = "\n".join(str(upload.path) for upload in piece.files)
    whole = "\0".join((envelope.key, str(envelope.chat), piece.text.text, names))
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()
    return own_message_id(digest[:32], envelope.chat.thread or digest[:12], envelope.sender)


def _subject(piece: Piece, envelope: Envelope) -> str:
    if envelope.thread is not None and envelope.thread.subject:
        return f"{envelope.prefix}{envelope.thread.subject}"
    if envelope.answered:
        return f"{envelope.prefix}your mail"
    line = next(iter(piece.text.text.strip().splitlines()), "")
    names = ", ".join(upload.path.name for upload in piece.files)
    subject = shorten("".join(c if c.isprintable() else " " for c in line or names), _SUBJECT_CHARS)
    return subject or "A message"
