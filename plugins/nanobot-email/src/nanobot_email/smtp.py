"""Sends mail over SMTP, one connection for each mail."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Coroutine
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

import aiosmtplib
from aiosmtplib import (
    SMTPAuthenticationError,
    SMTPException,
    SMTPNotSupported,
    SMTPRecipientRefused,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from nanobot_core import shorten
from nanobot_core.chat import CallFailed, Cause
from nanobot_email.address import domain_of
from nanobot_email.mailbox import is_local

if TYPE_CHECKING:
    from nanobot_email.settings import EmailSettings

_STEP_S = 30.0
_REASON_CHARS = 300
FAILURES = (SMTPException, OSError, ValueError)

_LOGIN = (
    "the SMTP server does not accept smtp_username and smtp_password of channels.email; many "
    "providers want an app password, which you create in the security settings of the account"
)
_UNENCRYPTED = "the SMTP server offers no such login; set smtp_use_tls or smtp_use_ssl"
_TOO_LARGE = "the mail is larger than the mail servers accept"
REFUSALS: tuple[tuple[type[Exception], str, Cause, str], ...] = (
    (SMTPAuthenticationError, r"4", Cause.BUSY, "the SMTP server cannot check logins now"),
    (SMTPAuthenticationError, r"5", Cause.CREDENTIALS, _LOGIN),
    (SMTPNotSupported, r"", Cause.CREDENTIALS, _UNENCRYPTED),
    (SMTPResponseException, r"(530|538)\b", Cause.CREDENTIALS, _LOGIN),
    (SMTPResponseException, r"(552|523)\b|5\d\d.{0,5}5\.(3\.4|2\.3)\b", Cause.REFUSED, _TOO_LARGE),
    (
        SMTPSenderRefused,
        r"5",
        Cause.CREDENTIALS,
        "the SMTP server refuses the sender; correct from_address",
    ),
    (SMTPRecipientRefused, r"5", Cause.FORBIDDEN, "the address does not exist or refuses the mail"),
    (SMTPResponseException, r"4", Cause.BUSY, "the SMTP server asks to try later"),
    (SMTPResponseException, r"5", Cause.REFUSED, "the SMTP server refuses the mail"),
)
"""Error, beginning of the server's answer, cause and explanation; the first match counts."""


def failure_of(error: Exception) -> CallFailed:
    """Return what an error of the library means."""
    if isinstance(error, SMTPRecipientsRefused) and error.recipients:
        error = error.recipients[0]
    answer = ""
    if isinstance(error, SMTPResponseException):
        answer = f"{error.code} {error.message}"
    text = shorten(answer or str(error) or type(error).__name__, _REASON_CHARS)
    for kind, beginning, cause, reason in REFUSALS:
        if isinstance(error, kind) and re.match(beginning, answer):
            return CallFailed(cause, f"{reason} ({text})")
    return CallFailed(Cause.UNREACHABLE, f"the connection to the SMTP server failed: {text}")


async def check_login(settings: EmailSettings) -> None:
    """Log in without sending.

    Raises:
        CallFailed: the server does not accept the login, or cannot be reached.
    """

    async def login() -> None:
        async with _client(settings):
            pass

    await _finish(login())


async def submit(mail: EmailMessage, recipient: str, settings: EmailSettings) -> None:
    """Send a mail to one person.

    Raises:
        CallFailed: the server does not accept it, or the outcome is unknown.
    """

    async def send() -> None:
        async with _client(settings) as client:
            await client.send_message(mail, sender=settings.own_address, recipients=[recipient])

    await _finish(send())


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in a task of its own, and raise what fails.

    The library uses `asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes
    together with a result. A task group does not lose it.
    """

    async def contained() -> CallFailed | None:
        try:
            await work
        except FAILURES as error:
            return failure_of(error)
        return None

    async with asyncio.TaskGroup() as group:
        task = group.create_task(contained())
    failure = task.result()
    if failure is not None:
        raise failure


def _client(settings: EmailSettings) -> aiosmtplib.SMTP:
    is_plain = not settings.smtp_use_tls and is_local(settings.smtp_host)
    return aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        username=settings.smtp_username or None,
        password=settings.smtp_password.get_secret_value() or None,
        use_tls=settings.smtp_use_ssl,
        start_tls=not settings.smtp_use_ssl and not is_plain,
        tls_context=ssl.create_default_context(),
        # By default the name of this machine, which is private, and slow to look up.
        local_hostname=domain_of(settings.own_address),
        timeout=_STEP_S,
    )
