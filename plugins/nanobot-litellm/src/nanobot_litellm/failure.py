"""LiteLLM's exceptions → our errors, by the status that they carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nanobot_core import AuthenticationFailed, ContextTooLong, ProviderError, ProviderProtocolError
from nanobot_core.providers import FailureWords

if TYPE_CHECKING:
    from nanobot_core.providers import FailureReader

WORDS = FailureWords(
    too_long=frozenset({"context_length_exceeded"}),
    too_long_sentences=(
        "exceeds the maximum number of tokens",  # Gemini
        "input is too long",  # Bedrock
        "prompt is too long",  # Claude on Bedrock and Vertex
        "maximum context length",  # Azure
        "too many tokens",  # Cohere
    ),
    no_credit=frozenset({"insufficient_quota"}),
)
"""How the services report what their HTTP status does not say."""

_OF_LITELLM = (None, 400, 404, 422, 500)
"""Statuses that LiteLLM gives a request that it has not sent."""
_EXTRAS = {"google": "pip install 'nanobot-litellm[vertex]'"}
"""Top-level module to how it is installed."""


def failure_of(error: Exception, failures: FailureReader, *, is_answered: bool) -> ProviderError:
    """Return our error for one of LiteLLM that no failed request explains.

    Args:
        is_answered: the service had begun to answer, so that the error is about its answer.
    """
    name = type(error).__name__
    # The first line may quote the service; LiteLLM's own traceback may follow.
    said = str(error).partition("\n")[0].removeprefix(f"litellm.{name}: ")
    if name == "ContextWindowExceededError":
        return ContextTooLong(failures.provider, failures.clean(said), status=400)
    status = _status_of(error)
    if is_answered:
        if status in (None, 422):
            reason = f"its answer cannot be read ({name})"
            return ProviderProtocolError(failures.provider, reason)
        return failures.from_error({"error": {"code": status, "message": said}})
    reason = f"LiteLLM cannot make the request: {failures.clean(said)}"
    if said.startswith("LLM Provider NOT provided"):
        reason = "LiteLLM does not know the model; name its service: litellm/<service>/<model>"
    if missing := next((one for one in _causes(error) if isinstance(one, ImportError)), None):
        package = (missing.name or "").partition(".")[0]
        remedy = _EXTRAS.get(package, "install it")
        reason = f"LiteLLM needs the package '{package}' for this model; {remedy}"
    if status in _OF_LITELLM:
        # Not `BadRequest`: what this provider cannot send, another one perhaps can.
        return ProviderError(failures.provider, reason, status=status)
    headers = getattr(error, "litellm_response_headers", None)
    found = failures.from_status(
        status,
        {str(key).lower(): str(value) for key, value in dict(headers or {}).items()},
        json.dumps({"error": {"message": said}}).encode(),
    )
    if isinstance(found, AuthenticationFailed):
        reason += f"; {failures.key_hint}"
    return type(found)(failures.provider, reason, status=status, retry_after_s=found.retry_after_s)


def _status_of(error: Exception) -> int | None:
    """Return the status that a service gave, or LiteLLM itself for want of one."""
    statuses = [getattr(one, "status_code", None) for one in _causes(error)]
    # The innermost is the service's; LiteLLM's classes know only some of them.
    return next((status for status in reversed(statuses) if isinstance(status, int)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
