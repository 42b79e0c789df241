"""Imports LiteLLM, and makes calls with it; no other module knows it.

Importing it takes seconds of CPU and 180 MB. So it is imported at the first use of a model, in a
thread.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from nanobot_core import JsonObject
from nanobot_litellm.exchange import Exchange, open_client
from nanobot_litellm.pieces import payload_of, says_why_it_ends

if TYPE_CHECKING:
    import httpx

_FOR_THE_IMPORT: Final = {
    # The price table of the package serves; without this it is fetched from the network.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Without this it reads an `.env` file from a folder above its own into the environment.
    "LITELLM_MODE": "PRODUCTION",
}
_LOGGERS: Final = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_PER_CALL: Final[JsonObject] = {
    # The core retries.
    "max_retries": 0,
    "num_retries": 0,
    # Without this it imports its server at the first call with tools.
    "_skip_mcp_handler": True,
    # One request goes to models of many services, and must not fail because one of them does not
    # know a parameter such as the temperature.
    "drop_params": True,
}
_END: Final = object()


def load_library() -> Library:
    """Import LiteLLM and return it, ready for use; call it in a thread.

    Raises:
        ImportError: it cannot be imported, or its version sends requests in a way that this plugin
            does not know.
    """
    library = _library()
    # Again for each provider, because the filters belong to the process, and others reset them.
    warnings.filterwarnings("ignore", module="litellm")
    # Pydantic's, of LiteLLM's own classes, when a service's module is imported at its first call.
    warnings.filterwarnings("ignore", message=".*Pydantic will not protect items")
    return library


@cache
def _library() -> Library:
    return Library()


class Library:
    """LiteLLM, which is one for the process."""

    def __init__(self) -> None:
        with _variables(_FOR_THE_IMPORT):
            self._module = importlib.import_module("litellm")
        _make_quiet(self._module)
        _guard(self._module)
        self._internal: ContextVar[bool] | None = None
        with suppress(ImportError, AttributeError):
            context = importlib.import_module("litellm._internal_context")
            self._internal = context.is_internal_call

    async def call(self, arguments: JsonObject, exchange: Exchange) -> dict[str, Any]:
        """Make one call that is answered whole and return the answer, in OpenAI's format."""
        answer = await exchange.run(self._complete(arguments | {"stream": False}))
        return payload_of(answer)

    async def stream(
        self, arguments: JsonObject, exchange: Exchange
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Make one call and yield the pieces of its answer, in OpenAI's format.

        They are taken from below LiteLLM's wrapper of streams, which makes up an end where a stream
        is cut, refuses answers that repeat a piece, and copies each piece several times.
        """
        asked: JsonObject = {"stream": True, "stream_options": {"include_usage": True}}
        wrapper = await exchange.run(self._complete(arguments | asked))
        if not hasattr(wrapper, "fetch_stream"):
            exchange.is_finished = True
            yield payload_of(wrapper)
            return
        try:
            pieces = await exchange.run(wrapper.fetch_stream())
            # Some services have a blocking stream, which the wrapper reads in a thread; of what it
            # returns the end is not to be trusted.
            is_wrapped = not hasattr(pieces, "__aiter__")
            pieces = aiter(wrapper if is_wrapped else pieces)
            while (piece := await exchange.run(anext(pieces, _END))) is not _END:
                if not (piece is None or isinstance(piece, dict) or hasattr(piece, "choices")):
                    # Some services have a format of their own, which only the wrapper reads.
                    piece = wrapper.chunk_creator(piece)
                if piece is not None:
                    exchange.is_finished |= not is_wrapped and says_why_it_ends(piece)
                    yield payload_of(piece)
            exchange.is_finished |= wrapper.received_finish_reason is not None
        finally:
            await wrapper.aclose()

    def price_usd(self, model: str, usage: dict[str, Any]) -> float | None:
        """Return the price of one call in US dollars, or ``None`` if it is not known.

        Args:
            usage: of the answer, in OpenAI's format.
        """
        try:
            costs = self._module.cost_per_token(
                model=model, usage_object=self._module.Usage(**usage)
            )
            cost = math.fsum(costs)
        except Exception:  # noqa: BLE001  # isolation point: it raises a bare Exception for many models
            return None
        return cost if math.isfinite(cost) and cost >= 0 else None

    async def _complete(self, arguments: JsonObject) -> Any:  # noqa: ANN401 - LiteLLM's own objects
        # What LiteLLM calls internal it neither logs nor counts; each log is a task without owner.
        token = self._internal.set(True) if self._internal else None
        try:
            return await self._module.acompletion(**{**arguments, **_PER_CALL})
        finally:
            if self._internal and token:
                self._internal.reset(token)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while, because LiteLLM has no other setting for them."""
    before = {name: os.environ.get(name) for name in values}  # noqa: TID251
    os.environ.update(values)  # noqa: TID251
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)  # noqa: TID251
            else:
                os.environ[name] = value  # noqa: TID251


def _make_quiet(module: Any) -> None:  # noqa: ANN401 - LiteLLM itself
    """Keep LiteLLM from writing to the terminal and from reporting to anyone."""
    module.suppress_debug_info = True
    module.telemetry = False
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL)


def _guard(module: Any) -> None:  # noqa: ANN401 - LiteLLM itself
    """Make all clients that LiteLLM opens use the exchange of their call.

    Raises:
        ImportError: it opens them in another way.
    """
    handlers = importlib.import_module("litellm.llms.custom_httpx.http_handler")

    def open_guarded(_handler: object, *_args: object, **_options: object) -> httpx.AsyncClient:
        return client

    client = open_client()
    handlers.AsyncHTTPHandler.create_client = open_guarded
    module.aclient_session = client
    if getattr(handlers.AsyncHTTPHandler(), "client", None) is not client:
        msg = "its version is not supported"
        raise ImportError(msg)
    open_blocking: Callable[..., httpx.Client] = handlers.HTTPHandler.create_client

    def without_redirects(*args: object, **options: object) -> httpx.Client:
        blocking = open_blocking(*args, **options)
        # The key goes with a redirect, unless it is in the one header that httpx knows.
        blocking.follow_redirects = False
        return blocking

    handlers.HTTPHandler.create_client = without_redirects
