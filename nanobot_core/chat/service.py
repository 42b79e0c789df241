"""PlatformApi: calls to the HTTP API of a chat platform, for platforms without a good SDK.

It needs httpx, which the core does not depend on: a plugin that uses it lists ``httpx``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from nanobot_core.chat.failure import CallFailed, Cause
from nanobot_core.net import (
    HTTPX_ERRORS,
    NetworkPolicy,
    TargetRefused,
    failure_of,
    guarded_client,
    retry_after_s,
    unpacked_body,
)

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.messages import JsonObject

_T = TypeVar("_T")
_CALL_LIMIT_S = 30.0
_STEP_LIMIT_S = 30.0
_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MAX_DOWNLOAD_BYTES = 512 * 1024 * 1024
"""A bound against endless bodies; `MediaStore.save` has the limit for files."""
_REDIRECTS = 3
_MARGIN_S = 60.0
_ACCEPT = {"Accept-Encoding": "gzip, deflate"}

FailureOf = Callable[[int, "JsonObject"], CallFailed | None]


class PlatformApi:
    """Calls to one platform. Each has a time limit, and every failure is a `CallFailed`.

    Proxies of the environment are not used, and redirects of calls are not followed.

    Args:
        base_url: address that the paths of calls are appended to.
        service: name of the platform, for failures.
        failure: returns the failure that an answer reports, given its HTTP status and its JSON
            object (empty if it has none); ``None`` if it reports none. It is also asked for good
            statuses, because many platforms report errors inside them. Statuses of 400 and more
            that it does not know are failures by the usual meaning of the status.
        headers: of each call, such as credentials.
        proxy: proxy for all calls and downloads, or ``None``.
        network: the addresses that downloads from other hosts may reach.
        wait_header: header of an answer with the seconds, or the date, to wait for.
    """

    def __init__(
        self,
        base_url: str,
        *,
        service: str,
        failure: FailureOf,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        network: NetworkPolicy | None = None,
        wait_header: str = "retry-after",
    ) -> None:
        self._base = httpx.URL(base_url.rstrip("/"))
        self._service = service
        self._failure = failure
        self._wait_header = wait_header
        self._headers = dict(headers or {})
        self._own = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            # A call can wait for longer than this for the beginning of an answer; see `call`.
            timeout=httpx.Timeout(_STEP_LIMIT_S, read=None),
            headers=_ACCEPT,
            proxy=proxy,
        )
        self._others = guarded_client(network or NetworkPolicy(), proxy=proxy)

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: JsonObject | None = None,
        params: Mapping[str, str | int] | None = None,
        form: Mapping[str, str | tuple[str, bytes, str]] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limit_s: float = _CALL_LIMIT_S,
    ) -> JsonObject:
        """Call the platform and return the JSON object of its answer; empty if it has no body.

        Args:
            path: begins with a slash.
            json: body of the call; or `form`, or `content`.
            params: query.
            form: fields of a form; a file is its name, content and media type.
            content: bytes as they are.
            headers: besides those of all calls; they win.
            limit_s: seconds from the first connection to the end of the answer.

        Raises:
            CallFailed: there is no valid answer, or it reports a failure.
        """
        fields = form or {}
        request = self._own.build_request(
            method,
            f"{self._base}{path}",
            json=json,
            params=dict(params) if params else None,
            data={name: value for name, value in fields.items() if isinstance(value, str)} or None,
            files={name: value for name, value in fields.items() if not isinstance(value, str)}
            or None,
            content=content,
            headers={**self._headers, **(headers or {})},
        )
        try:
            with self._failures():
                async with asyncio.timeout(limit_s):
                    response = await self._own.send(request, stream=True)
                    try:
                        body = await _read(response)
                    finally:
                        await response.aclose()
        except TimeoutError as error:
            reason = f"{self._service} did not answer within {limit_s:g} seconds"
            raise CallFailed(Cause.UNREACHABLE, reason) from error
        answer = self._object(response, body)
        if failed := self._failure(response.status_code, answer):
            raise _with_wait(failed, response.headers.get(self._wait_header))
        if response.status_code >= 300:
            raise self._usual(response)
        return answer

    async def download(
        self,
        url: str,
        *,
        hosts: Collection[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the content of a file of a message.

        Credentials are sent to the platform and to `hosts`, and to no other host that a redirect
        names. All hosts but the platform's own must have public addresses and https; only a
        platform on the loopback can have another server there. The caller limits the time.

        Args:
            url: an address, or a path of the platform.
            hosts: further hosts that get the headers, as ``host`` or ``host:port``.
            headers: besides those of all calls.

        Raises:
            CallFailed: it cannot be fetched.
        """
        hop = self._base.copy_with(raw_path=url.encode()) if url[:1] == "/" else _parsed(url)
        with self._failures():
            for _ in range(_REDIRECTS + 1):
                is_known = self._is_own(hop) or not {hop.host, _place(hop)}.isdisjoint(hosts)
                is_local = is_known and _is_loopback(self._base.host) and _is_loopback(hop.host)
                client = self._own if self._is_own(hop) or is_local else self._others
                if client is self._others and hop.scheme != "https":
                    reason = f"{self._service} named an address of a file that is not 'https'"
                    raise CallFailed(Cause.REFUSED, reason)
                sent = {**self._headers, **(headers or {})} if is_known else {}
                response = await client.send(
                    client.build_request("GET", hop, headers=sent), stream=True
                )
                try:
                    if response.next_request is None:
                        if response.status_code != 200:
                            raise self._usual(response)
                        async for part in unpacked_body(response, _MAX_DOWNLOAD_BYTES):
                            yield part
                        return
                    hop = response.next_request.url
                finally:
                    await response.aclose()
        raise CallFailed(Cause.REFUSED, f"the file of {self._service} is redirected too often")

    async def aclose(self) -> None:
        """Close all connections. Can be called again."""
        await self._own.aclose()
        await self._others.aclose()

    def _is_own(self, url: httpx.URL) -> bool:
        return (url.scheme, _place(url)) == (self._base.scheme, _place(self._base))

    def _object(self, response: httpx.Response, body: bytes) -> JsonObject:
        """Return the JSON object of an answer; empty if there is no body, or a failed call."""
        try:
            answer: Any = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            return answer
        if response.status_code >= 300:
            return {}
        reason = f"the answer of {self._service} cannot be read (no JSON object)"
        raise CallFailed(Cause.UNREACHABLE, reason)

    def _usual(self, response: httpx.Response) -> CallFailed:
        """Return the failure that a status means by itself (RFC 9110, section 15)."""
        status = response.status_code
        if status == 429:
            busy = CallFailed(Cause.BUSY, f"too many calls to {self._service}")
            return _with_wait(busy, response.headers.get(self._wait_header))
        cause = Cause.REFUSED if 400 <= status < 500 else Cause.UNREACHABLE
        if status == 401:
            cause = Cause.CREDENTIALS
        elif status in {408, 425}:
            cause = Cause.UNREACHABLE
        return CallFailed(cause, f"{self._service} answered with HTTP status {status}")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise failures of the network in the block as `CallFailed`."""
        try:
            yield
        except TargetRefused as error:
            reason = f"{self._service} named an address of a file that is not public"
            raise CallFailed(Cause.REFUSED, reason) from error
        except HTTPX_ERRORS as error:
            # The text of the error may hold the address, whose query may hold a credential.
            _, reason = failure_of(error)
            raise CallFailed(Cause.UNREACHABLE, f"{self._service}: {reason}") from None


class AccessToken:
    """A token that expires: cached, and fetched once for all who need it.

    Args:
        fetch: returns a new token and the seconds that it is valid.
        clock: source of time.
    """

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._token = ""
        self._until_s = 0.0
        self._fetching = asyncio.Lock()

    async def get(self) -> str:
        """Return a token that is valid for a while.

        Raises:
            CallFailed: no token can be fetched.
        """
        async with self._fetching:
            if not self._token or self._clock.monotonic_s() >= self._until_s:
                self._token, valid_s = await self._fetch()
                # Half of a short life, so that a token is used at all.
                margin_s = min(_MARGIN_S, valid_s / 2)
                self._until_s = self._clock.monotonic_s() + valid_s - margin_s
            return self._token

    async def renew(self, refused: str) -> str:
        """Return a token other than `refused`; another task may have fetched it already.

        Raises:
            CallFailed: no token can be fetched.
        """
        async with self._fetching:
            if self._token == refused:
                self._token = ""
        return await self.get()

    async def use(self, call: Callable[[str], Awaitable[_T]]) -> _T:
        """Return the result of a call with a token; if the token is refused, once with a new one.

        Raises:
            CallFailed: the call failed.
        """
        token = await self.get()
        try:
            return await call(token)
        except CallFailed as error:
            if error.cause is not Cause.CREDENTIALS:
                raise
        return await call(await self.renew(token))


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in unpacked_body(response, _MAX_ANSWER_BYTES):
        body += part
        if len(body) > _MAX_ANSWER_BYTES:
            raise httpx.DecodingError("the answer is too long")
    return bytes(body)


def _with_wait(failed: CallFailed, asked: str | None) -> CallFailed:
    """Return a failure with the time to wait that the answer asks for."""
    if failed.cause is not Cause.BUSY or failed.retry_after_s is not None or asked is None:
        return failed
    wait_s = retry_after_s(asked, datetime.now(UTC))
    return CallFailed(failed.cause, failed.reason, retry_after_s=wait_s)


def _parsed(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise CallFailed(Cause.REFUSED, "the address of a file is not valid") from error


def _place(url: httpx.URL) -> str:
    return f"{url.host}:{url.port or {'http': 80, 'https': 443}.get(url.scheme)}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
