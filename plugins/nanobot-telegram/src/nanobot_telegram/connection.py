"""The connection to the Bot API, which maps the errors of python-telegram-bot to ours.

Only this module and `client.py` know the SDK.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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

from nanobot_core.chat import CallFailed, Cause
from nanobot_telegram.call import GroupMoved, TimeLimits

_POOL_SIZE = 16
_DEFAULT_WAIT_S = 5.0
"""If Telegram asks to wait without a number of seconds."""
_LOGGERS = ("httpx", "telegram.Bot")
"""Loggers that write addresses, which contain the token."""

# From special to general: the first match applies.
FAILURES: tuple[tuple[type[TelegramError], Cause, str], ...] = (
    (Forbidden, Cause.FORBIDDEN, "the bot was blocked or removed, or is not allowed to write"),
    (EndPointNotFound, Cause.REFUSED, "the server does not know this call"),
    (InvalidToken, Cause.CREDENTIALS, "Telegram does not accept the token; correct `token`"),
    (
        Conflict,
        Cause.CONFLICT,
        "another program receives the messages of this bot; stop it, or let it use another bot",
    ),
    (RetryAfter, Cause.BUSY, "too many messages"),
    (BadRequest, Cause.REFUSED, "Telegram refused the request"),
    (TimedOut, Cause.UNREACHABLE, "Telegram did not answer in time"),
    (NetworkError, Cause.UNREACHABLE, "Telegram cannot be reached"),
    (PassportDecryptionError, Cause.UNREACHABLE, "the answer cannot be read"),
    (TelegramError, Cause.UNREACHABLE, "the answer cannot be read"),
)
_QUOTED = frozenset({Cause.FORBIDDEN, Cause.REFUSED, Cause.UNREACHABLE})
"""Causes for which the owner sees the text of Telegram or of the network."""
_DETAIL_CHARS = 300


class _TooManyRequests(TelegramError):
    """Telegram asks to wait.

    Each instance of the SDK's own class emits a deprecation warning.
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
    """The SDK's bot, with unparsed updates.

    The SDK parses a batch of updates as a whole: one malformed update would lose all others.
    """

    async def fetch_updates(
        self, offset: int | None, wait_s: float, kinds: Sequence[str], read_limit_s: float
    ) -> object:
        """Return the unparsed result of ``getUpdates``."""
        query = {"timeout": int(wait_s), "allowed_updates": list(kinds)}
        if offset is not None:
            query["offset"] = offset
        found: object = await self._post("getUpdates", query, read_timeout=wait_s + read_limit_s)
        return found


class _WithoutToken(logging.Filter):
    """Removes the token from log records, and lowers the level of records of single requests.

    Otherwise, every poll would be a line in the gateway's log.
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
    """A bot with two pools of connections: one for long polling, one for everything else.

    Attributes:
        bot: the SDK's bot.

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
        """Return the content of an address of the Bot API."""
        return await self._calling.retrieve(url)

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._waiting.shutdown()
        await self._calling.shutdown()
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._filter)

    @asynccontextmanager
    async def call(self, limit_s: float) -> AsyncIterator[None]:
        """Limit the time of the block, and raise every failure in it as `CallFailed`."""
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError as error:
            raise CallFailed(Cause.UNREACHABLE, "Telegram did not answer in time") from error
        except TelegramError as error:
            raise self.failure_of(error) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # The SDK does not validate answers before it reads them.
            reason = f"the answer cannot be read ({type(error).__name__})"
            raise CallFailed(Cause.UNREACHABLE, reason) from error

    def failure_of(self, error: TelegramError) -> CallFailed:
        """Return our error for an error of the SDK."""
        if isinstance(error, _TooManyRequests):
            reason = f"too many messages; Telegram asks to wait {error.retry_after_s:.0f} s"
            return CallFailed(Cause.BUSY, reason, retry_after_s=error.retry_after_s)
        if isinstance(error, ChatMigrated):
            return GroupMoved(error.new_chat_id)
        cause, reason = next(
            (cause, reason) for kind, cause, reason in FAILURES if isinstance(error, kind)
        )
        if cause in _QUOTED:
            detail = error.message.replace(self._token, "<token>")[:_DETAIL_CHARS]
            reason = f"{reason}: {detail}"
        return CallFailed(cause, reason)

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
            # A proxy from the environment must not get the token.
            httpx_kwargs={"trust_env": False},
        )


def _seconds_to_wait(payload: bytes) -> float:
    try:
        answer = json.loads(payload)
        return max(float(answer["parameters"]["retry_after"]), 0.0)
    except (ValueError, LookupError, TypeError):
        return _DEFAULT_WAIT_S
