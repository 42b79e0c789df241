"""Settings of the web tools."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr

from nanobot_core import PluginSettings

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _proxy_url(value: SecretStr | None) -> SecretStr | None:
    """Refuse text that is not the URL of a proxy, without repeating it: it may be a password."""
    if value is not None:
        parts = urlsplit(value.get_secret_value())
        if parts.scheme not in _PROXY_SCHEMES or not parts.hostname:
            msg = f"expected a URL such as socks5://host:1080 ({', '.join(_PROXY_SCHEMES)})"
            raise ValueError(msg)
    return value


def _backend_name(value: str) -> str:
    return value.strip().lower()


BackendName = Annotated[str, AfterValidator(_backend_name)]
Secret = Annotated[SecretStr | None, BeforeValidator(_none_if_empty)]
Proxy = Annotated[SecretStr | None, BeforeValidator(_none_if_empty), AfterValidator(_proxy_url)]


class BackendSettings(PluginSettings):
    """How one search service is reached."""

    api_key: Secret = None
    """Key of the service; without it the service's environment variable counts."""

    base_url: str = ""
    """Address to use instead of the service's own. It may lie in a private network."""


class SearchSettings(BackendSettings):
    """Section ``tools.web.search``; key and address are those of `provider`."""

    provider: BackendName = "duckduckgo"
    """Name of the search backend that is asked first."""

    fallback: tuple[BackendName, ...] = ("duckduckgo",)
    """Backends that are asked in this order when the first one fails."""

    backends: dict[BackendName, BackendSettings] = Field(default_factory=dict)
    """Key and address of further backends, by name."""

    max_results: int = Field(default=5, ge=1, le=10)
    """Results of a search when the call names no count."""

    timeout_s: float = Field(
        default=30, gt=0, le=120, validation_alias=AliasChoices("timeout_s", "timeoutS", "timeout")
    )
    """Seconds that one backend may take."""


class FetchSettings(PluginSettings):
    """Section ``tools.web.fetch``."""

    max_bytes: int = Field(default=10_000_000, ge=1_000, le=100_000_000)
    """Size of a page, unpacked; the rest is cut off."""

    max_image_bytes: int = Field(default=5_000_000, ge=1_000)
    """Size of the largest image that the model is shown."""

    max_redirects: int = Field(default=5, ge=0, le=5)
    """Redirects that are followed."""

    timeout_s: float = Field(
        default=30, gt=0, le=120, validation_alias=AliasChoices("timeout_s", "timeoutS", "timeout")
    )
    """Seconds that a download may take, redirects included."""

    extract_timeout_s: float = Field(default=20, gt=0, le=120)
    """Seconds that making text of a page may take."""


class WebSettings(PluginSettings):
    """Section ``tools.web``."""

    enable: bool = True
    """Whether there are web tools."""

    proxy: Proxy = None
    """Proxy for all requests: ``http``, ``https``, ``socks5`` or ``socks5h``."""

    user_agent: str | None = None
    """User agent for web servers."""

    search: SearchSettings = SearchSettings.model_construct()
    fetch: FetchSettings = FetchSettings.model_construct()
