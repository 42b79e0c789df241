"""Who may see what."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

if TYPE_CHECKING:
    from starlette.types import Scope

    from nanobot_core import GatewayAccess

_FORWARDED = ("forwarded", "x-forwarded-for")


class Access:
    """Decides by the owner's secret, which may change while the server runs.

    Args:
        gateway: knows the secret.
        is_private: only this machine can connect, and no proxy of the owner's does so for others.
    """

    def __init__(self, gateway: GatewayAccess, *, is_private: bool) -> None:
        self._gateway = gateway
        self._is_private = is_private

    def knows_secret(self, scope: Scope) -> bool:
        """Tell whether the request carries the secret (``Authorization: Bearer``, RFC 6750)."""
        secret = self._gateway.secret
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if secret is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(token.strip().encode(), secret.get_secret_value().encode())

    def may_look(self, scope: Scope) -> bool:
        """Tell whether the request may see how the gateway is in detail."""
        headers = Headers(scope=scope)
        is_direct = not any(name in headers for name in _FORWARDED)
        return (self._is_private and is_direct) or self.knows_secret(scope)
