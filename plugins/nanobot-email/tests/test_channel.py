"""The running channel: the traps of mailboxes and of sending."""

from __future__ import annotations

import asyncio
import importlib
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trustme

from nanobot_core import DeliveryError, OutboundMessage
from nanobot_core.chat import CallFailed, Cause
from nanobot_core.testing import FakePluginContext, RecordingInbox
from nanobot_email.channel import build_channel

local_mail: Any = importlib.import_module("email_local_mail")
Opened: TypeAlias = Callable[..., Any]
LocalMail: TypeAlias = Any
ROOT = "<first@example.org>"
CHAT = f"{local_mail.PERSON}:{local_mail.thread_of(ROOT)}"


def written(number: int, text: str = "", **fields: Any) -> bytes:
    headers = {"References": ROOT} | fields
    raw: bytes = local_mail.written(
        text or f"mail {number}", message_id=f"<m{number}@example.org>", **headers
    )
    return raw


def texts(inbox: RecordingInbox) -> list[str]:
    return [message.content for message in inbox.stored]


def flags(mail: LocalMail) -> dict[int, set[str]]:
    return {stored.uid: stored.flags for stored in mail.folders["INBOX"].mails}


# --- receiving


async def test_mail_from_before_the_first_start_is_old(mail: LocalMail, opened: Opened) -> None:
    mail.deliver(written(1))
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        mail.deliver(written(2))
        await talk.inbox.wait_for_stored(1)
    assert texts(talk.inbox) == ["mail 2"]


async def test_mail_that_came_while_the_channel_was_away_is_read_once(
    mail: LocalMail, opened: Opened
) -> None:
    inbox = RecordingInbox()
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.is_read)
        mail.deliver(written(1))
        await inbox.wait_for_stored(1)
    mail.deliver(written(2))
    async with opened(inbox):
        await inbox.wait_for_stored(2)
    # The server answers 'UID n:*' with its newest mail although that is below n.
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.connections == 3)
        mail.deliver(written(3))
        await inbox.wait_for_stored(3)
    assert texts(inbox) == ["mail 1", "mail 2", "mail 3"]
    assert len(inbox.attempts) == 3


async def test_other_programs_may_remove_mail(mail: LocalMail, opened: Opened) -> None:
    """agent-os#1162: sequence numbers shift; UIDs do not."""
    inbox = RecordingInbox()
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.is_read)
        first = mail.deliver(written(1))
        mail.deliver(written(2))
        await inbox.wait_for_stored(2)
        mail.expunge(first)
        last = mail.deliver(written(3))
        await inbox.wait_for_stored(3)
        await talk.until(lambda: "\\Seen" in flags(mail)[last])
    assert texts(inbox) == ["mail 1", "mail 2", "mail 3"]


async def test_a_renumbered_mailbox_begins_with_its_newest_mail(
    mail: LocalMail, opened: Opened
) -> None:
    inbox = RecordingInbox()
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.is_read)
        for number in (1, 2):
            mail.deliver(written(number))
        await inbox.wait_for_stored(2)
    mail.renumber()
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.connections == 2 and mail.is_read)
        await talk.until(lambda: _watermark(talk.ctx)["validity"] == 1_700_000_001)
        mail.deliver(written(3))
        await inbox.wait_for_stored(3)
    assert texts(inbox) == ["mail 1", "mail 2", "mail 3"]


def _watermark(ctx: FakePluginContext) -> dict[str, int]:
    (found,) = json.loads((ctx.data_dir / "watermarks.json").read_text()).values()
    watermark: dict[str, int] = found
    return watermark


async def test_the_same_mail_in_two_places_is_one_message(mail: LocalMail, opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        for _ in range(2):
            mail.deliver(written(1))
        mail.deliver(written(2))
        await talk.inbox.wait_for_stored(2)
    assert texts(talk.inbox) == ["mail 1", "mail 2"]


async def test_mail_that_cannot_be_read_does_not_stop_the_next(
    mail: LocalMail, opened: Opened
) -> None:
    """agent-os#1209"""
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        for raw in (b"", b"\xff\x00\xfe" * 50, b"From: \r\n\r\n"):
            mail.deliver(raw)
        last = mail.deliver(written(1))
        await talk.inbox.wait_for_stored(1)
        await talk.until(lambda: _watermark(talk.ctx)["uid"] == last)


async def test_only_mail_of_admitted_senders_is_marked(mail: LocalMail, opened: Opened) -> None:
    inbox = RecordingInbox(admits=lambda message: message.content != "mail 1")
    async with opened(inbox) as talk:
        await talk.until(lambda: mail.is_read)
        refused = mail.deliver(written(1))
        machine = mail.deliver(written(2, Precedence="bulk"))
        taken = mail.deliver(written(3))
        await talk.until(lambda: "\\Seen" in flags(mail)[taken])
    assert not flags(mail)[refused]
    assert not flags(mail)[machine]


@pytest.mark.parametrize("action", ["delete", "move"])
async def test_stored_mail_is_moved_or_deleted(
    mail: LocalMail, opened: Opened, action: str
) -> None:
    mail.folders["Done"] = local_mail.LocalFolder(validity=1)
    section = {"post_action": action, "post_action_move_mailbox": "Done"}
    async with opened(**section) as talk:
        await talk.until(lambda: mail.is_read)
        machine = mail.deliver(written(1, Precedence="bulk"))
        mail.deliver(written(2))
        await talk.until(lambda: list(flags(mail)) == [machine])
    assert len(mail.folders["Done"].mails) == (action == "move")


async def test_files_are_fetched_for_admitted_senders(mail: LocalMail, opened: Opened) -> None:
    raw = written(1).replace(
        b'Content-Type: text/plain; charset="utf-8"\r\nContent-Transfer-Encoding: 7bit',
        b'Content-Type: multipart/mixed; boundary="b"',
    )
    head, _, _ = raw.partition(b"\r\n\r\n")
    raw = head + (
        b"\r\n\r\n--b\r\n\r\nLook\r\n--b\r\nContent-Type: image/png\r\nContent-Disposition: "
        b'attachment; filename="../../a.png"\r\n\r\nPNG\r\n--b--\r\n'
    )
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        mail.deliver(raw)
        await talk.inbox.wait_for_stored(1)
    (message,) = talk.inbox.stored
    (path,) = message.media
    assert Path(path).name == "a.png"
    assert Path(path).read_bytes() == b"PNG"
    assert message.content == "Look"


async def test_a_server_without_idle_is_asked_again(mail: LocalMail, opened: Opened) -> None:
    mail.has_idle = False
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        mail.deliver(written(1))
        await talk.inbox.wait_for_stored(1)


async def test_a_connection_that_is_lost_while_idle_ends_the_channel(
    mail: LocalMail, ctx_with: Callable[..., FakePluginContext]
) -> None:
    ctx, inbox = ctx_with(), RecordingInbox()
    async with asyncio.timeout(10), ctx:
        channel = build_channel(ctx)
        started = asyncio.ensure_future(channel.start(inbox))
        await asyncio.to_thread(mail.wait_until, lambda: mail.is_read)
        mail.deliver(written(1))
        await inbox.wait_for_stored(1)
        mail.drop()
        with pytest.raises(CallFailed, match="the connection to the IMAP server failed"):
            await started
        await channel.stop()


async def test_stop_ends_a_silent_connection_at_once(mail: LocalMail, opened: Opened) -> None:
    async with opened(poll_interval_seconds=3_000) as talk:
        await talk.until(lambda: mail.is_read)
        mail.go_silent()
        async with asyncio.timeout(4):
            await talk.channel.stop()


# --- credentials


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"consent_granted": False}, "nothing is read without consent"),
        ({"authserv_id": ""}, "channels.email.authserv_id is not set"),
        ({"imap_password": "wrong"}, "does not accept imap_username and imap_password"),
        ({"smtp_password": "wrong"}, "does not accept smtp_username and smtp_password"),
        ({"imap_mailbox": "Nowhere"}, "correct imap_mailbox"),
    ],
)
async def test_what_the_owner_must_correct_is_one_sentence(
    mail: LocalMail,
    ctx_with: Callable[..., FakePluginContext],
    section: dict[str, Any],
    words: str,
) -> None:
    async with ctx_with(**section) as ctx:
        channel = build_channel(ctx)
        try:
            with pytest.raises(CallFailed, match=words) as raised:
                await channel.login()
        finally:
            await channel.stop()
    assert raised.value.cause is Cause.CREDENTIALS
    if "consent" in words or "authserv" in words:
        assert mail.connections == 0


async def test_login_says_who_the_agent_is(
    mail: LocalMail, ctx_with: Callable[..., FakePluginContext]
) -> None:
    async with ctx_with() as ctx:
        channel = build_channel(ctx)
        assert await channel.login() == local_mail.USER
        await channel.stop()


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_passwords_go_to_servers_with_a_checked_certificate_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = authority if is_trusted else trustme.CA()
    trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with local_mail.LocalMail(context) as mail:
        async with FakePluginContext(tmp_path, settings=mail.settings) as ctx:
            channel = build_channel(ctx)
            try:
                if is_trusted:
                    assert await channel.login() == local_mail.USER
                else:
                    with pytest.raises(CallFailed, match="CERTIFICATE_VERIFY_FAILED"):
                        await channel.login()
            finally:
                await channel.stop()
    assert mail.logins == 2 * is_trusted


async def test_without_encryption_no_password_leaves_this_machine(
    mail: LocalMail, ctx_with: Callable[..., FakePluginContext]
) -> None:
    # The name is resolved to this machine, but only its address says so.
    async with ctx_with(imap_host="127.1", smtp_host="127.1") as ctx:
        channel = build_channel(ctx)
        with pytest.raises(CallFailed, match="TLS not supported by server"):
            await channel.login()
        with pytest.raises(DeliveryError, match="STARTTLS"):
            await channel.send(
                OutboundMessage(channel="email", chat_id=local_mail.PERSON, content="x")
            )
        await channel.stop()
    assert mail.logins == 0


# --- sending


async def test_an_answer_belongs_to_its_conversation(mail: LocalMail, opened: Opened) -> None:
    async with opened() as talk:
        await talk.until(lambda: mail.is_read)
        mail.deliver(written(1, "Hello", Subject="Re: Plans"))
        await talk.inbox.wait_for_stored(1)
        (message,) = talk.inbox.stored
        await talk.send("**Hi** there", message.chat_id, reply_to=message.dedupe_key)
    (sent,) = mail.received
    assert sent.recipients == (local_mail.PERSON,)
    assert sent.text == "Hi there"
    assert "<b>Hi</b> there" in sent.mail.get_body(("html",)).get_content()
    headers = {name: sent.mail[name] for name in ("From", "To", "Subject", "In-Reply-To")}
    assert headers == {
        "From": local_mail.USER,
        "To": local_mail.PERSON,
        "Subject": "Re: Plans",
        "In-Reply-To": "<m1@example.org>",
    }
    assert sent.mail["References"] == f"{ROOT} <m1@example.org>"
    assert sent.mail["Auto-Submitted"] == "auto-replied"


async def test_a_mail_that_begins_a_conversation_has_its_first_line_as_subject(
    mail: LocalMail, opened: Opened, tmp_path: Path
) -> None:
    file, mail_file = tmp_path / "list.txt", tmp_path / "mail.eml"
    file.write_text("milk")
    mail_file.write_text("Subject: x\n\n")
    async with opened() as talk:
        await talk.send(
            "News\r\n\nSee [this](https://example.org/a)", media=(str(file), str(mail_file))
        )
    (sent,) = mail.received
    assert sent.mail["Subject"] == "News"
    assert sent.text == "News\n\nSee this (https://example.org/a)"
    assert sent.mail["In-Reply-To"] is None
    assert sent.mail["Auto-Submitted"] == "auto-generated"
    listed, other = sent.mail.iter_attachments()
    assert (listed.get_filename(), listed.get_content()) == ("list.txt", "milk")
    assert (other.get_filename(), other.get_content()) == ("mail.eml", b"Subject: x\n\n")


async def test_a_mail_of_unknown_outcome_is_sent_again_as_the_same(
    mail: LocalMail, opened: Opened
) -> None:
    mail.lose_after_data = 1
    async with opened() as talk:
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hello", idempotency_key="k1")
        assert raised.value.retryable
        await talk.send("Hello", idempotency_key="k1")
    assert len(mail.all_received) == 2
    assert len(mail.received) == 1


@pytest.mark.parametrize(
    ("command", "line", "retryable"),
    [
        ("RCPT", "550 5.1.1 no such user", False),
        ("RCPT", "450 4.2.1 busy", True),
        ("DATA", "451 4.3.0 try later", True),
        ("MAIL", "550 5.7.1 not your address", True),  # the owner can correct it
    ],
)
async def test_a_refusal_decides_whether_to_try_again(
    mail: LocalMail, opened: Opened, command: str, line: str, retryable: bool
) -> None:
    mail.refusals.append((command, line))
    async with opened() as talk:
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hello")
    assert raised.value.retryable is retryable
    assert line[:3] in raised.value.reason


@pytest.mark.parametrize("chat", ["stranger@example.net", "12345", "a@b\r\nBcc: x@y"])
async def test_mail_goes_only_to_known_addresses(
    mail: LocalMail, opened: Opened, chat: str
) -> None:
    async with opened() as talk:
        with pytest.raises(DeliveryError) as raised:
            await talk.send("Hello", chat)
    assert not raised.value.retryable
    assert not mail.received


async def test_the_daily_limit_counts_across_restarts(mail: LocalMail, opened: Opened) -> None:
    mail.refusals.append(("RCPT", "450 4.2.1 busy"))
    for number in range(2):
        async with opened(daily_limit=2) as talk:
            if not number:
                with pytest.raises(DeliveryError):  # a refused mail does not count
                    await talk.send("refused", idempotency_key="r")
            await talk.send(f"mail {number}", idempotency_key=f"k{number}")
            await talk.send(f"mail {number}", idempotency_key=f"k{number}")
    async with opened(daily_limit=2) as talk:
        with pytest.raises(DeliveryError, match="daily_limit") as raised:
            await talk.send("too many")
    assert raised.value.retryable
    assert 0 < (raised.value.retry_after_s or 0) <= 86_400
    assert [sent.text for sent in mail.received] == ["mail 0", "mail 1"]


async def test_answers_can_be_turned_off(mail: LocalMail, opened: Opened) -> None:
    async with opened(auto_reply_enabled=False) as talk:
        await talk.send("left out", CHAT)
        await talk.send("sent")
    assert [sent.text for sent in mail.received] == ["sent"]
