"""Tokens of a sign-in: stored in a private file, renewed before they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from nanobot_core.errors import (
    AuthenticationFailed,
    ProviderError,
    ProviderTimeout,
    Unreachable,
)
from nanobot_core.private_file import PrivateFile, PrivateFileRefused
from nanobot_core.record import dataclass
from nanobot_core.tasks import WORK_END_S, finish_in_thread, finish_within

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.messages import JsonObject

RENEWAL_LIMIT_S: Final = 30.0
"""Seconds that one renewal may take, and that others wait for it."""
_BRIEF_S: Final = 1.0
"""Seconds to wait for another process while the access token is valid."""
_RETRY_S: Final = 30.0
"""Seconds until a renewal that failed is tried again, while the access token is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a service gave at a sign-in.

    Attributes:
        access: sent with each request.
        refresh: exchanged for the next access token; may be empty.
        expires_at: when `access` becomes invalid, in seconds since 1970; ``None`` if unknown.
        account: for people, such as an e-mail address; may be empty.
        details: what else requests require, such as the id of the account.
    """

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    expires_at: float | None = None
    account: str = ""
    details: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the tokens as plain data."""
        return {
            "access": self.access,
            "refresh": self.refresh,
            "expires_at": self.expires_at,
            "account": self.account,
            "details": {**self.details},
        }

    @classmethod
    def from_json(cls, record: JsonObject) -> Tokens:
        """Read the result of `to_json`.

        Raises:
            ValueError: `record` is not such a result.
            OverflowError: its time of expiry is too large for a number with a point.
        """
        details = record.get("details")
        expires_at = record.get("expires_at")
        texts = [record.get(key) for key in ("access", "refresh", "account")]
        is_number = isinstance(expires_at, int | float) and not isinstance(expires_at, bool)
        if not all(isinstance(text, str) for text in texts) or not isinstance(details, dict):
            msg = "it holds no tokens"
            raise ValueError(msg)
        return cls(
            access=str(texts[0]),
            refresh=str(texts[1]),
            expires_at=float(expires_at) if is_number else None,  # type: ignore[arg-type]  # checked by is_number
            account=str(texts[2]),
            details={key: value for key, value in details.items() if isinstance(value, str)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Who is signed in to a provider.

    Attributes:
        account: for people; may be empty.
        ends_at: when the sign-in ends; ``None`` if the tokens can be renewed or have no end.
        problem: why the stored tokens cannot be used; empty if they can.
    """

    account: str = ""
    ends_at: datetime | None = None
    problem: str = ""


def token_file(data_dir: Path, provider: str) -> PrivateFile:
    """Return the file with the tokens of a provider.

    Args:
        data_dir: data folder of the provider's plugin.
        provider: name of the provider.
    """
    return PrivateFile(data_dir / "tokens" / f"{provider}.json")


def read_tokens(file: PrivateFile) -> Tokens | None:
    """Return the tokens in `file`; ``None`` if there is no file. Blocks.

    Raises:
        PrivateFileRefused: the file is damaged, or other accounts have access to it.
        OSError: it cannot be read.
    """
    record = file.read()
    if record is None:
        return None
    try:
        return Tokens.from_json(record)
    except (ValueError, OverflowError) as error:
        raise PrivateFileRefused(file.path, f"it is damaged: {error}") from error


def read_sign_in(file: PrivateFile) -> SignIn | None:
    """Return who is signed in; ``None`` without a sign-in. Blocks."""
    try:
        tokens = read_tokens(file)
    except PrivateFileRefused as error:
        return SignIn(problem=str(error))
    except OSError as error:
        return SignIn(problem=f"cannot read '{file.path}': {error.strerror}")
    if tokens is None:
        return None
    ends_at = None
    if tokens.expires_at is not None and not tokens.refresh:
        # A service may name any number.
        with suppress(ValueError, OverflowError, OSError):
            ends_at = datetime.fromtimestamp(tokens.expires_at, UTC)
    return SignIn(account=tokens.account, ends_at=ends_at)


def login_command(provider: str) -> str:
    """Return the command that signs in to a provider."""
    return f"nanobot providers login {provider.replace('_', '-')}"


class TokenSource:
    """Gives the access token for each request, and renews it before it expires.

    The file is read for each request, so that a login, a logout and a renewal by another process
    count at once. Of several processes and tasks that find the token due, one renews it; the others
    wait and read the result. The request that renews it is made only after space for its answer is
    reserved on the disk, and a cancelled caller lets it finish for a few seconds, because a service
    may accept a refresh token only once.

    Args:
        provider: name of the provider, for errors.
        file: see `token_file`.
        renew: exchanges tokens for new ones. It raises `AuthenticationFailed` if the service has
            ended the sign-in, and another `ProviderError` if it may succeed later.
        clock: source of time.
        conceal: `PluginContext.conceal`.
        early_s: seconds before the expiry from which a token is renewed.

    Attributes:
        secrets: the tokens of the latest request, which must not appear in errors.
    """

    def __init__(
        self,
        provider: str,
        file: PrivateFile,
        renew: Callable[[Tokens], Awaitable[Tokens]],
        *,
        clock: Clock,
        conceal: Callable[[Iterable[str]], None],
        early_s: float = 300.0,
    ) -> None:
        self._provider = provider
        self._file = file
        self._renew = renew
        self._clock = clock
        self._conceal = conceal
        self._early_s = early_s
        self._renewing = asyncio.Lock()
        self.secrets: tuple[str, ...] = ()
        self._rejected = ""
        self._replacement = ""
        """The access token that replaced a rejected one."""
        self._ended: tuple[str, str] | None = None
        """The refresh token that the service refused, and why."""
        self._unstored: tuple[str, Tokens] | None = None
        """The refresh token in the file, and the tokens that could not be stored instead."""
        self._pause_until_s = 0.0

    async def current(self) -> Tokens:
        """Return tokens with a valid access token.

        Raises:
            AuthenticationFailed: there is no sign-in, or the service has ended the sign-in.
            ProviderError: the access token has expired and cannot be renewed now.

        Cancellation:
            A renewal that is under way has a few seconds to end and to be stored.
        """
        tokens = await self._read()
        if not self._is_due(tokens):
            return tokens
        is_paused = self._renewing.locked() or self._clock.monotonic_s() < self._pause_until_s
        if self._is_valid(tokens) and is_paused:
            return tokens
        limit_s = _BRIEF_S if self._is_valid(tokens) else RENEWAL_LIMIT_S
        async with self._renewing:
            return await finish_within(self._renewed(limit_s), WORK_END_S)

    def reject(self, tokens: Tokens) -> bool:
        """Note that the service does not accept an access token although it has not expired.

        Returns:
            Whether the next `current` may give another one.
        """
        # If the next one is not accepted either, the reason is another one.
        if tokens.access in (self._rejected, self._replacement) or not tokens.refresh:
            return False
        self._rejected = tokens.access
        return True

    async def _renewed(self, limit_s: float) -> Tokens:
        """Renew the tokens, unless another process does it, which has `limit_s` seconds."""
        try:
            async with self._file.locked(limit_s):
                tokens = await self._read()
                if not self._is_due(tokens):
                    return tokens
                return await self._exchange(tokens)
        except TimeoutError as error:
            reason = "another process is renewing its tokens and does not end"
            return await self._fallback(Unreachable(self._provider, reason), error)
        except OSError as error:
            reason = f"its tokens cannot be stored, so they are not renewed: {error.strerror}"
            return await self._fallback(Unreachable(self._provider, reason), error)
        except AuthenticationFailed:
            raise
        except ProviderError as error:
            return await self._fallback(error, None)

    async def _exchange(self, tokens: Tokens) -> Tokens:
        if not tokens.refresh:
            raise self._failure("the sign-in has expired")
        if self._ended is not None and self._ended[0] == tokens.refresh:
            raise AuthenticationFailed(self._provider, self._ended[1])
        space = await finish_in_thread(self._file.reserve)
        try:
            async with asyncio.timeout(RENEWAL_LIMIT_S):
                fresh = await self._renew(tokens)
            self._note_secrets(tokens, fresh)
            if tokens.access == self._rejected:
                self._replacement = fresh.access
            try:
                await finish_in_thread(partial(space.fill, fresh.to_json()))
            except OSError:
                self._unstored = (tokens.refresh, fresh)
        except AuthenticationFailed as error:
            self._ended = (tokens.refresh, error.reason)
            raise
        except TimeoutError as error:
            reason = "it did not renew the tokens in time"
            raise ProviderTimeout(self._provider, reason) from error
        finally:
            await finish_in_thread(space.release)
        return fresh

    async def _fallback(self, failure: ProviderError, cause: BaseException | None) -> Tokens:
        """Return the old tokens while they are valid."""
        tokens = await self._read()
        if not self._is_valid(tokens):
            raise failure from cause
        self._pause_until_s = self._clock.monotonic_s() + _RETRY_S
        from loguru import logger

        logger.warning("{}; the present access token is used until it expires", failure)
        return tokens

    async def _read(self) -> Tokens:
        try:
            tokens = await asyncio.to_thread(read_tokens, self._file)
        except PrivateFileRefused as error:
            raise self._failure(f"its tokens cannot be used: {error}") from error
        except OSError as error:
            reason = f"its tokens cannot be read: {error.strerror}"
            raise Unreachable(self._provider, reason) from error
        if tokens is None:
            self._unstored = None
            raise self._failure("not signed in")
        if self._unstored is not None:
            tokens = await self._store_late(tokens)
        self._note_secrets(tokens)
        return tokens

    def _note_secrets(self, *known: Tokens) -> None:
        found = {text for tokens in known for text in (tokens.access, tokens.refresh) if text}
        self.secrets = tuple(sorted(found, key=len, reverse=True))
        self._conceal(found)

    async def _store_late(self, found: Tokens) -> Tokens:
        """Return the tokens that could not be stored, if they still follow those in the file."""
        assert self._unstored is not None  # noqa: S101 - checked by the caller
        former, fresh = self._unstored
        if found.refresh != former or found.access == fresh.access:
            self._unstored = None
            return found
        with suppress(OSError):
            await finish_in_thread(partial(self._file.replace, fresh.to_json()))
            self._unstored = None
        return fresh

    def _failure(self, reason: str) -> AuthenticationFailed:
        remedy = f"run {login_command(self._provider)}"
        return AuthenticationFailed(self._provider, f"{reason}; {remedy}")

    def _is_due(self, tokens: Tokens) -> bool:
        return not self._is_valid(tokens, self._early_s)

    def _is_valid(self, tokens: Tokens, margin_s: float = 0.0) -> bool:
        """Whether the access token can be used for `margin_s` seconds from now."""
        if not tokens.access or tokens.access == self._rejected:
            return False
        now = self._clock.now().timestamp()
        return tokens.expires_at is None or tokens.expires_at - margin_s > now


async def store_tokens(file: PrivateFile, tokens: Tokens) -> None:
    """Store tokens of a login, instead of those stored before.

    Raises:
        OSError: they cannot be stored.
        TimeoutError: another process renews the present ones and does not end.
    """
    async with file.locked(RENEWAL_LIMIT_S):
        await finish_in_thread(partial(file.replace, tokens.to_json()))
