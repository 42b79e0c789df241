"""Settings of the page."""

from __future__ import annotations

from pydantic import Field, PositiveInt, SecretStr, field_validator

from nanobot_core import ChannelSettings

CHANNEL = "web"
OWNER = "owner"
"""Sender id of everyone who has signed in: the code and the password are the owner's."""
_MIN_PASSWORD_CHARS = 12


class WebSettings(ChannelSettings):
    """Section ``channels.web``.

    Attributes:
        password: signs in without the code of ``nanobot web``, such as from a phone.
        login_days: days after its last use that a login ends.
        max_upload_bytes: largest file that can be attached.
    """

    allow_from: list[str] = Field(default=[OWNER])
    pairing: bool = False
    rate_limit: PositiveInt = 120
    password: SecretStr | None = None
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
