"""Settings of the webhook channel."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, PositiveFloat, PositiveInt, SecretStr

from nanobot_core import ChannelSettings
from nanobot_webhook.signature import decode_key


def _check_secret(secret: SecretStr | None) -> SecretStr | None:
    if secret is None or not secret.get_secret_value():
        return None
    decode_key(secret.get_secret_value())
    return secret


def _check_url(url: SecretStr | None) -> SecretStr | None:
    if url is None or not url.get_secret_value():
        return None
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        msg = "an address such as https://host/path, without a user name"
        raise ValueError(msg)
    return url


class WebhookSettings(ChannelSettings):
    """Section ``channels.webhook``.

    Attributes:
        secret: shared with the programs that write and read: ``whsec_`` and 24 to 64 random bytes
            in base64, as Standard Webhooks asks.
        callback_url: where replies are posted. Kept like a secret, since it often contains tokens.
        tolerance_s: seconds that a message's timestamp may be off.
        max_body_bytes: largest message, its files in base64 included.
        max_piece_chars: longest text of one reply; longer ones are split.
        max_file_bytes: the files of one reply together; those beyond it are left out by name.
        timeout_s: limit of one callback in seconds.
        max_event_bytes: largest request that starts a job.
        max_events_per_minute: requests to the address of one job that are accepted.
    """

    secret: Annotated[SecretStr | None, AfterValidator(_check_secret)] = None
    callback_url: Annotated[SecretStr | None, AfterValidator(_check_url)] = None
    tolerance_s: PositiveFloat = 300
    max_body_bytes: PositiveInt = 4 * 1024 * 1024
    max_piece_chars: PositiveInt = 20_000
    max_file_bytes: PositiveInt = 4 * 1024 * 1024
    timeout_s: PositiveFloat = 30
    max_event_bytes: PositiveInt = 256 * 1024
    max_events_per_minute: PositiveInt = 60
