"""The connection to the Bot API, and the errors of python-telegram-bot turned into ours.

Only this module and `client.py` know the SDK.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from telegram import Bot
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    PassportDecryptionError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from nanobot_telegram.call import CallFailed, Cause, TimeLimits

_POOL_SIZE = 16
_DEFAULT_WAIT_S = 5.0
"""Where Telegram asks to wait and does not say how long."""
_LOGGERS = ("httpx", "telegram.Bot")
"""Loggers that write addresses; each contains the token."""

# From the special to the general; the first match counts.
FAILURES: tuple[tuple[type[TelegramError], Cause, str], ...] = (
    (Forbidden, Cause.FORBIDDEN, "the bot was blocked or removed there, or may not write"),
    (EndPointNotFound, Cause.REFUSED, "the server does not know this call"),
    (InvalidToken, Cause.CREDENTIALS, "Telegram does not accept the token; correct `token`"),
    (
        Conflict,
        Cause.CONFLICT,
        "another program receives the messages of this bot; stop it, or let it use another bot",
    ),
    (ChatMigrated, Cause.MOVED, "the group has become a supergroup"),
    (RetryAfter, Cause.BUSY, "too many messages"),
    (BadRequest, Cause.REFUSED, "Telegram refused the request"),
    (TimedOut, Cause.UNREACHABLE, "Telegram did not answer in time"),
    (NetworkError, Cause.UNREACHABLE, "Telegram cannot be reached"),
    (PassportDecryptionError, Cause.UNREACHABLE, "the answer cannot be read"),
    (TelegramError, Cause.UNREACHABLE, "the answer cannot be read"),
)
_QUOTED = frozenset({Cause.FORBIDDEN, Cause.REFUSED, Cause.UNREACHABLE})
"""Causes for which the text of Telegram or of the network helps the owner."""
_DETAIL_CHARS = 300


class _TooManyRequests(TelegramError):
    """Telegram asks to wait.

    The SDK's own class warns whenever it is made, of a change of its next version.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many requests")
        self.retry_after_s: float = retry_after_s


class _Request(HTTPXRequest):
    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        status, payload = await super().do_request(*args, **kwargs)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise _TooManyRequests(_seconds_to_wait(payload))
        return status, payload


class RawBot(Bot):
    """The SDK's bot, with updates as they come.

    The SDK reads a batch of updates as a whole, and would lose all for one that is malformed.
    """

    async def fetch_updates(
        self, offset: int | None, wait_s: float, kinds: Sequence[str], read_limit_s: float
    ) -> object:
        """Return the result of ``getUpdates``, unread."""
        question = {"timeout": int(wait_s), "allowed_updates": list(kinds)}
        if offset is not None:
            question["offset"] = offset
        found: object = await self._post("getUpdates", question, read_timeout=wait_s + read_limit_s)
        return found


class _WithoutToken(logging.Filter):
    """Takes the token out of log records, and puts those of single requests below the usual ones.

    Otherwise every question for updates would be a line in the gateway's log.
    """

    def __init__(self, token: str) -> None:
        super().__init__()
        self._forms = (token, token.replace(":", "%3A"))

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(form in text for form in self._forms):
            for form in self._forms:
                text = text.replace(form, "<token>")
            record.msg, record.args = text, None
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return True


class Connection:
    """A bot with its pools of connections, one for waiting and one for all else.

    Attributes:
        bot: the SDK's bot.
        limits: time limits.

    Args:
        api_base: address of the Bot API server.
        proxy: address of a proxy for both pools, or ``None``.
    """

    def __init__(self, token: str, api_base: str, proxy: str | None, limits: TimeLimits) -> None:
        self.limits: TimeLimits = limits
        self._token = token
        self._filter = _WithoutToken(token)
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._filter)
        self._waiting = self._pool(1, proxy)
        self._calling = self._pool(_POOL_SIZE, proxy)
        self.bot: RawBot = RawBot(
            token,
            base_url=f"{api_base}/bot",
            base_file_url=f"{api_base}/file/bot",
            request=self._calling,
            get_updates_request=self._waiting,
        )

    async def retrieve(self, url: str) -> bytes:
        """Return the answer of an address of the Bot API."""
        return await self._calling.retrieve(url)

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        await self._waiting.shutdown()
        await self._calling.shutdown()
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._filter)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise every failure within the block as `CallFailed`."""
        try:
            yield
        except TimeoutError as error:
            raise CallFailed(Cause.UNREACHABLE, "Telegram did not answer in time") from error
        except TelegramError as error:
            raise self.failure_of(error) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # The SDK reads answers without checking them.
            reason = f"the answer cannot be read ({type(error).__name__})"
            raise CallFailed(Cause.UNREACHABLE, reason) from error

    def failure_of(self, error: TelegramError) -> CallFailed:
        """Return our error for one of the SDK."""
        if isinstance(error, _TooManyRequests):
            reason = f"too many messages; Telegram asks to wait {error.retry_after_s:.0f} s"
            return CallFailed(Cause.BUSY, reason, retry_after_s=error.retry_after_s)
        cause, reason = next(
            (cause, reason) for kind, cause, reason in FAILURES if isinstance(error, kind)
        )
        if cause in _QUOTED:
            detail = error.message.replace(self._token, "<token>")[:_DETAIL_CHARS]
            reason = f"{reason}: {detail}"
        moved_to = error.new_chat_id if isinstance(error, ChatMigrated) else None
        return CallFailed(cause, reason, moved_to=moved_to)

    def _pool(self, size: int, proxy: str | None) -> _Request:
        step_s = self.limits.step_s
        return _Request(
            connection_pool_size=size,
            read_timeout=step_s,
            write_timeout=step_s,
            connect_timeout=step_s,
            pool_timeout=step_s,
            media_write_timeout=step_s,
            proxy=proxy,
            # A proxy of the environment must not get the token unasked.
            httpx_kwargs={"trust_env": False},
        )


def _seconds_to_wait(payload: bytes) -> float:
    try:
        answer = json.loads(payload)
        return max(float(answer["parameters"]["retry_after"]), 0.0)
    except (ValueError, LookupError, TypeError):
        return _DEFAULT_WAIT_S
