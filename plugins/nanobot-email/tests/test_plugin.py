"""The contributions of the plugin, its settings, and how it maps failures of mail servers."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiosmtplib
import pytest
from imap_tools.errors import MailboxCopyError, MailboxFolderSelectError, MailboxLoginError
from pydantic import ValidationError

from nanobot_core.chat import Cause, ChatChannel
from nanobot_core.testing import FakePluginContext
from nanobot_email import mailbox, plugin, smtp
from nanobot_email.address import ChatRef, parse_address
from nanobot_email.settings import EmailSettings

# As `nanobot onboard` of the original writes it.
ORIGINAL: dict[str, Any] = {
    "enabled": True,
    "consentGranted": True,
    "imapHost": "imap.example.com",
    "imapPort": 993,
    "imapUsername": "agent@example.com",
    "imapPassword": "secret",
    "imapMailbox": "INBOX",
    "imapUseSsl": True,
    "smtpHost": "smtp.example.com",
    "smtpPort": 587,
    "smtpUsername": "agent@example.com",
    "smtpPassword": "secret",
    "smtpUseTls": True,
    "smtpUseSsl": False,
    "fromAddress": "",
    "autoReplyEnabled": True,
    "pollIntervalSeconds": 30,
    "markSeen": True,
    "postAction": None,
    "postActionMoveMailbox": None,
    "postActionExpunge": False,
    "postActionIgnoreSkipped": True,
    "maxBodyChars": 12000,
    "subjectPrefix": "Re: ",
    "allowFrom": ["Alice@Example.org"],
    "verifyDkim": True,
    "verifySpf": True,
    "allowedAttachmentTypes": [],
    "maxAttachmentSize": 2000000,
    "maxAttachmentsPerEmail": 5,
}


def test_the_channel_and_its_settings_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings=ORIGINAL)
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()

    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is EmailSettings
    assert section.path == f"channels.{spec.name}"


def test_the_libraries_are_imported_only_when_the_channel_connects() -> None:
    program = (
        "import sys\n"
        "from nanobot_email import plugin\n"
        "import nanobot_email.channel\n"
        "print(sorted({'imap_tools', 'aiosmtplib', 'email.message'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert "imap_tools" not in done.stdout
    assert "aiosmtplib" not in done.stdout


def test_the_settings_of_the_original_are_read() -> None:
    found = EmailSettings.model_validate(ORIGINAL)

    assert found.allow_from == ["alice@example.org"]
    assert found.own_address == "agent@example.com"
    assert found.allowed_attachment_types == []
    assert "authserv_id" in found.gap


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path))
    assert spec.secrets == ("imap_password", "smtp_password")
    assert "secret" not in repr(EmailSettings.model_validate(ORIGINAL))


def test_each_message_is_a_mail_so_only_answers_are_sent_by_default() -> None:
    found = EmailSettings()
    assert (found.send_progress, found.send_tool_hints, found.pairing) == (False, False, False)
    assert found.allow_from == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"consentGranted": False}, "set channels.email.consent_granted to true"),
        ({"imapHost": "", "smtpHost": ""}, "channels.email: set imap_host, smtp_host"),
        ({"imapUsername": "agent", "smtpUsername": ""}, "from_address"),
        ({"postAction": "move"}, "post_action_move_mailbox"),
        ({}, "open the source of a mail"),
        ({"verifyDkim": False, "verifySpf": False}, ""),
        ({"authservId": "MX.example.com;"}, ""),
        ({"authservId": "a.example.com, *.b.example"}, ""),
        ({"authservId": "*"}, "authserv_id is not set"),
    ],
)
def test_what_is_missing_is_said_with_the_setting(change: dict[str, Any], words: str) -> None:
    gap = EmailSettings.model_validate(ORIGINAL | change).gap
    assert words in gap
    assert bool(words) == bool(gap)


@pytest.mark.parametrize("value", ["agent", "a@b@c", '"a b"@example.com', "a@b\r\nBcc: x@y"])
def test_a_sender_that_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="not a mail address"):
        EmailSettings.model_validate(ORIGINAL | {"fromAddress": value})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Alice@Example.ORG ", "alice@example.org"),
        ("a.b+c@mail.example.org", "a.b+c@mail.example.org"),
        ('"alice@example.org"@evil.example', None),
        ("alice|admin@example.org", None),
        ("alice@example.org:1", None),
        ("аlice@example.org", None),  # the first letter is Cyrillic
        ("alice@exámple.org", None),
        (f"{'a' * 250}@example.org", None),
        ("@example.org", None),
        ("alice@", None),
        ("", None),
    ],
)
def test_only_plain_addresses_are_identities(text: str, address: str | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("chat", ["a@example.org", "a@example.org:0123456789ab"])
def test_chats_are_addresses_with_a_conversation(chat: str) -> None:
    assert str(ChatRef.parse(chat)) == chat


@pytest.mark.parametrize("chat", ["a@example.org:", "a@example.org:x", "12345", "a b@c", ""])
def test_other_chats_do_not_exist(chat: str) -> None:
    assert ChatRef.parse(chat) is None


SMTP_CASES: list[tuple[Exception, Cause]] = [
    (aiosmtplib.SMTPAuthenticationError(454, "4.7.0 Temporary failure"), Cause.BUSY),
    (aiosmtplib.SMTPAuthenticationError(535, "5.7.8 Bad credentials"), Cause.CREDENTIALS),
    (aiosmtplib.SMTPNotSupported("AUTH is not supported"), Cause.CREDENTIALS),
    (aiosmtplib.SMTPSenderRefused(530, "5.7.0 Authentication required", "a"), Cause.CREDENTIALS),
    (aiosmtplib.SMTPDataError(552, "5.3.4 Message too big"), Cause.REFUSED),
    (aiosmtplib.SMTPSenderRefused(550, "5.7.1 Not your address", "a"), Cause.CREDENTIALS),
    (aiosmtplib.SMTPRecipientRefused(550, "5.1.1 No such user", "b"), Cause.FORBIDDEN),
    (aiosmtplib.SMTPRecipientRefused(450, "4.2.1 Mailbox busy", "b"), Cause.BUSY),
    (aiosmtplib.SMTPDataError(451, "4.3.0 Try again"), Cause.BUSY),
    (aiosmtplib.SMTPDataError(554, "5.7.1 Spam"), Cause.REFUSED),
    (aiosmtplib.SMTPServerDisconnected("Connection lost"), Cause.UNREACHABLE),
    (aiosmtplib.SMTPReadTimeoutError("Timed out"), Cause.UNREACHABLE),
    (ConnectionRefusedError(111, "refused"), Cause.UNREACHABLE),
]


@pytest.mark.parametrize(("error", "cause"), SMTP_CASES, ids=lambda value: str(value)[:40])
def test_an_answer_of_the_smtp_server_has_a_cause(error: Exception, cause: Cause) -> None:
    assert smtp.failure_of(error).cause is cause


def test_every_row_of_the_smtp_table_is_reached() -> None:
    reached = {smtp.failure_of(error).reason.partition(" (")[0] for error, _ in SMTP_CASES}
    assert {reason for *_, reason in smtp.REFUSALS} <= reached


def test_a_refusal_of_the_only_recipient_is_about_that_recipient() -> None:
    one = aiosmtplib.SMTPRecipientRefused(551, "5.1.6 Moved", "b")
    assert smtp.failure_of(aiosmtplib.SMTPRecipientsRefused([one])).cause is Cause.FORBIDDEN


def _login(text: bytes) -> Exception:
    error: Exception = MailboxLoginError(("NO", [text]), "OK")
    return error


IMAP_CASES: list[tuple[Exception, Cause]] = [
    (_login(b"[UNAVAILABLE] try later"), Cause.UNREACHABLE),
    (_login(b"[INUSE] locked"), Cause.BUSY),
    (_login(b"[LIMIT] too many connections"), Cause.BUSY),
    (_login(b"[PRIVACYREQUIRED] use TLS"), Cause.CREDENTIALS),
    (_login(b"[AUTHENTICATIONFAILED] Invalid credentials"), Cause.CREDENTIALS),
    (_login(b"[AUTHORIZATIONFAILED] no"), Cause.CREDENTIALS),
    (_login(b"[EXPIRED] password"), Cause.CREDENTIALS),
    (_login(b"no"), Cause.CREDENTIALS),
    (MailboxFolderSelectError(("NO", [b"no such folder"]), "OK"), Cause.CREDENTIALS),
    (MailboxCopyError(("NO", [b"[TRYCREATE] no such folder"]), "OK"), Cause.CREDENTIALS),
    (OSError("broken"), Cause.UNREACHABLE),
    (ValueError("nonsense"), Cause.UNREACHABLE),
]


@pytest.mark.parametrize(("error", "cause"), IMAP_CASES, ids=lambda value: str(value)[:60])
def test_an_answer_of_the_imap_server_has_a_cause(error: Exception, cause: Cause) -> None:
    assert mailbox.failure_of(error).cause is cause


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("x", False)],
)
def test_only_this_machine_needs_no_encryption(host: str, is_here: bool) -> None:
    assert mailbox.is_local(host) is is_here
