"""Where requests go and what goes with each.

Settled from the spec, the settings and the environment before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from ipaddress import ip_address
from socket import inet_aton
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from nanobot_core.errors import ConfigError
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.config.models import ProviderSettings
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.contracts.provider import ProviderSpec

PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
_VERSION = re.compile(r"v\d+\w*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LOCAL_DOMAINS = (
    "localhost", "local", "lan", "home", "internal", "intranet", "home.arpa", "test",
)  # fmt: skip
"""Ends of names that the public network does not resolve (RFC 6761, RFC 6762, RFC 8375) and that
home and company networks use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service as the owner has configured it.

    Attributes:
        base: base URL, version included, without a slash at its end.
        headers: sent with each request, credentials included, names in lower case.
        proxy: URL of the proxy, or ``None``.
        timeout_s: longest silence to wait through, in seconds.
        secrets: texts that must not appear in logs or errors.
    """

    base: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)
    timeout_s: float
    secrets: tuple[str, ...] = field(repr=False)

    def url(self, path: str) -> str:
        """Return the address of `path`, which begins with a slash and may have a query."""
        parts, (route, _, query) = urlsplit(self.base), path.partition("?")
        queries = "&".join(filter(None, (parts.query, query)))
        return parts._replace(path=parts.path + route, query=queries).geturl()


def resolve_endpoint(
    ctx: PluginContext,
    spec: ProviderSpec,
    settings: ProviderSettings,
    *,
    path: str = "/chat/completions",
    key_header: str = "authorization",
    finds_keys: bool = False,
) -> Endpoint:
    """Return the endpoint of the provider that `spec` describes.

    Args:
        ctx: for environment variables.
        spec: the provider's row of the table.
        settings: its section of the configuration.
        path: where requests are posted; a base URL may already end in it.
        key_header: header for the key: ``authorization`` carries it as a bearer token, another one
            carries the key alone.
        finds_keys: a library behind the provider may send a key that it finds by itself, so that
            a public host is refused without encryption in any case.

    Raises:
        ConfigError: the key or the base URL is missing, a value cannot be sent, or the key would
            travel unencrypted to a public host.
    """
    base = settings.api_base or spec.default_base
    if not base:
        msg = f"provider '{spec.name}' has no base URL; set providers.{spec.name}.api_base"
        raise ConfigError(msg)
    parts = _split(base, spec)
    key = _key(ctx, spec, settings)
    headers = {}
    if key:
        headers[key_header] = f"Bearer {key}" if key_header == "authorization" else key
    headers |= {name.lower(): value for name, value in settings.extra_headers.items()}
    _check_headers(headers, key_header, spec)
    has_secret = finds_keys or bool(headers) or bool(parts.password)
    if has_secret and _is_public_http(parts) and not settings.allow_http:
        msg = (
            f"provider '{spec.name}' would send its key unencrypted to {parts.hostname}; use "
            f"https in providers.{spec.name}.api_base, or set providers.{spec.name}.allow_http "
            "to true if the way there is private"
        )
        raise ConfigError(msg)
    proxy = settings.proxy or _proxy_from(ctx, parts)
    secrets = {key, *settings.extra_headers.values(), parts.password, parts.query}
    if proxy:
        secrets.add(urlsplit(proxy).password)
    return Endpoint(
        base=base_url(base, path),
        headers=headers,
        proxy=proxy,
        timeout_s=settings.timeout_s,
        secrets=tuple(sorted((text for text in secrets if text), key=len, reverse=True)),
    )


def key_hint(spec: ProviderSpec) -> str:
    """Return the remedy for a key that is missing or refused."""
    variables = "".join(f" or {name}" for name in spec.api_key_env)
    return f"set providers.{spec.name}.api_key{variables}"


def base_url(base: str, path: str) -> str:
    """Return the base URL that `base` means, which may lack its ``/v1`` or repeat it.

    A path that already names a version (``/v1``, ``/api/v3``, ``/v1beta/openai``) gets none, and
    one that ends in `path` is the full address.
    """
    parts = urlsplit(base.strip())
    found = parts.path.rstrip("/")
    is_address = found.endswith(path)
    segments = [segment for segment in found.removesuffix(path).split("/") if segment]
    while len(segments) > 1 and segments[-1] == segments[-2] and _VERSION.fullmatch(segments[-1]):
        segments.pop()
    if not is_address and not any(_VERSION.fullmatch(segment) for segment in segments):
        segments.append("v1")
    return parts._replace(path="".join(f"/{one}" for one in segments), fragment="").geturl()


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


def _is_public_http(parts: SplitResult) -> bool:
    """Whether a request would cross the public network unencrypted, as far as its name shows."""
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "http":
        return False
    try:
        # Resolvers read 134744072 and 0x8.8.8.8 as addresses, too.
        return ip_address(host if ":" in host else inet_aton(host)).is_global
    except (ValueError, OSError):
        return "." in host and not host.endswith(tuple(f".{end}" for end in _LOCAL_DOMAINS))


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


def _check_headers(headers: Mapping[str, str], key_header: str, spec: ProviderSpec) -> None:
    """Refuse values that HTTP cannot carry; the HTTP library would quote them in its error."""
    for name, value in headers.items():
        if not (f"{name}{value}".isascii() and f"{name}{value}".isprintable()):
            setting = "api_key" if name == key_header else "extra_headers"
            msg = (
                f"provider '{spec.name}' cannot send its header '{name}': it contains characters "
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
