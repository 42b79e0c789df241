"""Fields that the settings of channels have in common."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

_SCHEMES = frozenset({"http", "https"})


def _check_url(url: str) -> str:
    address = urlsplit(url)
    if address.scheme not in _SCHEMES or not address.hostname:
        msg = "not an http or https address"
        raise ValueError(msg)
    return url.rstrip("/")


def _check_proxy(proxy: SecretStr | None) -> SecretStr | None:
    if proxy is None or not proxy.get_secret_value():
        return None
    address = urlsplit(proxy.get_secret_value())
    if address.scheme not in _SCHEMES or not address.hostname:
        msg = "not an http proxy such as 'http://host:3128'"
        raise ValueError(msg)
    return proxy


ServiceUrl: TypeAlias = Annotated[str, AfterValidator(_check_url)]
"""Address of a platform's API, without a slash at its end."""
HttpProxy: TypeAlias = Annotated[SecretStr | None, AfterValidator(_check_proxy)]
"""Address of an http proxy, which may contain a password; an empty one means none."""
