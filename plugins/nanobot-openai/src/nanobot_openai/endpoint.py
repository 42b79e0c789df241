"""Where requests go and what goes with each.

Settled from the spec, the settings and the environment before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from nanobot_core import ConfigError

if TYPE_CHECKING:
    from nanobot_core import PluginContext, ProviderSettings, ProviderSpec

PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
_CHAT = "/chat/completions"
_VERSION = re.compile(r"v\d+\w*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service as the owner has set it up.

    Attributes:
        url: address of chat completions.
        headers: sent with each request, credentials included.
        proxy: URL of the proxy, or ``None``.
        timeout_s: longest silence to wait through, in seconds.
        secrets: texts that must not appear in logs or errors.
        alternating_roles: see `ProviderSettings`.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)
    timeout_s: float
    secrets: tuple[str, ...] = field(repr=False)
    alternating_roles: bool = False


def resolve_endpoint(
    ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings
) -> Endpoint:
    """Return the endpoint of the provider `spec` names.

    Raises:
        ConfigError: the key or the base URL is missing, or a value cannot be sent.
    """
    base = settings.api_base or spec.default_base
    if not base:
        msg = f"provider '{spec.name}' has no base URL; set providers.{spec.name}.api_base"
        raise ConfigError(msg)
    parts = _split(base, spec)
    key = _key(ctx, spec, settings)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    headers |= {name.lower(): value for name, value in settings.extra_headers.items()}
    _check_headers(headers, spec)
    proxy = settings.proxy or _proxy_from(ctx, parts)
    secrets = {key, *settings.extra_headers.values(), parts.password, parts.query}
    if proxy:
        secrets.add(urlsplit(proxy).password)
    return Endpoint(
        url=chat_url(base),
        headers=headers,
        proxy=proxy,
        timeout_s=settings.timeout_s,
        alternating_roles=settings.alternating_roles,
        secrets=tuple(sorted((text for text in secrets if text), key=len, reverse=True)),
    )


def key_hint(spec: ProviderSpec) -> str:
    """Return the remedy for a key that is missing or refused."""
    variables = "".join(f" or {name}" for name in spec.api_key_env)
    return f"set providers.{spec.name}.api_key{variables}"


def chat_url(base: str) -> str:
    """Return the address of chat completions below `base`, which may lack its ``/v1``.

    A path that already names a version (``/v1``, ``/api/v3``, ``/v1beta/openai``) gets none, and a
    base that ends in ``/chat/completions`` is the address itself.
    """
    parts = urlsplit(base.strip())
    path = parts.path.rstrip("/")
    if not path.endswith(_CHAT):
        if not any(_VERSION.fullmatch(segment) for segment in path.split("/")):
            path += "/v1"
        path += _CHAT
    return parts._replace(path=path, fragment="").geturl()


def _split(base: str, spec: ProviderSpec) -> SplitResult:
    try:
        parts = urlsplit(base.strip())
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = None
    if not is_address:
        msg = (
            f"provider '{spec.name}' cannot use its base URL; "
            f"set providers.{spec.name}.api_base to an address such as https://host/v1"
        )
        raise ConfigError(msg)
    return parts


def _key(ctx: PluginContext, spec: ProviderSpec, settings: ProviderSettings) -> str:
    found = settings.api_key.get_secret_value() if settings.api_key else ""
    if not found:
        environment = ctx.environment(spec.api_key_env)
        values = (environment.get(name, "") for name in spec.api_key_env)
        found = next((value for value in values if value), "")
    # Keys are pasted, often with a line end.
    key = found.strip()
    if not key and spec.needs_key:
        msg = f"provider '{spec.name}' has no key; {key_hint(spec)}"
        raise ConfigError(msg)
    return key


def _check_headers(headers: Mapping[str, str], spec: ProviderSpec) -> None:
    """Refuse values that HTTP cannot carry; the HTTP library would quote them in its error."""
    for name, value in headers.items():
        if not (f"{name}{value}".isascii() and f"{name}{value}".isprintable()):
            setting = "api_key" if name == "authorization" else "extra_headers"
            msg = (
                f"provider '{spec.name}' cannot send its header '{name}': it holds characters "
                f"that are not printable ASCII; correct providers.{spec.name}.{setting}"
            )
            raise ConfigError(msg)


def _proxy_from(ctx: PluginContext, target: SplitResult) -> str | None:
    """Return the proxy that the environment names for `target`, by the usual variables."""
    names = [*PROXY_VARIABLES, *(name.lower() for name in PROXY_VARIABLES)]
    found = {name.lower(): value for name, value in ctx.environment(names).items() if value}
    proxy = found.get(f"{target.scheme}_proxy") or found.get("all_proxy")
    if not proxy or target.hostname in _LOOPBACK:
        return None
    host = f".{target.hostname}"
    for excluded in found.get("no_proxy", "").lower().split(","):
        suffix = excluded.strip().lstrip("*").lstrip(".")
        if excluded.strip() == "*" or (suffix and host.endswith(f".{suffix}")):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"
