"""The transcriber: reads a recording, sends it, and tries again where that may help."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import ProviderError, ProviderTimeout, TranscriptionProvider
from nanobot_transcription.endpoint import Endpoint, resolve_endpoint
from nanobot_transcription.recording import load_recording
from nanobot_transcription.settings import TranscriptionSettings

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_transcription.client import Client

_RETRIES = 2
_FIRST_WAIT_S = 1.0
_AT_ONCE = 4
"""Recordings that are held in memory at the same time; more wait."""


class Transcriber(TranscriptionProvider):
    """Speech to text by one OpenAI-compatible service. Made by `build_transcriber`."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._settings = ctx.settings(TranscriptionSettings)
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def transcribe(self, recording: Path) -> str:
        """Return what is said in `recording`; empty where nothing is said.

        Args:
            recording: file in a format that the service knows; the content decides, not the name.

        Raises:
            AuthenticationFailed: the key is missing or refused, or the account has no credit.
            BadRequest: the recording is not a file, empty or too large, or the service refuses it.
            ProviderTimeout: there is no text after `TranscriptionSettings.timeout_s`.
            ProviderError: the service failed, and two more attempts did not help.

        Cancellation:
            The connection is closed at once.
        """
        endpoint = resolve_endpoint(self._ctx, self._settings)
        limit_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s), self._places:
                return await self._transcribe(endpoint, recording)
        except TimeoutError as error:
            reason = f"no text arrived after {limit_s:g} seconds (transcription.timeout_s)"
            raise ProviderTimeout(endpoint.provider, reason) from error

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _transcribe(self, endpoint: Endpoint, path: Path) -> str:
        clock, settings = self._ctx.clock, self._settings
        end_s = clock.monotonic_s() + settings.timeout_s
        recording = await asyncio.to_thread(
            load_recording, path, settings.max_bytes, endpoint.provider
        )
        client = await self._open(endpoint)
        wait_s = _FIRST_WAIT_S
        for _ in range(_RETRIES):
            try:
                return await client.send(recording)
            except ProviderError as error:
                asked_s = max(error.retry_after_s or 0.0, wait_s)
                if not error.retryable or clock.monotonic_s() + asked_s >= end_s:
                    raise
            await clock.sleep(asked_s)
            wait_s *= 2
        return await client.send(recording)

    async def _open(self, endpoint: Endpoint) -> Client:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build_client, endpoint)
            return self._client

    def _build_client(self, endpoint: Endpoint) -> Client:
        from nanobot_transcription.client import Client

        return Client(endpoint, self._ctx, self._settings.proxy)


def build_transcriber(ctx: PluginContext) -> Transcriber:
    """Return the transcriber; its connections are closed with the plugin."""
    transcriber = Transcriber(ctx)
    ctx.on_dispose(transcriber.aclose)
    return transcriber
