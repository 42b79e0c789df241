"""Settings of transcription."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from nanobot_core import PluginSettings


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _check_address(address: str) -> str:
    parts = urlsplit(address.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        msg = "expected an address such as https://host/v1"
        raise ValueError(msg)
    return address.strip()


def _check_proxy(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
        msg = "expected the address of a proxy such as http://host:3128 or socks5://host:1080"
        raise ValueError(msg)
    return address


class TranscriptionSettings(PluginSettings):
    """Section ``transcription``."""

    provider: Literal["groq", "openai", "custom"] = "groq"
    """Service that recordings go to."""

    api_key: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """Key of the service; its environment variable counts when this is absent."""

    api_base: Annotated[
        Annotated[str, AfterValidator(_check_address)] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Base URL instead of the service's own."""

    model: Annotated[str | None, BeforeValidator(_none_if_empty)] = None
    """Model instead of the service's usual one."""

    language: Annotated[
        Annotated[str, Field(pattern="^[a-z]{2,3}$")] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Language that is spoken, ISO 639-1 such as ``de``; ``None`` lets the service find out."""

    proxy: Annotated[
        Annotated[str, AfterValidator(_check_proxy)] | None, BeforeValidator(_none_if_empty)
    ] = None
    """URL of an HTTP or SOCKS5 proxy."""

    timeout_s: float = Field(default=60.0, gt=0, le=600)
    """Seconds until a recording is given up, retries included."""

    max_bytes: int = Field(default=25_000_000, ge=1)
    """Largest recording that is sent."""

    @model_validator(mode="after")
    def _check_base(self) -> Self:
        if self.provider == "custom" and self.api_base is None:
            msg = "provider 'custom' needs api_base, such as http://127.0.0.1:8000/v1"
            raise ValueError(msg)
        return self
