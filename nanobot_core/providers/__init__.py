"""What providers share: one HTTP connection pool, event streams, errors, and gathering an answer.

`HTTPProvider` makes the calls of a service; a provider adds the form of its requests and answers.
It needs httpx, h11, anyio and aiohappyeyeballs, which the core does not depend on: a plugin that
uses it requires ``nanobot-core[http]``. Modules are imported on first use (PEP 562).
"""

from __future__ import annotations

from nanobot_core.lazy import lazy_names

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.providers.answer import (
        MAX_ANSWER_BYTES as MAX_ANSWER_BYTES,
        MAX_EVENT_BYTES as MAX_EVENT_BYTES,
        MAX_STREAM_BYTES as MAX_STREAM_BYTES,
        AnswerBuilder as AnswerBuilder,
        AnswerReader as AnswerReader,
        count_of as count_of,
    )
    from nanobot_core.providers.encoding import BodyEncoder as BodyEncoder
    from nanobot_core.providers.endpoint import (
        Endpoint as Endpoint,
        key_hint as key_hint,
        resolve_endpoint as resolve_endpoint,
    )
    from nanobot_core.providers.failure import (
        FailureReader as FailureReader,
        FailureWords as FailureWords,
    )
    from nanobot_core.providers.http import HTTPProvider as HTTPProvider
    from nanobot_core.providers.sse import (
        EventParser as EventParser,
        EventTooLargeError as EventTooLargeError,
        ServerEvent as ServerEvent,
    )

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    _HOMES, __getattr__, __dir__ = lazy_names(
        "nanobot_core.providers",
        {
            "answer": "MAX_ANSWER_BYTES MAX_EVENT_BYTES MAX_STREAM_BYTES "
            "AnswerBuilder AnswerReader count_of",
            "encoding": "BodyEncoder",
            "endpoint": "Endpoint key_hint resolve_endpoint",
            "failure": "FailureReader FailureWords",
            "http": "HTTPProvider",
            "sse": "EventParser EventTooLargeError ServerEvent",
        },
    )
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table
