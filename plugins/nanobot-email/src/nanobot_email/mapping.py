"""Converts a received mail to a message of nanobot, with pure functions."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from email import message_from_bytes, policy
from email.headerregistry import AddressHeader
from email.message import EmailMessage
from fnmatch import fnmatch

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_email.address import UNVERIFIED, ChatRef, domain_of, parse_address, thread_named
from nanobot_email.authentication import proven_methods
from nanobot_email.body import Words, split_body
from nanobot_email.html_text import render_html
from nanobot_email.settings import EmailSettings

_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,250}>", re.ASCII)
_OWN_ID = re.compile(r"<nanobot\.[0-9a-f]{32}\.([0-9a-f]{12})@([^@>]+)>", re.ASCII)
"""A mail of the agent; it contains the id of its conversation, see `own_message_id`."""
_MACHINES = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|noreply-.*|bounces?[+-].*)@", re.ASCII
)
_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_ANSWER_MARKS = re.compile(r"^(\s*(re|aw|sv|antw?|ref)\s*[:\uff1a])+", re.IGNORECASE)
_SUBJECT_CHARS = 200
_REFERENCES = 30
_DEEPEST = 20
_PARTS = 500
_LOGO_BYTES = 10_000
"""Smaller pictures that the HTML of a mail refers to belong to a signature."""
_LONGEST_DELAY = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail for the agent.

    Attributes:
        received: the message, without files.
        contents: reference of each file to its content.
        subject: on one line, without the marks of answers.
        references: Message-IDs of the conversation so far, the oldest first, with this mail's.
    """

    received: Received
    contents: dict[str, bytes]
    subject: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A mail that is not for the agent.

    Attributes:
        reason: why, without its content.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mail is in the mailbox.

    Attributes:
        validity: UIDVALIDITY of the mailbox.
        uid: UID of the mail.
        note: added to its text, such as a reason why it was not read as a whole.
    """

    validity: int
    uid: int
    note: str = ""


def read_mail(raw: bytes, place: Place, settings: EmailSettings, now: datetime) -> Mail | Skipped:
    """Return the content of a mail, or why the agent does not get it."""
    try:
        mail = message_from_bytes(raw, policy=policy.default)
        return _read(mail, place, settings, now)
    except Exception as error:  # noqa: BLE001 - isolation point: one mail must not stop the others
        # The parser of headers has faults of its own.
        return Skipped(f"it cannot be read: {type(error).__name__}")


def own_message_id(digest: str, thread: str, address: str) -> str:
    """Return the Message-ID of a mail of the agent.

    Args:
        digest: 32 hexadecimal digits, the same when the same mail is sent again.
        thread: id of the conversation, which an answer contains so even if its program shortens
            the list of earlier mails.
        address: of the agent.
    """
    return f"<nanobot.{digest}.{thread}@{domain_of(address)}>"


def message_id_of(dedupe_key: str) -> str | None:
    """Return the Message-ID of the mail with this key, or ``None`` if it has none."""
    message_id = dedupe_key.partition(" ")[2]
    return message_id if _MESSAGE_ID.fullmatch(message_id) else None


def _read(
    mail: EmailMessage, place: Place, settings: EmailSettings, now: datetime
) -> Mail | Skipped:
    raw = [(name, str(value)) for name, value in mail.raw_items()]
    sender = _sender(mail, raw)
    if isinstance(sender, Skipped):
        return sender
    if machine := _machine(mail, sender, settings):
        return Skipped(machine)
    is_proven = settings.verifies
    if is_proven:
        proven = proven_methods(raw, settings.authserv_names, domain_of(sender))
        needed = {"dkim": settings.verify_dkim, "spf": settings.verify_spf}
        missing = [name for name, is_needed in needed.items() if is_needed and name not in proven]
        if missing:
            names = " and ".join(missing).upper()
            return Skipped(
                f"its sender is not proven by {names} in {settings.authserv_id}'s results"
            )
    message_id = _first_id(mail, "message-id")
    earlier = (*_ids(mail, "references"), *_ids(mail, "in-reply-to"))
    subject = _subject(mail)
    leaves = list(_leaves(mail))
    words = split_body(_text(leaves), str(mail.get("subject", "")))
    files, contents, notes = _files(leaves, place, settings)
    notes = [place.note, *notes] if place.note else notes
    content = _content(words, "" if earlier else subject, settings.max_body_chars)
    if not (content or files or notes):
        return Skipped("it is empty")
    own = f"{place.validity}:{place.uid}"
    root = (*earlier, message_id or own)
    chat = ChatRef(sender, _thread(root, settings.own_address))
    facts: JsonObject = {"subject": subject, "name": _name(mail), "verified": is_proven}
    message = InboundMessage(
        channel="email",
        sender_id=sender if is_proven else f"{UNVERIFIED}{sender}",
        chat_id=str(chat),
        content="\n".join(part for part in (content, *notes) if part),
        timestamp=_timestamp(mail, now),
        metadata=facts | {"message_id": message_id},
        # Ids of another sender's mail must not count as a repetition of it.
        dedupe_key=f"{sender} {message_id}" if message_id else f"uid {own}",
        is_forwarded=not is_proven or not words.own,
    )
    references = tuple(dict.fromkeys(filter(None, (*earlier, message_id))))
    shorter = references[:1] + references[1:][-_REFERENCES:]
    return Mail(Received(message=message, files=tuple(files)), contents, subject, shorter)


# --- who


def _sender(mail: EmailMessage, raw: list[tuple[str, str]]) -> str | Skipped:
    """Return the address of the only author. A display name is no identity: anyone can set it."""
    if sum(name.lower() == "from" for name, _ in raw) != 1:
        return Skipped("it has no or several headers 'From'")
    header = mail["from"]
    groups = header.groups if isinstance(header, AddressHeader) else ()
    is_list = any(group.display_name is not None for group in groups)
    found = [] if is_list else [address for group in groups for address in group.addresses]
    address = parse_address(found[0].addr_spec) if len(found) == 1 else None
    return address or Skipped("its header 'From' is not one plain mail address")


def _name(mail: EmailMessage) -> str:
    header = mail["from"]
    return shorten(_visible(header.addresses[0].display_name), 100)


def _machine(mail: EmailMessage, sender: str, settings: EmailSettings) -> str:
    """Return the sign that a machine wrote a mail, or an empty string."""
    if sender in settings.own_addresses:
        return "the agent sent it"
    if _MACHINES.match(sender):
        return "its sender is a machine"
    automatic = _plain(mail, "auto-submitted").partition(";")[0].strip()
    signs = {
        "Auto-Submitted": automatic not in {"", "no"},
        "Precedence": _plain(mail, "precedence") in _BULK,
        "List-Id": "list-id" in mail,
        "Return-Path": _plain(mail, "return-path") == "<>",
        "X-Autoreply": bool({"x-autoreply", "x-autorespond", "x-loop"} & set(map(str.lower, mail))),
        "X-Auto-Response-Suppress": bool(
            {"all", "autoreply"}
            & set(re.split(r"[,\s]+", _plain(mail, "x-auto-response-suppress")))
        ),
        "Content-Type": mail.get_content_type() == "multipart/report",
    }
    found = [name for name, is_set in signs.items() if is_set]
    return f"it is automated mail: {found[0]}" if found else ""


def _plain(mail: EmailMessage, name: str) -> str:
    return str(mail.get(name, "")).strip().lower()


# --- which conversation


def _thread(ids: tuple[str, ...], own_address: str) -> str:
    """Return the id of the conversation of a mail with these Message-IDs, the oldest first."""
    for message_id in reversed(ids):
        own = _OWN_ID.fullmatch(message_id)
        if own is not None and own[2] == domain_of(own_address):
            return own[1]
    return thread_named(ids[0])


def _ids(mail: EmailMessage, name: str) -> list[str]:
    return _MESSAGE_ID.findall(str(mail.get(name, "")))[-_REFERENCES * 2 :]


def _first_id(mail: EmailMessage, name: str) -> str | None:
    return next(iter(_ids(mail, name)), None)


def _subject(mail: EmailMessage) -> str:
    subject = _visible(str(mail.get("subject", "")))
    return shorten(_ANSWER_MARKS.sub("", subject), _SUBJECT_CHARS)


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _timestamp(mail: EmailMessage, now: datetime) -> datetime | None:
    """Return when it was sent, if that is plausible: the clock is the sender's."""
    sent = getattr(mail["date"], "datetime", None)
    if not isinstance(sent, datetime) or sent.tzinfo is None:
        return None
    return sent if now - _LONGEST_DELAY < sent <= now else None


# --- what


def _content(words: Words, subject: str, max_chars: int) -> str:
    """Return the text with its context. A command has no context, so that it is recognised."""
    own = words.own
    if len(own) > max_chars:
        own = f"{own[:max_chars]}\n[{len(own) - max_chars} more characters were left out]"
    if own.startswith("/"):
        return own
    lines = [f"[subject: {subject}]" if subject and (own or words.forwarded) else subject, own]
    if words.forwarded:
        passed_on = words.forwarded[: max(0, max_chars - len(own))]
        lines.append("[forwarded, written by someone else]")
        lines.extend(f"> {line}" for line in passed_on.splitlines())
    return "\n".join(line for line in lines if line)


def _leaves(part: EmailMessage, depth: int = 0) -> Iterator[EmailMessage]:
    """Yield the parts with content. A mail inside the mail is one: it has another author."""
    if part.get_content_maintype() != "multipart" or not part.is_multipart() or depth > _DEEPEST:
        yield part
        return
    for number, inner in enumerate(part.iter_parts()):
        if number < _PARTS and isinstance(inner, EmailMessage):
            yield from _leaves(inner, depth + 1)


def _is_text(part: EmailMessage) -> bool:
    is_file = part.get_content_disposition() == "attachment" or part.get_filename()
    return part.get_content_maintype() == "text" and not is_file


def _text(leaves: list[EmailMessage]) -> str:
    plain = [_decoded(leaf) for leaf in leaves if _is_text(leaf) and _is_plain(leaf)]
    text = "\n".join(plain)
    if text.strip():
        return text
    html = [_decoded(leaf) for leaf in leaves if _is_text(leaf) and not _is_plain(leaf)]
    return "\n".join(render_html(page) for page in html)


def _is_plain(part: EmailMessage) -> bool:
    return part.get_content_subtype() != "html"


def _decoded(part: EmailMessage) -> str:
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    for charset in (part.get_content_charset() or "utf-8", "utf-8"):
        try:
            return data.decode(charset, "replace").replace("\0", "")
        except (LookupError, ValueError):  # an unknown charset, or one that is no charset
            continue
    return ""


def _files(
    leaves: list[EmailMessage], place: Place, settings: EmailSettings
) -> tuple[list[Attachment], dict[str, bytes], list[str]]:
    """Return the files, their contents, and a line for each that is left out."""
    files: list[Attachment] = []
    contents: dict[str, bytes] = {}
    notes: list[str] = []
    for number, part in enumerate(leaves):
        if _is_text(part) and part.get_content_subtype() in {"plain", "html"}:
            continue
        data = _bytes(part)
        if not data or _is_logo(part, data):
            continue
        name = _file_name(part, number)
        kind = part.get_content_type()
        problem = ""
        if not any(fnmatch(kind, allowed) for allowed in settings.allowed_attachment_types):
            problem = f"files of type {kind} are not accepted"
        elif len(data) > settings.max_attachment_size:
            problem = f"it is larger than {settings.max_attachment_size:,} bytes"
        elif len(files) >= settings.max_attachments_per_email:
            problem = "the mail has too many files"
        if problem:
            notes.append(f"[{name} was left out: {problem}]")
        else:
            ref = f"{place.validity}:{place.uid}:{number}"
            files.append(Attachment(ref=ref, name=name, size=len(data)))
            contents[ref] = data
    return files, contents, notes[:20]


def _bytes(part: EmailMessage) -> bytes:
    if part.get_content_maintype() == "message" and part.is_multipart():
        inner = part.get_payload(0)
        return inner.as_bytes() if isinstance(inner, EmailMessage) else b""
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _is_logo(part: EmailMessage, data: bytes) -> bool:
    is_inline = part.get_content_disposition() == "inline" or part.get_content_disposition() is None
    is_picture = part.get_content_maintype() == "image" and "content-id" in part
    return is_inline and is_picture and len(data) < _LOGO_BYTES


def _file_name(part: EmailMessage, number: int) -> str:
    name = shorten(_visible(part.get_filename() or ""), 120)
    if name:
        return name
    if part.get_content_maintype() == "message":
        return f"mail-{number}.eml"
    return f"file-{number}{mimetypes.guess_extension(part.get_content_type()) or ''}"
