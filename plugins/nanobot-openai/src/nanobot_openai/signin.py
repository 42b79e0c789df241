"""What the sign-ins share: the flow in a browser, the flow with a code, and leaving again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from nanobot_core import (
    ConfigError,
    PrivateFile,
    PrivateFileRefused,
    ProviderError,
    finish_in_thread,
    read_tokens,
    store_tokens,
)
from nanobot_core.net import redirect_listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core import Clock, LoginPrompt, PluginContext, Tokens
    from nanobot_core.net import RedirectListener
    from nanobot_openai.signin_http import AuthAnswer, AuthServer

LOGIN_LIMIT_S: Final = 900.0
"""Seconds that a person has; codes of the known services are valid for 15 minutes."""
DEFAULT_INTERVAL_S: Final = 5.0
"""Seconds between two requests for the result (RFC 8628, section 3.5)."""
_MIN_INTERVAL_S: Final = 1.0
_MAX_INTERVAL_S: Final = 60.0
_NOTE_EVERY_S: Final = 60.0
RENEWAL_LIMIT_S: Final = 30.0
"""Seconds that another process may renew the tokens."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that the one who exchanges a code is the one who asked for it (PKCE, RFC 7636).

    Attributes:
        verifier: the secret.
        state: value that the redirect must bring back.
    """

    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def challenge(self) -> str:
        """The hash of the verifier, by the method S256."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Pending:
    """The person has not entered the code yet.

    Attributes:
        interval_s: seconds to wait between two requests, if that has changed.
    """

    interval_s: float | None = None


async def code_from_browser(
    server: AuthServer,
    prompt: LoginPrompt,
    proof: Proof,
    *,
    path: str,
    ports: Sequence[int],
    address: Callable[[str], str],
) -> tuple[str, str]:
    """Let the person allow the access in a browser.

    Args:
        path: of the redirect.
        ports: where the redirect may arrive.
        address: returns the page of the service for a redirect's address.

    Returns:
        The code, and the address that it was sent to.

    Raises:
        AuthenticationFailed: the person or the service refused, or did not answer in time.
        ConfigError: no port is free.
    """
    async with AsyncExitStack() as stack:
        try:
            listening = redirect_listener(path, ports=ports, state=proof.state)
            listener = await stack.enter_async_context(listening)
        except OSError as error:
            msg = f"{error.strerror}; end the program that uses it, or sign in with --device"
            raise ConfigError(msg) from error
        # The service registers this name, not the address.
        redirect = f"http://localhost:{listener.port}{path}"
        await prompt.show(address(redirect), limit_s=LOGIN_LIMIT_S)
        try:
            async with asyncio.timeout(LOGIN_LIMIT_S), asyncio.TaskGroup() as group:
                pasting = group.create_task(_take_pasted(prompt, listener))
                query = await listener.query()
                pasting.cancel()
        except TimeoutError:
            raise server.failure("the access was not allowed in time; try again") from None
    if "code" not in query:
        raise server.failure(f"the access was refused{_reason(query)}")
    return query["code"], redirect


async def _take_pasted(prompt: LoginPrompt, listener: RedirectListener) -> None:
    """Take the redirect's address from the person, if the browser cannot reach this machine."""
    with suppress(OSError, ValueError):
        while problem := listener.offer(await prompt.pasted()):
            await prompt.note(f"{problem}; paste all of it")


def _reason(query: Mapping[str, str]) -> str:
    error = query.get("error", "")
    return f" ({error})" if error.replace("_", "").isalpha() and len(error) <= 60 else ""


async def poll(
    server: AuthServer,
    ask: Callable[[], Awaitable[AuthAnswer | Pending]],
    *,
    clock: Clock,
    prompt: LoginPrompt,
    interval_s: float,
    limit_s: float,
) -> AuthAnswer:
    """Ask for the result of a code until the person has entered it (RFC 8628, section 3.5).

    Raises:
        AuthenticationFailed: the code was not entered in time, or `ask` raised it.
    """
    interval_s = min(max(interval_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)
    started_s = noted_s = clock.monotonic_s()
    while (now_s := clock.monotonic_s()) - started_s + interval_s < limit_s:
        if now_s - noted_s >= _NOTE_EVERY_S:
            noted_s = now_s
            left = (limit_s - (now_s - started_s)) / 60
            await prompt.note(f"still waiting; {left:.0f} minutes left")
        await clock.sleep(interval_s)
        try:
            found = await ask()
        except ProviderError as error:
            if not error.retryable:
                raise
            found = Pending(interval_s * 2)
        if not isinstance(found, Pending):
            return found
        interval_s = min(max(found.interval_s or 0.0, interval_s), _MAX_INTERVAL_S)
    raise server.failure("the code was not entered in time; try again")


async def keep(ctx: PluginContext, provider: str, file: PrivateFile, tokens: Tokens) -> None:
    """Store the tokens of a sign-in, and mask them everywhere."""
    ctx.conceal((tokens.access, tokens.refresh), name=provider)
    try:
        await store_tokens(file, tokens)
    except TimeoutError as error:
        raise _busy(file) from error


async def check_storable(file: PrivateFile) -> None:
    """Raise `OSError` if tokens could not be stored, before the person has any trouble."""
    (await finish_in_thread(file.reserve)).release()


async def forget(file: PrivateFile) -> Tokens | None:
    """Remove the stored tokens and return them, if they can be read.

    Raises:
        OSError: they cannot be removed.
        ConfigError: another process uses them and does not end.
    """
    try:
        async with file.locked(RENEWAL_LIMIT_S):
            return await finish_in_thread(partial(_removed, file))
    except TimeoutError as error:
        raise _busy(file) from error


def _removed(file: PrivateFile) -> Tokens | None:
    tokens = None
    with suppress(PrivateFileRefused, OSError):  # it can be removed all the same
        tokens = read_tokens(file)
    file.remove()
    return tokens


def _busy(file: PrivateFile) -> ConfigError:
    return ConfigError(
        f"another process uses '{file.path}' and does not end; stop it and try again"
    )
