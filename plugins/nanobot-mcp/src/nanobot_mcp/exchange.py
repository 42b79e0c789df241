"""Sends one request to a server, and maps the SDK's errors to ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from mcp import InputRequiredRoundsExceededError, MCPError, UriTemplate
from mcp.shared.uri_template import InvalidUriTemplate
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, REQUEST_TIMEOUT
from pydantic import ValidationError

from nanobot_core import JsonObject, ToolFailed, ToolInputError
from nanobot_mcp.link import Link
from nanobot_mcp.offers import Offer
from nanobot_mcp.result import Answer

if TYPE_CHECKING:
    from mcp_types import CallToolResult, RequestParamsMeta

Progress = Callable[[str], Awaitable[None]]
T = TypeVar("T")


class CallCut(Exception):
    """The connection ended before the answer arrived.

    Attributes:
        is_refused: the server has certainly not executed the request.
    """

    def __init__(self, reason: str, *, is_refused: bool) -> None:
        self.reason: str = reason
        self.is_refused: bool = is_refused
        super().__init__(reason)


class NoAnswer(Exception):
    """The answer did not arrive in time; the server was asked to cancel the request."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s: float = limit_s
        super().__init__(f"no answer within {limit_s:g} seconds")


async def request(
    link: Link, offer: Offer, arguments: JsonObject, timeout_s: float, report: Progress
) -> Answer:
    """Use `offer` and return the server's answer.

    Raises:
        CallCut: the connection ended during the request, and can no longer be used.
        NoAnswer: the time limit expired; the connection remains usable.
        ToolInputError: the server refused the arguments.
        ToolFailed: the server answered with an error, or with something invalid.

    Cancellation:
        The SDK asks the server to cancel the request. The connection remains usable.
    """
    if offer.kind == "tool":
        return await call_tool(link, offer.name, arguments, timeout_s, report)
    texts = {name: str(value) for name, value in arguments.items() if value is not None}
    if offer.kind == "prompt":
        return await _answered(link, timeout_s, link.client.get_prompt(offer.name, texts))
    address = _address(offer, texts)
    return await _answered(link, timeout_s, link.client.read_resource(address))


async def call_tool(
    link: Link,
    name: str,
    arguments: JsonObject,
    timeout_s: float,
    report: Progress,
    *,
    meta: JsonObject | None = None,
) -> CallToolResult:
    """Call a tool, with `meta` next to the arguments. Raises the same errors as `request`."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        await report(f"{message} ({share})" if message and total else message or share)

    sending = link.client.call_tool(
        name,
        arguments,
        read_timeout_seconds=timeout_s,
        progress_callback=on_progress,
        meta=cast("RequestParamsMeta", meta) if meta else None,
    )
    return await _answered(link, timeout_s, sending)


async def _answered(link: Link, timeout_s: float, sending: Awaitable[T]) -> T:
    try:
        with anyio.fail_after(timeout_s):
            return await sending
    except TimeoutError as error:
        raise NoAnswer(timeout_s) from error
    except MCPError as error:
        raise _translated(link, error, timeout_s) from error
    except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
        link.ended.set()
        raise CallCut(link.trouble.sentence(None), is_refused=False) from error
    except (ValidationError, RuntimeError, InputRequiredRoundsExceededError) as error:
        # The SDK raises these for answers that violate the protocol.
        if link.ended.is_set():
            raise CallCut(link.trouble.sentence(None), is_refused=False) from error
        msg = f"the server's answer violates the protocol ({type(error).__name__})"
        raise ToolFailed(msg) from error


def _address(offer: Offer, texts: dict[str, Any]) -> str:
    if offer.kind == "resource":
        return offer.address
    try:
        return UriTemplate.parse(offer.address).expand(texts)
    except InvalidUriTemplate as error:
        msg = f"the address {offer.address} cannot be filled in"
        raise ToolFailed(msg) from error


def _translated(link: Link, error: MCPError, timeout_s: float) -> Exception:
    trouble = link.trouble
    if error.code == REQUEST_TIMEOUT:
        return NoAnswer(timeout_s)
    # The SDK answers INVALID_REQUEST only to the request that the server refused because of its
    # lost session. The server may have executed other pending requests.
    is_refused = trouble.is_forgotten and error.code == INVALID_REQUEST
    is_cut = link.ended.is_set() or error.code == CONNECTION_CLOSED
    if is_cut or is_refused or trouble.status is not None:
        link.ended.set()
        return CallCut(trouble.sentence(None if is_cut else error), is_refused=is_refused)
    text = f"the server answers with error {error.code}: {error.message[:2_000]}"
    return ToolInputError(text) if error.code == INVALID_PARAMS else ToolFailed(text)
