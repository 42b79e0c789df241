"""Posts replies to the owner's address; temporary failures differ from permanent ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from nanobot_core import DeliveryError
from nanobot_core.net import retry_after_s
from nanobot_webhook.payload import CHANNEL
from nanobot_webhook.signature import sign

if TYPE_CHECKING:
    from nanobot_core import Clock
    from nanobot_webhook.reply import Delivery

_CONNECT_S = 10.0
_PASSING = frozenset({408, 425, 429})
"""Temporary refusals: request timeout, too early, too many requests."""
_LONGEST_WAIT_S = 3600.0


class Callback:
    """Connections to one address, opened at the first `post`.

    Uses httpx's transport and not its client, which logs every address with its query at INFO.

    Args:
        key: signs what is posted.
        timeout_s: limit of one request in seconds.
    """

    def __init__(self, url: str, key: bytes, clock: Clock, timeout_s: float) -> None:
        self._url = url
        self._key = key
        self._clock = clock
        self._timeout_s = timeout_s
        self._limits = httpx.Timeout(timeout_s, connect=_CONNECT_S).as_dict()
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def post(self, delivery: Delivery) -> None:
        """Post one delivery; 2xx confirms it (Standard Webhooks, "Delivery success").

        Raises:
            DeliveryError: it was refused. It can be retried after 408, 425, 429, 5xx, a lost
                connection and a timeout. Redirects are not followed: they are final, like all else.
        """
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "user-agent": "nanobot-webhook",
            "content-type": "application/json",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._key, delivery.id, timestamp, delivery.body),
        }
        transport = await self._open()
        try:
            request = httpx.Request(
                "POST",
                self._url,
                content=delivery.body,
                headers=headers,
                extensions={"timeout": self._limits},
            )
            async with asyncio.timeout(self._timeout_s):
                answer = await transport.handle_async_request(request)
                # The body is not read: it may never end.
                await answer.aclose()
                status, retry_after = answer.status_code, answer.headers.get("retry-after")
        except TimeoutError:
            reason = f"the callback did not answer within {self._timeout_s:g} seconds"
            raise DeliveryError(CHANNEL, reason, retryable=True) from None
        except httpx.InvalidURL:
            reason = "the callback's address is not valid; set channels.webhook.callback_url"
            raise DeliveryError(CHANNEL, reason, retryable=False) from None
        except httpx.TransportError as error:
            # Its text may contain the address, which can contain a secret.
            reason = f"the callback cannot be reached ({type(error).__name__})"
            raise DeliveryError(CHANNEL, reason, retryable=True) from None
        if not 200 <= status <= 299:
            raise self._refusal(status, retry_after)

    async def aclose(self) -> None:
        """Close the connections; a later post fails and can be tried again."""
        self._is_closed = True
        async with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def _open(self) -> httpx.AsyncHTTPTransport:
        async with self._lock:
            if self._is_closed:
                raise DeliveryError(CHANNEL, "the channel has stopped", retryable=True)
            if self._transport is None:
                # In a thread, because it reads the certificates of authorities.
                self._transport = await asyncio.to_thread(httpx.AsyncHTTPTransport, trust_env=False)
            return self._transport

    def _refusal(self, status: int, retry_after: str | None) -> DeliveryError:
        wait_s = retry_after_s(retry_after, self._clock.now()) if retry_after else None
        return DeliveryError(
            CHANNEL,
            f"the callback answered with status {status}",
            retryable=status in _PASSING or status >= 500,
            retry_after_s=None if wait_s is None else min(wait_s, _LONGEST_WAIT_S),
        )
