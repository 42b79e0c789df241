"""What the channel expects of IMAP servers: the local one and Dovecot behave alike."""

from __future__ import annotations

import asyncio
import importlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from imaplib import IMAP4
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_email.mailbox import FAILURES, Mailbox
from nanobot_email.settings import EmailSettings

local_mail: Any = importlib.import_module("email_local_mail")
BOX, DONE = "Box", "Done"
NOBODY = 65_534
NESTED = (
    b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\n'
    b"Content-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nobey\r\n--b--\r\n"
)
RAWS = (
    b"Subject: plain\r\n\r\nHello\r\n",
    b'Content-Type: text/plain; charset="no-such"\r\n\r\n\xff\xfe\r\n',
    b"Subject: empty\r\n\r\n",
    NESTED,
    b"Subject: a literal {5}\r\n\r\n* 1 FETCH (UID 99 BODY[] {3}\r\nabc)\r\nA1 OK done\r\n",
)
Opened: TypeAlias = Callable[[], Mailbox]


@pytest.fixture(params=["local", "dovecot"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """An IMAP server with the account of the agent."""
    if request.param == "local":
        with local_mail.LocalMail() as mail:
            yield mail.imap_port
    else:
        yield request.getfixturevalue("dovecot")


@pytest.fixture(scope="module")
def dovecot() -> Iterator[int]:
    """The port of a Dovecot."""
    program = shutil.which("dovecot")
    if program is None:
        pytest.skip("Dovecot is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    # Other users must be able to enter the folder, unlike that of pytest.
    folder = Path(tempfile.mkdtemp(prefix="nanobot-dovecot-"))
    folder.chmod(0o755)
    try:
        config = _configured(folder, port)
        running = subprocess.Popen([program, "-F", "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            if not _answers(port):
                pytest.skip(f"Dovecot does not start here: {(folder / 'log').read_text()[-500:]}")
            if refusal := _refusal(port):
                # Another user cannot enter a folder of temporary files that only root may enter.
                pytest.skip(f"Dovecot cannot write in '{folder}': {refusal}")
            yield port
        finally:
            running.terminate()
            running.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configured(folder: Path, port: int) -> Path:
    mail = folder / "mail"
    mail.mkdir()
    (folder / "log").touch()
    # It delivers mail as the owner of the mailbox, which cannot be root.
    owner = os.getuid() or NOBODY
    if not os.getuid():
        os.chown(mail, owner, owner)
    users = ""
    if os.getuid():
        name = pwd.getpwuid(os.getuid()).pw_name
        users = f"default_internal_user = {name}\ndefault_login_user = {name}"
    config = folder / "dovecot.conf"
    config.write_text(
        f"""
protocols = imap
base_dir = {folder}/run
state_dir = {folder}
log_path = {folder}/log
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{mail}
first_valid_uid = 1
{users}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
passdb {{
  driver = static
  args = password={local_mail.PASSWORD}
}}
userdb {{
  driver = static
  args = uid={owner} gid={owner} home={mail}
}}
"""
    )
    return config


def _answers(port: int) -> bool:
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        try:
            with _other(port):
                return True
        except (OSError, IMAP4.error):
            time.sleep(0.02)
    return False


def _refusal(port: int) -> str:
    """Return why the server cannot keep mail, or an empty string."""
    with _other(port) as other:
        answer, reasons = other.create("Probe")
        other.delete("Probe")
    return "" if answer == "OK" else f"{answer} {reasons!r}"


@contextmanager
def _other(port: int) -> Iterator[IMAP4]:
    """Another program that uses the same account."""
    with IMAP4("127.0.0.1", port, timeout=5) as client:
        client.login(local_mail.USER, local_mail.PASSWORD)
        yield client


def _deliver(port: int, *raws: bytes) -> None:
    with _other(port) as other:
        for raw in raws:
            assert other.append(BOX, "", "", raw)[0] == "OK"


@pytest.fixture
def opened(port: int) -> Iterator[Opened]:
    """Opens the folder, which is empty."""
    with _other(port) as other:
        for folder in (BOX, DONE):
            other.delete(folder)
            assert other.create(folder)[0] == "OK"
    mailboxes: list[Mailbox] = []

    def opened() -> Mailbox:
        settings = EmailSettings(
            imap_host="127.0.0.1",
            imap_port=port,
            imap_username=local_mail.USER,
            imap_password=local_mail.PASSWORD,
            imap_mailbox=BOX,
            imap_use_ssl=False,
        )
        mailboxes.append(Mailbox(settings))
        return mailboxes[-1]

    yield opened
    for mailbox in mailboxes:
        mailbox.close()


def test_mail_is_read_as_it_was_written_and_stays_unread(port: int, opened: Opened) -> None:
    mailbox = opened()
    _, next_uid = mailbox.open()
    assert mailbox.above(0) == []
    _deliver(port, *RAWS)

    mailbox.keep()
    uids = mailbox.above(next_uid - 1)

    assert len(uids) == len(RAWS)
    assert mailbox.above(uids[-1]) == []  # though servers answer 'n:*' with the newest mail
    assert [mailbox.size_of(uid) for uid in uids] == [len(raw) for raw in RAWS]
    assert [mailbox.read(uid) for uid in uids] == list(RAWS)
    assert mailbox.read(uids[0], only_header=True) == b"Subject: plain\r\n\r\n"
    with _other(port) as other:
        other.select(BOX)
        assert other.uid("SEARCH", "SEEN")[1] == [b""]


def test_other_programs_remove_mail_meanwhile(port: int, opened: Opened) -> None:
    _deliver(port, *RAWS)
    mailbox = opened()
    mailbox.open()
    first, second, *_ = mailbox.above(0)
    with _other(port) as other:
        other.select(BOX)
        other.uid("STORE", str(first), "+FLAGS", r"(\Deleted)")
        other.expunge()

    assert mailbox.read(first) is None
    assert mailbox.size_of(first) is None
    assert mailbox.read(second) == RAWS[1]
    mailbox.keep()
    assert mailbox.read(second) == RAWS[1]


def test_a_folder_that_is_created_again_has_another_validity(port: int, opened: Opened) -> None:
    before = opened()
    validity, _ = before.open()
    before.close()
    with _other(port) as other:
        other.delete(BOX)
        other.create(BOX)
    assert opened().open()[0] != validity


def test_mail_is_marked_moved_and_removed(port: int, opened: Opened) -> None:
    _deliver(port, *RAWS[:3])
    mailbox = opened()
    mailbox.open()
    first, second, third = mailbox.above(0)

    mailbox.mark_seen([first])
    mailbox.move([second], DONE)
    mailbox.remove([third])

    assert mailbox.above(0) == [first]
    with _other(port) as other:
        assert other.select(DONE)[1] == [b"1"]


async def test_new_mail_ends_a_wait(port: int, opened: Opened) -> None:
    mailbox = opened()
    await asyncio.to_thread(mailbox.open)
    async with asyncio.timeout(10):
        waiting = asyncio.create_task(asyncio.to_thread(mailbox.wait, 60.0))
        while not waiting.done():
            # Each mail is news, also one that comes while the wait begins.
            await asyncio.to_thread(_deliver, port, RAWS[0])
        await waiting
    assert mailbox.above(0)


async def test_a_wait_can_be_interrupted(port: int, opened: Opened) -> None:
    mailbox = opened()
    await asyncio.to_thread(mailbox.open)
    waiting = asyncio.create_task(asyncio.to_thread(mailbox.wait, 60.0))
    async with asyncio.timeout(10):
        await asyncio.to_thread(_deliver, port, RAWS[0])
        mailbox.interrupt()
        # The wait may have ended just before.
        with suppress(*FAILURES):
            await waiting
    with pytest.raises(FAILURES):
        mailbox.keep()
