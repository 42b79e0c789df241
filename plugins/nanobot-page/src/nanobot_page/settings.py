"""Settings of the page."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, PositiveInt, SecretStr, field_validator, model_validator

from nanobot_core import ChannelSettings

CHANNEL = "web"
OWNER = "owner"
"""Sender id of the owner: who has signed in with the code or the password."""
GUEST = "guest:"
"""Begins the sender id of a guest, so that no id of another channel in `owner` is one."""
_MIN_PASSWORD_CHARS = 12
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class WebSettings(ChannelSettings):
    """Section ``channels.web``.

    Attributes:
        password: signs in without the code of ``nanobot web``, such as from a phone.
        guests: name to password of people who chat with the rights of guests.
        login_days: days after its last use that a login ends.
        max_upload_bytes: largest file that can be attached.
    """

    allow_from: list[str] = Field(default=[OWNER])
    pairing: bool = False
    rate_limit: PositiveInt = 120
    password: SecretStr | None = None
    guests: dict[str, SecretStr] = Field(default={})
    login_days: PositiveInt = 30
    max_upload_bytes: PositiveInt = 20 * 1024 * 1024

    @field_validator("password")
    @classmethod
    def _check_password(cls, password: SecretStr | None) -> SecretStr | None:
        if password is None or not password.get_secret_value():
            return None
        if len(password.get_secret_value()) < _MIN_PASSWORD_CHARS:
            msg = f"at least {_MIN_PASSWORD_CHARS} characters"
            raise ValueError(msg)
        return password

    @field_validator("guests")
    @classmethod
    def _check_guests(cls, guests: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, password in guests.items():
            if not _NAME.fullmatch(name) or name == OWNER:
                msg = (
                    f"{name!r} cannot be the name of a guest: use up to 32 of a-z, 0-9, '-' and "
                    f"'_', and not {OWNER!r}"
                )
                raise ValueError(msg)
            if len(password.get_secret_value()) < _MIN_PASSWORD_CHARS:
                msg = f"the password of {name!r} needs at least {_MIN_PASSWORD_CHARS} characters"
                raise ValueError(msg)
        return guests

    @model_validator(mode="after")
    def _admit_guests(self) -> Self:
        """Admit the guests, besides those whom `allow_from` names."""
        missing = [id_ for id_ in map(sender_id, self.guests) if id_ not in self.allow_from]
        if not missing:
            return self
        return self.model_copy(update={"allow_from": [*self.allow_from, *missing]})


def sender_id(guest: str) -> str:
    """Return the sender id of a guest; of the owner if `guest` is empty."""
    return f"{GUEST}{guest}" if guest else OWNER
