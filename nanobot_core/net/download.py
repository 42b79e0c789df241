"""fetch: one bounded response to one request, over redirects."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing

import httpx

from nanobot_core.errors import ToolFailed, ToolInputError
from nanobot_core.record import dataclass

_STEP = 64 * 1024
_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32
_RAW_DEFLATE = -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_SHOWN_URL_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of one fetch.

    Attributes:
        max_bytes: size of the body after decompression; the rest is cut off.
        max_redirects: redirects that are followed.
        total_s: seconds from the first connection to the last byte.
    """

    max_bytes: int = 10_000_000
    max_redirects: int = 5
    total_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedResponse:
    """The response to a fetch.

    Attributes:
        status: HTTP status of the last hop.
        final_url: URL of the last hop.
        headers: of the last hop, names in lower case, repeated ones joined by commas.
        content: the body, unpacked, at most as long as allowed.
        truncated: `content` is only a part of the body: it was too long, or the connection ended
            before the announced length.
    """

    status: int
    final_url: str
    headers: Mapping[str, str]
    content: bytes
    truncated: bool


class FetchFailed(ToolFailed):
    """A fetch got no response.

    Attributes:
        url: the requested URL without its query.
        reason: why.
    """

    def __init__(self, url: httpx.URL, reason: str) -> None:
        self.url: str = str(url.copy_with(query=None, fragment=None))[:_SHOWN_URL_CHARS]
        self.reason: str = reason
        super().__init__(f"{self.url} could not be fetched: {reason}")


async def fetch(
    client: httpx.AsyncClient, request: httpx.Request | str, limits: FetchLimits | None = None
) -> BoundedResponse:
    """Send a request and read the response within limits, whatever its HTTP status.

    httpx limits the headers of each hop to 100 kB. Bodies of redirects are not read.

    Args:
        client: a client of `guarded_client`, so that each hop is checked.
        request: a URL to get, or a request that `client` built.
        limits: ``None`` for the defaults.

    Raises:
        TargetRefused: the client's policy does not allow the target of a hop.
        ToolInputError: the text is not a URL.
        FetchFailed: no connection, no response in time, a broken response, too many redirects.

    Cancellation:
        The connection is closed before the cancellation is passed on.
    """
    bounds = limits or FetchLimits()
    hop = _build_get(client, request) if isinstance(request, str) else request
    try:
        async with asyncio.timeout(bounds.total_s):
            return await _follow(client, hop, bounds)
    except TimeoutError as error:
        raise FetchFailed(hop.url, f"not complete within {bounds.total_s:g} seconds") from error


def _build_get(client: httpx.AsyncClient, url: str) -> httpx.Request:
    try:
        return client.build_request("GET", url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ToolInputError(f"'{url[:_SHOWN_URL_CHARS]}' is not a URL: {error}") from error


async def _follow(
    client: httpx.AsyncClient, first: httpx.Request, bounds: FetchLimits
) -> BoundedResponse:
    hop = first
    for _ in range(bounds.max_redirects + 1):
        try:
            response = await client.send(hop, stream=True, follow_redirects=False)
        except httpx.HTTPError as error:
            raise FetchFailed(hop.url, _describe(error)) from error
        try:
            if response.next_request is None:
                return await _read(response, bounds)
            hop = response.next_request
        finally:
            await response.aclose()
    raise FetchFailed(first.url, f"it redirects more than {bounds.max_redirects} times")


async def _read(response: httpx.Response, bounds: FetchLimits) -> BoundedResponse:
    content = bytearray()
    truncated = False
    try:
        async with aclosing(unpacked_body(response, bounds.max_bytes)) as parts:
            async for part in parts:
                content += part
                if len(content) > bounds.max_bytes:
                    truncated = True
                    break
    except httpx.HTTPError as error:
        if not content:
            raise FetchFailed(response.url, _describe(error)) from error
        truncated = True
    return BoundedResponse(
        status=response.status_code,
        final_url=str(response.url),
        headers=dict(response.headers),
        content=bytes(content[: bounds.max_bytes]),
        truncated=truncated,
    )


async def unpacked_body(response: httpx.Response, max_packed: int) -> AsyncGenerator[bytes, None]:
    """Yield the body of a streamed response in pieces of bounded size, however far it unpacks.

    httpx would unpack each received piece at once: 64 kB of gzip can hold 64 MB, and the same of
    Brotli or Zstandard gigabytes. Here only gzip and deflate are unpacked. The caller bounds the
    total.

    Args:
        response: of a request with ``stream=True``; its body has not been read.
        max_packed: bytes to receive at most, before they are unpacked.

    Yields:
        The next bytes, at least one.

    Raises:
        httpx.DecodingError: it is packed in another way, damaged, or longer than `max_packed`.
        httpx.HTTPError: the connection failed.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise httpx.DecodingError(f"it is packed as '{encoding[:40]}', which was not asked for")
    unpacker = None if encoding in ("", "identity") else _Deflate()
    packed = 0
    try:
        async for part in response.aiter_raw():
            packed += len(part)
            for piece in filter(None, unpacker.feed(part) if unpacker else (part,)):
                yield piece
            if packed > max_packed:  # many bytes that unpack to few
                raise httpx.DecodingError(f"its packed body is longer than {max_packed:,} bytes")
        if unpacker:
            unpacker.finish()
    except zlib.error as error:
        raise httpx.DecodingError("its packed body is damaged or cut off") from error


class _Deflate:
    """Unpacks gzip of one or more members, zlib, or bare deflate, a bounded piece at a time."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the unpacked `data`."""
        while data or not self._inner.eof:
            if self._inner.eof:
                if not data.startswith(_GZIP_MAGIC):
                    return  # data behind the packed body is ignored, as browsers do
                self._inner = zlib.decompressobj(_ZLIB_OR_GZIP)
            piece = self._unpack(data)
            yield piece
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if not data and len(piece) < _STEP:
                return

    def finish(self) -> None:
        """Raise `zlib.error` if the end is missing."""
        if self._begun and not self._inner.eof:
            raise zlib.error

    def _unpack(self, data: bytes) -> bytes:
        try:
            piece = self._inner.decompress(data, _STEP)
        except zlib.error:
            if self._begun:
                raise
            # "deflate" means zlib's format, and some servers send it bare (RFC 9110, 8.4.1.2).
            self._inner = zlib.decompressobj(_RAW_DEFLATE)
            piece = self._inner.decompress(data, _STEP)
        self._begun = True
        return piece


def _describe(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "the server did not answer in time"
    return str(error) or type(error).__name__
