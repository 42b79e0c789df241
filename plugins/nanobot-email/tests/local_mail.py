"""A local mail service: a mailbox over IMAP4rev1, and SMTP by aiosmtpd.

The IMAP server follows RFC 3501, 2177 (IDLE) and 4315 (UIDPLUS) in what mail programs see: sequence
numbers that shift, ``UID n:*`` that always contains the newest mail, UIDVALIDITY, flags and
reports in between. `tests/test_mailbox.py` runs the same tests with it and with Dovecot.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from time import monotonic
from typing import Any, TypeVar

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER = "agent@example.com"
PASSWORD = "app-password-of-the-agent"
PERSON = "alice@example.org"
AUTHSERV = "mx.example.com"
_LIMIT_S = 10.0
T = TypeVar("T")


def proof(sender: str, authserv_id: str = AUTHSERV, dkim: str = "pass", spf: str = "pass") -> str:
    """Return a header of the receiving server about a mail of `sender`."""
    domain = sender.rpartition("@")[2]
    return (
        f"Authentication-Results: {authserv_id};\r\n"
        f"\tdkim={dkim} header.i=@{domain} header.s=s1 header.b=abc;\r\n"
        f"\tspf={spf} (says who: {domain}) smtp.mailfrom={sender}\r\n"
    )


def written(
    text: str,
    *,
    sender: str = PERSON,
    message_id: str = "<m1@example.org>",
    proven: bool = True,
    **headers: str,
) -> bytes:
    """Return a mail as a mail program writes it and the receiving server stores it."""
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"] = sender
    mail["To"] = USER
    mail["Message-ID"] = message_id
    for name, value in headers.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(text)
    head = proof(sender.rpartition("<")[2].rstrip(">")) if proven else ""
    return head.encode() + mail.as_bytes()


def thread_of(message_id: str) -> str:
    """Return how the channel names the conversation that begins with a mail."""
    return hashlib.sha256(message_id.encode()).hexdigest()[:12]


@dataclass
class StoredMail:
    """A mail in a folder."""

    uid: int
    raw: bytes
    flags: set[str] = field(default_factory=set)


@dataclass
class LocalFolder:
    """A folder of the account."""

    validity: int
    next_uid: int = 1
    mails: list[StoredMail] = field(default_factory=list)

    def add(self, raw: bytes) -> int:
        """Append a mail and return its UID."""
        uid, self.next_uid = self.next_uid, self.next_uid + 1
        self.mails.append(StoredMail(uid, raw))
        return uid


@dataclass(frozen=True)
class Sent:
    """A mail that a person received.

    Attributes:
        recipients: as the envelope names them.
        mail: the parsed mail.
    """

    recipients: tuple[str, ...]
    mail: EmailMessage

    @property
    def text(self) -> str:
        """What a program without HTML shows."""
        body = self.mail.get_body(("plain",))
        text = "" if body is None else str(body.get_content())
        return text.replace("\r\n", "\n").removesuffix("\n")


class LocalMail:
    """Both servers, in a loop of a thread. Use it with ``with``.

    Args:
        tls: for connections that are encrypted from the first byte; without it, none are.

    Attributes:
        folders: of the account; ``INBOX`` exists.
        received: what people received, without repetitions of a Message-ID, in order.
        all_received: the same with repetitions.
        refusals: what the next SMTP commands answer: command such as ``RCPT``, and the line.
        connections: number of IMAP connections so far.
        logins: number of attempts to log in to either server.
        has_idle: whether IMAP offers IDLE.
        lose_after_data: the next mails are taken, and the connection breaks before the answer.
        is_read: an IMAP client has opened a folder.
        accepts: whether logins are accepted.
        blocked: addresses that refuse mail.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._validity = 1_700_000_000
        self.folders: dict[str, LocalFolder] = {"INBOX": LocalFolder(validity=self._validity)}
        self.received: list[Sent] = []
        self.all_received: list[Sent] = []
        self.refusals: list[tuple[str, str]] = []
        self.connections = 0
        self.logins = 0
        self._silent: set[asyncio.StreamWriter] = set()
        self.has_idle = True
        self.lose_after_data = 0
        self.is_read = False
        self.accepts = True
        self.blocked: set[str] = set()
        self.imap_port = 0
        self.smtp_port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._smtp_transports: set[asyncio.BaseTransport] = set()
        self._left: int | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> LocalMail:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT_S)
        self._loop.close()

    @property
    def settings(self) -> dict[str, Any]:
        """The section ``channels.email`` for this service."""
        return {
            "consent_granted": True,
            "imap_host": "127.0.0.1",
            "imap_port": self.imap_port,
            "imap_username": USER,
            "imap_password": PASSWORD,
            "imap_use_ssl": self._tls is not None,
            "smtp_host": "127.0.0.1",
            "smtp_port": self.smtp_port,
            "smtp_username": USER,
            "smtp_password": PASSWORD,
            "smtp_use_tls": False,
            "smtp_use_ssl": self._tls is not None,
            "authserv_id": AUTHSERV,
            "allow_from": [PERSON],
            "poll_interval_seconds": 1,
        }

    def deliver(self, raw: bytes, folder: str = "INBOX") -> int:
        """Let a mail arrive, and return its UID."""

        def add() -> int:
            uid = self.folders[folder].add(raw)
            self._tell()
            return uid

        return self._do(add)

    def expunge(self, uid: int, folder: str = "INBOX") -> None:
        """Let another program remove a mail."""

        def remove() -> None:
            mails = self.folders[folder].mails
            mails[:] = [mail for mail in mails if mail.uid != uid]
            self._tell()

        self._do(remove)

    def renumber(self, folder: str = "INBOX") -> None:
        """Create the folder again, with the same mail and other numbers."""

        def renumber() -> None:
            old = self.folders[folder]
            new = self.folders[folder] = LocalFolder(validity=self.next_validity())
            for mail in old.mails:
                new.add(mail.raw)
            self._drop()

        self._do(renumber)

    def drop(self) -> None:
        """Break all connections; new ones are accepted."""
        self._do(self._drop)

    def hang_up(self, after: int = 0) -> None:
        """Take `after` more mails, then break and refuse all connections."""

        def hang_up() -> None:
            self._left = after
            if not after:
                self._drop()

        self._do(hang_up)

    def go_silent(self) -> None:
        """Let the present IMAP connections stay open, and send nothing on them any more."""
        self._do(lambda: self._silent.update(self._clients))

    def next_validity(self) -> int:
        """Return the UIDVALIDITY of a new folder."""
        self._validity += 1
        return self._validity

    def opened(self) -> None:
        """Note that a client has opened a folder."""
        self.is_read = True
        self._tell()

    def is_silenced(self, client: asyncio.StreamWriter) -> bool:
        """Whether nothing is sent to a client."""
        return client in self._silent

    def come_back(self) -> None:
        """Accept connections again."""

        def come_back() -> None:
            self._left = None

        self._do(come_back)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Block until `condition` holds.

        Raises:
            TimeoutError: it does not within the limit.
        """
        end_s = monotonic() + _LIMIT_S
        with self._changed:
            while not condition():
                if monotonic() > end_s:
                    raise TimeoutError
                self._changed.wait(0.02)  # the condition may be about the channel

    # --- the loop

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_S)

    def _do(self, work: Callable[[], T]) -> T:
        async def do() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(_LIMIT_S)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    async def _open(self) -> None:
        imap = await asyncio.start_server(
            self._serve_imap, "127.0.0.1", 0, limit=2**26, ssl=self._tls
        )
        smtp = await self._loop.create_server(self._smtp_protocol, "127.0.0.1", 0, ssl=self._tls)
        self._servers = [imap, smtp]
        self.imap_port = imap.sockets[0].getsockname()[1]
        self.smtp_port = smtp.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._drop()
        for server in self._servers:
            server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    def _drop(self) -> None:
        for transport in [*(client.transport for client in self._clients), *self._smtp_transports]:
            _abort(transport)
        self._smtp_transports.clear()

    @property
    def refuses(self) -> bool:
        """Whether connections are refused."""
        return self._left is not None and self._left <= 0

    # --- SMTP

    def _smtp_protocol(self) -> asyncio.Protocol:
        handler = _SmtpHandler(self)
        protocol: asyncio.Protocol = SMTP(
            handler,
            authenticator=handler.check,
            auth_require_tls=False,
            hostname="smtp.example.com",
            data_size_limit=40_000_000,
            loop=self._loop,
        )
        return protocol

    def meet(self, transport: asyncio.BaseTransport | None) -> None:
        """Remember an SMTP connection, or refuse it."""
        if self.refuses:
            _abort(transport)
        elif transport is not None:
            self._smtp_transports.add(transport)

    def take(self, envelope: Envelope) -> None:
        """Show a mail to its recipient."""
        raw = envelope.content if isinstance(envelope.content, bytes) else b""
        sent = Sent(tuple(envelope.rcpt_tos), message_from_bytes(raw, policy=policy.default))
        self.all_received.append(sent)
        known = {other.mail["Message-ID"] for other in self.received}
        if sent.mail["Message-ID"] not in known:
            self.received.append(sent)
        if self._left is not None:
            self._left -= 1
        self._tell()

    def refusal(self, command: str) -> str | None:
        """Return what `command` answers instead of success."""
        for index, (refused, line) in enumerate(self.refusals):
            if refused == command:
                del self.refusals[index]
                return line
        return None

    # --- IMAP

    async def _serve_imap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._clients.add(writer)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.refuses:
                return
            self.connections += 1
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await _ImapSession(self, reader, writer).run()
        finally:
            self._clients.discard(writer)
            self._tasks.discard(task)
            writer.close()


def _abort(transport: asyncio.BaseTransport | None) -> None:
    if isinstance(transport, asyncio.WriteTransport):
        with suppress(AttributeError):  # before CPython 3.11.4, of one that was closed twice
            transport.abort()


class _SmtpHandler:
    """What the SMTP server does with logins and mail, and the faults of its service."""

    def __init__(self, service: LocalMail) -> None:
        self._service = service

    def check(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        self._service.logins += 1
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (
            USER.encode(),
            PASSWORD.encode(),
        )
        return AuthResult(success=is_right and self._service.accepts, handled=False)

    async def handle_EHLO(  # noqa: N802 - aiosmtpd names it
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        hostname: str,
        responses: list[str],
    ) -> list[str]:
        session.host_name = hostname
        self._service.meet(server.transport)
        return responses

    async def handle_MAIL(  # noqa: N802 - aiosmtpd names it
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not session.authenticated:
            return "530 5.7.0 Authentication required"
        if (line := self._service.refusal("MAIL")) is not None:
            return line
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd names it
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if (line := self._service.refusal("RCPT")) is not None:
            return line
        if address in self._service.blocked:
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd names it
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        service = self._service
        if (line := service.refusal("DATA")) is not None:
            return line
        if service.refuses:
            _abort(server.transport)
            return "421 closing"
        service.take(envelope)
        if service.lose_after_data:
            service.lose_after_data -= 1
            _abort(server.transport)
        return "250 OK"


class _ImapSession:
    """One IMAP connection."""

    def __init__(
        self, service: LocalMail, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._user = False
        self._selected = ""
        self._shown: list[int] = []
        """UIDs by sequence number, as the client knows them."""
        self._validity = 0

    async def run(self) -> None:
        self._say("* OK [CAPABILITY IMAP4rev1] ready")
        while line := await self._reader.readline():
            tag, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            while (literal := re.search(r"\{(\d+)(\+?)\}$", rest)) is not None:
                if not literal[2]:
                    self._say("+ go on")
                data = await self._reader.readexactly(int(literal[1]))
                more = await self._reader.readline()
                rest = rest[: literal.start()] + "{}" + more.decode("utf-8", "replace").rstrip()
                self._literal = data
            if self._service.is_silenced(self._writer):
                continue
            name, _, arguments = rest.partition(" ")
            if name.upper() == "UID":
                kind, _, arguments = arguments.partition(" ")
                name = f"UID_{kind}"
            if name.upper() == "LOGOUT":
                self._say("* BYE", f"{tag} OK bye")
                await self._writer.drain()
                return
            if name.upper() == "IDLE":
                await self._idle(tag)
                continue
            work = getattr(self, f"_{name.lower()}", None)
            if work is None or (
                not self._user and name.upper() not in {"LOGIN", "CAPABILITY", "NOOP"}
            ):
                self._say(f"{tag} BAD unknown command")
            else:
                answer = work(arguments)
                self._say(f"{tag} {answer}")
            await self._writer.drain()

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._writer.write(line.encode() + b"\r\n")

    @property
    def _folder(self) -> LocalFolder:
        return self._service.folders[self._selected]

    def _report(self) -> None:
        """Report what has changed since the client last heard, as RFC 3501 allows now."""
        if not self._selected:
            return
        present = [mail.uid for mail in self._folder.mails]
        for number in range(len(self._shown), 0, -1):
            if self._shown[number - 1] not in present:
                self._say(f"* {number} EXPUNGE")
                del self._shown[number - 1]
        if len(present) > len(self._shown):
            self._shown = present
            self._say(f"* {len(present)} EXISTS")

    def _capability(self, _: str) -> str:
        idle = " IDLE" if self._service.has_idle else ""
        self._say(f"* CAPABILITY IMAP4rev1 UIDPLUS{idle}")
        return "OK done"

    def _login(self, arguments: str) -> str:
        self._service.logins += 1
        names = [word.strip('"') for word in arguments.split(" ")]
        self._user = self._service.accepts and names == [USER, PASSWORD]
        return "OK in" if self._user else "NO [AUTHENTICATIONFAILED] Invalid credentials"

    def _noop(self, _: str) -> str:
        self._report()
        return "OK done"

    def _select(self, arguments: str) -> str:
        name = arguments.strip('"')
        if name not in self._service.folders:
            return "NO no such mailbox"
        self._selected = name
        folder = self._folder
        self._service.opened()
        self._shown = [mail.uid for mail in folder.mails]
        self._say(
            "* FLAGS (\\Seen \\Deleted)",
            f"* {len(self._shown)} EXISTS",
            "* 0 RECENT",
            f"* OK [UIDVALIDITY {folder.validity}] valid",
            f"* OK [UIDNEXT {folder.next_uid}] next",
        )
        return "OK [READ-WRITE] open"

    def _append(self, arguments: str) -> str:
        folder = self._service.folders.get(arguments.partition(" ")[0].strip('"'))
        if folder is None:
            return "NO [TRYCREATE] no such mailbox"
        uid = folder.add(self._literal)
        self._service._tell()
        return f"OK [APPENDUID {folder.validity} {uid}] done"

    def _create(self, arguments: str) -> str:
        folders, name = self._service.folders, arguments.strip('"')
        if name in folders:
            return "NO it exists"
        folders[name] = LocalFolder(validity=self._service.next_validity())
        return "OK done"

    def _delete(self, arguments: str) -> str:
        found = self._service.folders.pop(arguments.strip('"'), None)
        return "NO no such mailbox" if found is None else "OK done"

    def _expunge(self, _: str) -> str:
        return self._uid_expunge(",".join(str(mail.uid) for mail in self._folder.mails))

    def _uid_search(self, arguments: str) -> str:
        folder = self._folder
        found = re.fullmatch(r"\(?UID (\d+):\*\)?", arguments.strip(), re.IGNORECASE)
        newest = max((mail.uid for mail in folder.mails), default=0)
        lowest = min(int(found[1]), newest) if found else 1
        uids = [
            str(mail.uid)
            for mail in folder.mails
            if mail.uid >= lowest and (arguments != "SEEN" or "\\Seen" in mail.flags)
        ]
        self._say(f"* SEARCH {' '.join(uids)}".rstrip())
        self._report()
        return "OK done"

    def _uid_fetch(self, arguments: str) -> str:
        numbers, _, parts = arguments.partition(" ")
        for mail in self._mails(numbers):
            number = self._shown.index(mail.uid) + 1 if mail.uid in self._shown else 1
            fields = f"UID {mail.uid}"
            if "RFC822.SIZE" in parts:
                fields += f" RFC822.SIZE {len(mail.raw)}"
            if "BODY" in parts:
                is_header = "HEADER" in parts
                data = mail.raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if is_header else mail.raw
                name = "BODY[HEADER]" if is_header else "BODY[]"
                # Another program has changed a flag meanwhile.
                self._say(f"* {number} FETCH (FLAGS (\\Recent))")
                self._writer.write(
                    f"* {number} FETCH ({fields} {name} {{{len(data)}}}\r\n".encode()
                )
                self._writer.write(data)
                self._say(")")
            else:
                self._say(f"* {number} FETCH ({fields})")
        return "OK done"

    def _uid_store(self, arguments: str) -> str:
        numbers, _, flags = arguments.partition(" ")
        for mail in self._mails(numbers):
            mail.flags |= set(re.findall(r"\\\w+", flags))
        self._service._tell()
        return "OK done"

    def _uid_copy(self, arguments: str) -> str:
        numbers, _, name = arguments.partition(" ")
        target = self._service.folders.get(name.strip('"'))
        if target is None:
            return "NO [TRYCREATE] no such mailbox"
        for mail in self._mails(numbers):
            target.add(mail.raw)
        return "OK done"

    def _uid_expunge(self, arguments: str) -> str:
        gone = [mail for mail in self._mails(arguments) if "\\Deleted" in mail.flags]
        self._folder.mails[:] = [mail for mail in self._folder.mails if mail not in gone]
        self._report()
        self._service._tell()
        return "OK done"

    def _mails(self, numbers: str) -> list[StoredMail]:
        wanted = {int(number) for number in numbers.split(",")}
        return [mail for mail in self._folder.mails if mail.uid in wanted]

    async def _idle(self, tag: str) -> None:
        self._say("+ idling")
        done = asyncio.ensure_future(self._reader.readline())
        try:
            while not done.done():
                if not self._service.is_silenced(self._writer):
                    self._report()
                    await self._writer.drain()
                await asyncio.wait({done}, timeout=0.02)
            await done
        finally:
            done.cancel()
        if not self._service.is_silenced(self._writer):
            self._say(f"{tag} OK idle ends")
