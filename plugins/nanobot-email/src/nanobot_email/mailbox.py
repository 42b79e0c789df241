"""One mailbox over IMAP. Its methods block; `MailThread` runs them."""

from __future__ import annotations

import imaplib
import re
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from imap_tools import MailBox, MailBoxUnencrypted
from imap_tools.errors import (
    ImapToolsError,
    MailboxCopyError,
    MailboxFolderSelectError,
    MailboxLoginError,
)

from nanobot_core import shorten
from nanobot_core.chat import CallFailed, Cause

if TYPE_CHECKING:
    from imap_tools import BaseMailBox

    from nanobot_email.settings import EmailSettings

_STEP_S = 30.0
"""Seconds that the server may take for each answer."""
_LONGEST_IDLE_S = 20 * 60.0
"""Servers may end a connection after 30 minutes without a command (RFC 2177)."""
_REASON_CHARS = 300
FAILURES = (imaplib.IMAP4.error, ImapToolsError, OSError, ValueError)
"""What the libraries raise; ValueError for answers that make no sense."""

_LOGIN = (
    "the IMAP server does not accept imap_username and imap_password of channels.email; many "
    "providers want an app password, which you create in the security settings of the account"
)
REFUSALS: tuple[tuple[type[Exception], str, Cause, str], ...] = (
    # RFC 5530. These are about the server, not about the password.
    (
        MailboxLoginError,
        "UNAVAILABLE",
        Cause.UNREACHABLE,
        "the IMAP server cannot check logins now",
    ),
    (MailboxLoginError, "INUSE", Cause.BUSY, "the mailbox is in use"),
    (MailboxLoginError, "LIMIT", Cause.BUSY, "the IMAP server allows no more connections"),
    (MailboxLoginError, "PRIVACYREQUIRED", Cause.CREDENTIALS, "set imap_use_ssl of channels.email"),
    (MailboxLoginError, "AUTHENTICATIONFAILED", Cause.CREDENTIALS, _LOGIN),
    (MailboxLoginError, "AUTHORIZATIONFAILED", Cause.CREDENTIALS, _LOGIN),
    (
        MailboxLoginError,
        "EXPIRED",
        Cause.CREDENTIALS,
        "imap_password of channels.email has expired",
    ),
    (MailboxLoginError, "", Cause.CREDENTIALS, _LOGIN),
    (
        MailboxFolderSelectError,
        "",
        Cause.CREDENTIALS,
        "the IMAP server does not open the folder; correct imap_mailbox of channels.email",
    ),
    (
        MailboxCopyError,
        "",
        Cause.CREDENTIALS,
        "mail cannot be moved there; correct post_action_move_mailbox of channels.email",
    ),
)
"""Error, response code, cause and explanation; the first match counts, and an empty code is any."""


def failure_of(error: Exception) -> CallFailed:
    """Return what an error of the libraries means."""
    text = shorten(str(error), _REASON_CHARS)
    for kind, code, cause, reason in REFUSALS:
        if isinstance(error, kind) and (not code or f"[{code}]" in str(error).upper()):
            return CallFailed(cause, f"{reason} ({text})")
    return CallFailed(Cause.UNREACHABLE, f"the connection to the IMAP server failed: {text}")


def is_local(host: str) -> bool:
    """Whether `host` is this machine, so that a password needs no encryption on the way."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


class Mailbox:
    """A connection that has opened the folder. It is opened once.

    All mail is named by UID: other programs change the sequence numbers.
    """

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._box: BaseMailBox | None = None
        self._abilities: frozenset[str] = frozenset()
        self._closed = threading.Event()

    def open(self) -> tuple[int, int]:
        """Log in and open the folder; return its UIDVALIDITY and the next UID."""
        settings = self._settings
        host, port = settings.imap_host, settings.imap_port
        # The library uses a context that checks no certificate if it gets none.
        context = ssl.create_default_context()
        if settings.imap_use_ssl:
            box: BaseMailBox = MailBox(host, port, timeout=_STEP_S, ssl_context=context)
        else:
            box = MailBoxUnencrypted(host, port, timeout=_STEP_S)
        self._box = box
        if self._closed.is_set():
            self.interrupt()
        if not (settings.imap_use_ssl or is_local(host)):
            box.client.starttls(context)
        password = settings.imap_password.get_secret_value()
        login = box.login if (settings.imap_username + password).isascii() else box.login_utf8
        login(settings.imap_username, password, initial_folder=None)
        answer = box.client.capability()[1]
        self._abilities = frozenset(_text(answer).upper().split())
        box.folder.set(settings.imap_mailbox)
        validity, next_uid = self._number("UIDVALIDITY"), self._number("UIDNEXT")
        if validity is None:
            # Such a server cannot name its mail (RFC 3501, 2.3.1.1).
            msg = "it reports no UIDVALIDITY"
            raise ValueError(msg)
        if next_uid is None:
            next_uid = max(self._search("ALL"), default=0) + 1
        return validity, next_uid

    def above(self, uid: int) -> list[int]:
        """Return the UIDs of mail above `uid`, in order."""
        # The server answers 'n:*' with its newest mail even if that is below n.
        return sorted(found for found in self._search(f"UID {uid + 1}:*") if found > uid)

    def size_of(self, uid: int) -> int | None:
        """Return the bytes of a mail, or ``None`` if it is gone."""
        for line in self._fetch(uid, "RFC822.SIZE"):
            found = re.search(rb"RFC822\.SIZE (\d+)", line if isinstance(line, bytes) else line[0])
            if found:
                return int(found[1])
        return None

    def read(self, uid: int, *, only_header: bool = False) -> bytes | None:
        """Return a mail without marking it as read, or ``None`` if it is gone."""
        part = "BODY.PEEK[HEADER]" if only_header else "BODY.PEEK[]"
        for line in self._fetch(uid, part):
            # Reports of flags that other programs change come in between.
            if isinstance(line, tuple) and re.search(rb"\bBODY\[", line[0]):
                return bytes(line[1])
        return None

    def wait(self, limit_s: float) -> None:
        """Wait until the server reports a change, for at most `limit_s` seconds."""
        box = self._opened()
        if "IDLE" in self._abilities:
            with box.idle as idle:
                # The library looks at the socket; news may have come with the answer before it.
                if not self._has_line():
                    # A lost connection looks like no news here; the next command finds out.
                    idle.poll(timeout=min(limit_s, _LONGEST_IDLE_S))
        else:
            self._closed.wait(limit_s)
        box.client.noop()

    def keep(self) -> None:
        """Keep the connection open."""
        self._opened().client.noop()

    def mark_seen(self, uids: Iterable[int]) -> None:
        """Mark mail as read."""
        self._store(uids, r"(\Seen)")

    def remove(self, uids: Iterable[int]) -> None:
        """Delete mail. Without UIDPLUS, it is only marked as deleted."""
        listed = list(uids)
        self._store(listed, r"(\Deleted)")
        client = self._opened().client
        if "UIDPLUS" in self._abilities:
            client.uid("EXPUNGE", _list(listed))
        elif self._settings.post_action_expunge:
            client.expunge()

    def move(self, uids: Iterable[int], folder: str) -> None:
        """Move mail to another folder."""
        listed = list(uids)
        self._opened().copy([str(uid) for uid in listed], folder)
        self.remove(listed)

    def close(self) -> None:
        """Log out, if the connection still works."""
        box = self._box
        if box is None:
            return
        if not self._closed.is_set():
            with suppress(*FAILURES):
                box.client.logout()
        self._closed.set()
        with suppress(*FAILURES):  # the library does not close after a failure
            box.client.shutdown()

    def interrupt(self) -> None:
        """Let the blocking call of another thread fail."""
        self._closed.set()
        box = self._box
        if box is not None:
            with suppress(OSError):
                box.client.socket().shutdown(socket.SHUT_RDWR)

    def _opened(self) -> BaseMailBox:
        if self._box is None or self._closed.is_set():
            msg = "it is closed"
            raise ConnectionError(msg)
        return self._box

    def _has_line(self) -> bool:
        """Whether a line was received already; it is dropped, because it only reports a change."""
        client = self._opened().client
        connection = client.socket()
        connection.settimeout(0)
        try:
            return bool(client.readline())
        except OSError:
            return False
        finally:
            connection.settimeout(_STEP_S)

    def _search(self, criteria: str) -> list[int]:
        return [int(uid) for uid in self._opened().uids(criteria, charset=None)]

    def _fetch(self, uid: int, part: str) -> list[bytes | tuple[bytes, bytes]]:
        found = self._opened().client.uid("FETCH", str(uid), f"(UID {part})")
        answer, lines = found
        if answer != "OK":
            msg = f"it does not return mail {uid}: {_text(lines)}"
            raise ValueError(msg)
        wanted = re.compile(rb"\bUID %d\b" % uid)
        return [line for line in lines if line and _is_about(line, wanted)]

    def _store(self, uids: Iterable[int], flags: str) -> None:
        self._opened().client.uid("STORE", _list(uids), "+FLAGS.SILENT", flags)

    def _number(self, name: str) -> int | None:
        values = self._opened().client.response(name)[1]
        text = _text(values)
        return int(text) if text.isdigit() else None


def _is_about(line: bytes | tuple[bytes, bytes], wanted: re.Pattern[bytes]) -> bool:
    return bool(wanted.search(line if isinstance(line, bytes) else line[0]))


def _list(uids: Iterable[int]) -> str:
    return ",".join(map(str, uids))


def _text(values: object) -> str:
    last = values[-1] if isinstance(values, list) and values else b""
    return last.decode("ascii", "replace") if isinstance(last, bytes) else ""
