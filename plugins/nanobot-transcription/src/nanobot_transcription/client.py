"""Sends one recording over httpx and turns its errors into ours; only this module knows it."""

from __future__ import annotations

import io
import ssl
from contextlib import aclosing

import httpx

from nanobot_core import PluginContext, ProviderProtocolError
from nanobot_core.net import HTTPX_ERRORS, failure_of, plugin_client, unpacked_body
from nanobot_transcription.endpoint import Endpoint
from nanobot_transcription.failure import failure_of_status, text_of
from nanobot_transcription.recording import Recording

_CONNECT_LIMIT_S = 10.0
_ERROR_BYTES = 65_536
_ANSWER_BYTES = 4_000_000


class Client:
    """Sends recordings to one endpoint. Making it takes tens of milliseconds of CPU.

    Args:
        ctx: the plugin's context.
        proxy: URL of the proxy, or ``None``.
    """

    def __init__(self, endpoint: Endpoint, ctx: PluginContext, proxy: str | None) -> None:
        self._endpoint = endpoint
        self._clock = ctx.clock
        # Loading the certificates takes 20 ms; without TLS any context will do.
        is_tls = endpoint.url.startswith("https:")
        context = httpx.create_ssl_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        headers = {"authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._http = plugin_client(
            ctx,
            ssl_context=context,
            proxy=proxy,
            headers={"accept-encoding": "identity", **headers},
            # The caller bounds the whole; a service may be silent for as long as it listens.
            timeout=httpx.Timeout(None, connect=_CONNECT_LIMIT_S),
        )

    async def send(self, recording: Recording) -> str:
        """Make one attempt and return what is said in `recording`.

        Raises:
            ProviderError: its class says what the caller should do.

        Cancellation:
            The connection is closed at once.
        """
        upload = (recording.name, io.BytesIO(recording.data), recording.media_type)
        try:
            async with self._http.stream(
                "POST", self._endpoint.url, data=dict(self._endpoint.fields), files={"file": upload}
            ) as response:
                if response.status_code == httpx.codes.OK:
                    return text_of(self._endpoint, await self._read_whole(response))
                raise failure_of_status(
                    self._endpoint,
                    response.status_code,
                    response.headers,
                    await _read_beginning(response, _ERROR_BYTES),
                    self._clock.now(),
                )
        except HTTPX_ERRORS as error:
            kind, reason = failure_of(error)
            raise kind(self._endpoint.provider, reason) from error

    async def aclose(self) -> None:
        """Close all connections. May be called again."""
        await self._http.aclose()

    async def _read_whole(self, response: httpx.Response) -> bytes:
        body = await _read_beginning(response, _ANSWER_BYTES + 1)
        if len(body) > _ANSWER_BYTES:
            reason = f"its answer is longer than {_ANSWER_BYTES:,} bytes"
            raise ProviderProtocolError(self._endpoint.provider, reason)
        return body


async def _read_beginning(response: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    async with aclosing(unpacked_body(response, 2 * _ANSWER_BYTES)) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) >= max_bytes:
                break
    return bytes(body[:max_bytes])
