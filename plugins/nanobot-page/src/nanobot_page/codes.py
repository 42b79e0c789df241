"""What proves who signs in: one-time codes from the terminal, and passwords."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

from nanobot_page.settings import WebSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext

CODE_LIFE_S: Final = 60.0
MAX_CODES: Final = 8
MAX_TRIES: Final = 5
"""Wrong passwords a minute, of all clients together, for the owner and for guests each.

Codes are too long to guess.
"""
_MINUTE_S: Final = 60.0


class TooManyTries(Exception):
    """Too many wrong attempts; `wait_s` seconds until the next one."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s: float = wait_s
        super().__init__("too many wrong attempts")


class Codes:
    """Issues codes and checks proofs. Codes are kept hashed and in memory: a restart ends them."""

    def __init__(self, ctx: PluginContext) -> None:
        self._clock = ctx.clock
        self._settings = ctx.settings(WebSettings)
        self._codes: dict[str, float] = {}
        # By whether a guest was named, so that guests do not keep the owner from signing in.
        self._wrong: dict[bool, deque[float]] = {
            kind: deque(maxlen=MAX_TRIES) for kind in (False, True)
        }

    @property
    def has_password(self) -> bool:
        """Whether a password is set."""
        return self._settings.password is not None

    @property
    def has_guests(self) -> bool:
        """Whether guests can sign in."""
        return bool(self._settings.guests)

    def issue(self) -> str:
        """Return a new code of 256 bits, which is valid once and for `CODE_LIFE_S` seconds."""
        code = secrets.token_urlsafe(32)
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[_hashed(code)] = self._clock.monotonic_s() + CODE_LIFE_S
        return code

    def redeem(self, code: str) -> bool:
        """Whether `code` is valid; it is not afterwards.

        There is no limit to wrong codes, so that no one can keep the owner from signing in.
        """
        return self._clock.monotonic_s() < self._codes.pop(_hashed(code), 0.0)

    def accepts_password(self, given: str, guest: str = "") -> bool:
        """Whether `given` is the password of a guest; of the owner if `guest` is empty.

        Raises:
            TooManyTries: there were too many wrong attempts.
        """
        wrong = self._wrong[bool(guest)]
        self._check_tries(wrong)
        known = self._settings.guests
        password = known.get(guest) if guest else self._settings.password
        expected = password.get_secret_value() if password else ""
        is_same = hmac.compare_digest(given.encode(errors="replace"), expected.encode())
        is_right = bool(expected) and is_same
        if not is_right:
            wrong.append(self._clock.monotonic_s())
        return is_right

    def _check_tries(self, wrong: deque[float]) -> None:
        if len(wrong) == MAX_TRIES:
            wait_s = wrong[0] + _MINUTE_S - self._clock.monotonic_s()
            if wait_s > 0:
                raise TooManyTries(wait_s)


def _hashed(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()
