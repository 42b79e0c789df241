"""Settings of the HTTP server."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from nanobot_core import PluginSettings


class HttpSettings(PluginSettings):
    """Section ``gateway.http``. Host, port and secret are in the core's section ``gateway``.

    Attributes:
        allowed_hosts: further names by which clients reach the server, without a port;
            ``*.example.org`` means all names below it.
        allowed_origins: further origins, such as ``https://bot.example.org``, whose pages may call;
            pages of the server itself always may.
        trusted_proxies: addresses or networks of reverse proxies whose ``X-Forwarded-For`` counts.
        max_body_bytes: largest request body.
        requests_per_minute: requests that one client may make a minute, on average.
        request_timeout_s: seconds from the head of a request to the start of its answer.
    """

    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    max_body_bytes: PositiveInt = 10 * 1024 * 1024
    requests_per_minute: PositiveInt = 600
    request_timeout_s: PositiveFloat = 30
