"""Settings of the email channel."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, SecretStr

from nanobot_core import ChannelSettings
from nanobot_email.address import parse_address

MAX_CHARS = 30_000
"""Longest text of one mail of the agent."""
_Port = Annotated[int, Field(ge=1, le=65_535)]


def _check_address(text: str) -> str:
    if not text:
        return ""
    address = parse_address(text)
    if address is None:
        msg = "not a mail address such as 'agent@example.com'"
        raise ValueError(msg)
    return address


def _check_names(text: str) -> str:
    names = text.lower().replace(";", " ").replace(",", " ").split()
    # A name of wildcards alone would trust what anyone writes.
    return ", ".join(name for name in names if name.strip("*."))


def _lowered(entries: list[str]) -> list[str]:
    # Addresses differ only in case if they differ at all, and the platform compares exactly.
    return [entry.strip().lower() for entry in entries]


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


class EmailSettings(ChannelSettings):
    """Section ``channels.email``. The keys are those of the original, and more.

    Attributes:
        consent_granted: the owner of the mailbox agrees that the agent reads and answers its mail;
            nothing is read before.
        allow_from: addresses of people who may write; case is ignored.
        imap_host: server to read from.
        imap_port: 993 is that of TLS from the first byte, 143 that of STARTTLS.
        imap_username: account on that server.
        imap_password: its password, or one that the service makes for programs.
        imap_mailbox: folder with the mail for the agent.
        imap_use_ssl: TLS from the first byte; without it, STARTTLS, except on this machine.
        smtp_host: server to send with.
        smtp_port: 587 is that of STARTTLS, 465 that of TLS from the first byte.
        smtp_username: account on that server.
        smtp_password: as `imap_password`.
        smtp_use_tls: STARTTLS.
        smtp_use_ssl: TLS from the first byte, usually on port 465.
        from_address: address of the agent; by default the user name.
        authserv_id: name with which the receiving server begins its ``Authentication-Results``;
            several are separated by commas, and ``*`` stands for any characters.
        verify_dkim: mail needs a valid DKIM signature of its sender's domain.
        verify_spf: mail needs to come from a server that its sender's domain lists.
        auto_reply_enabled: answer mail; if false, the agent reads it and answers are left out.
        poll_interval_seconds: longest wait before the mailbox is checked again.
        mark_seen: mark mail of admitted senders as read.
        post_action: what happens to mail of admitted senders after it is stored.
        post_action_move_mailbox: folder for ``move``.
        post_action_expunge: with a server without UIDPLUS, remove all mail that is marked as
            deleted in the folder.
        post_action_ignore_skipped: leave mail that the agent does not process where it is.
        max_body_chars: longest text of a mail; the rest is left out.
        subject_prefix: before the subject of an answer.
        allowed_attachment_types: media types such as ``image/*``; empty takes no files.
        max_attachment_size: bytes of one received or sent file.
        max_attachments_per_email: files of one received or sent mail.
        daily_limit: most mails that are sent in a day.
    """

    allow_from: Annotated[list[str], AfterValidator(_lowered)] = Field(default=[])
    pairing: bool = False
    send_progress: bool | None = False
    send_tool_hints: bool | None = False
    consent_granted: bool = False
    imap_host: str = ""
    imap_port: _Port = 993
    imap_username: str = ""
    imap_password: SecretStr = SecretStr("")
    imap_mailbox: str = "INBOX"
    imap_use_ssl: bool = True
    smtp_host: str = ""
    smtp_port: _Port = 587
    smtp_username: str = ""
    smtp_password: SecretStr = SecretStr("")
    smtp_use_tls: bool = True
    smtp_use_ssl: bool = False
    from_address: Annotated[str, AfterValidator(_check_address)] = ""
    authserv_id: Annotated[str, AfterValidator(_check_names)] = ""
    verify_dkim: bool = True
    verify_spf: bool = True
    auto_reply_enabled: bool = True
    poll_interval_seconds: PositiveInt = 30
    mark_seen: bool = True
    post_action: Annotated[Literal["delete", "move"] | None, BeforeValidator(_none_if_empty)] = None
    post_action_move_mailbox: str | None = None
    post_action_expunge: bool = False
    post_action_ignore_skipped: bool = True
    max_body_chars: PositiveInt = 12_000
    subject_prefix: str = "Re: "
    allowed_attachment_types: list[str] = Field(default=["*"])
    max_attachment_size: int = Field(default=10_000_000, ge=0)
    max_attachments_per_email: int = Field(default=10, ge=0)
    daily_limit: int = Field(default=200, ge=1, le=5_000)

    @property
    def own_address(self) -> str:
        """The agent's address; empty if no setting contains one."""
        return self.from_address or next(iter(self._addresses()), "")

    @property
    def own_addresses(self) -> frozenset[str]:
        """All addresses whose mail is the agent's own."""
        return frozenset(filter(None, (self.from_address, *self._addresses())))

    @property
    def authserv_names(self) -> tuple[str, ...]:
        """The names in `authserv_id`."""
        return tuple(filter(None, self.authserv_id.split(", ")))

    @property
    def verifies(self) -> bool:
        """Whether the sender of a mail must be proven."""
        return self.verify_dkim or self.verify_spf

    def _addresses(self) -> list[str]:
        names = (self.smtp_username, self.imap_username)
        return [address for name in names if (address := parse_address(name))]

    @property
    def gap(self) -> str:
        """Why the channel cannot start, as a sentence for the owner; empty if it can."""
        if not self.consent_granted:
            return (
                "nothing is read without consent: if the owner of the mailbox agrees that the "
                "agent reads and answers its mail, set channels.email.consent_granted to true"
            )
        values = {
            "imap_host": self.imap_host,
            "imap_username": self.imap_username,
            "imap_password": self.imap_password.get_secret_value(),
            "smtp_host": self.smtp_host,
            "from_address": self.own_address,
        }
        if self.post_action == "move":
            values["post_action_move_mailbox"] = self.post_action_move_mailbox or ""
        missing = [name for name, value in values.items() if not value]
        if missing:
            return f"channels.email: set {', '.join(missing)}"
        if self.verifies and not self.authserv_id:
            return (
                "channels.email.authserv_id is not set, so the sender of a mail cannot be proven: "
                "open the source of a mail that you received there, and set it to the first word "
                "after 'Authentication-Results:', such as 'mx.google.com'"
            )
        return ""
