"""From the events of the Responses API, or its whole answer, to stream events and a response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from nanobot_core import (
    FinishReason,
    JsonObject,
    JsonValue,
    LLMResponse,
    Overloaded,
    ProviderProtocolError,
    StreamEvent,
    Usage,
)
from nanobot_core.providers import AnswerBuilder, AnswerReader, count_of

if TYPE_CHECKING:
    from nanobot_core.providers import FailureReader

OWNER = "provider"
"""Key of a provider block that names its provider."""
ACCOUNT = "account"
"""Key for the account of an answer."""
OUTPUT = "output"
"""Key for the items of an answer; see `ResponsesReader`."""
TEXT_GAP = "\n\n"
"""Separates the texts of an answer that consists of several messages."""

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""Why an answer is incomplete; an unknown reason counts as `length`, because it is cut."""
_REASONING_FIELDS = ("type", "id", "summary", "encrypted_content")
"""What the service needs back of an item of reasoning."""


@dataclass(slots=True)
class _Item:
    """One item of the output.

    Attributes:
        kept: what the next request needs of it.
        call: position of its tool call.
        chars: length of its content so far.
        parts: number of its summaries so far.
    """

    kept: JsonObject
    call: int = 0
    chars: int = 0
    parts: int = 0


class ResponsesReader(AnswerReader):
    """Reads one answer of the Responses API.

    The response has one provider block, which lists the items of the output in order: reasoning as
    it came, the length and phase of each message, the position of each call. With it
    `ResponsesWire` restores the order of the items. An answer without encrypted reasoning and of
    one message has no block, because its order is the usual one.

    Args:
        provider: name of the provider.
        account: distinguishes its accounts.
        failures: turns the errors in an answer into ours.
    """

    def __init__(self, provider: str, account: str, failures: FailureReader) -> None:
        self._provider = provider
        self._account = account
        self._failures = failures
        self._builder = AnswerBuilder(provider)
        self._items: dict[tuple[int, str], _Item] = {}
        self._end: dict[str, Any] | None = None
        self._has_text = False

    @property
    def is_complete(self) -> bool:
        """Whether the service has reported the end of the answer."""
        return self._end is not None

    @property
    def has_ended(self) -> bool:
        """Whether nothing can follow, which is so after the report of the end."""
        return self._end is not None

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        """Read one event, or the whole answer; see `AnswerReader.feed`."""
        kind = payload.get("type")
        if kind in _ENDS:
            yield from self._finish(payload.get("response"))
        elif payload.get("object") == "response":
            yield from self._finish(payload)
        elif isinstance(index := payload.get("output_index"), int):
            yield from self._take(str(kind).removeprefix("response."), index, payload)

    def response(self) -> LLMResponse:
        """Return the complete answer; see `AnswerReader.response`."""
        if self._end is None:
            raise ProviderProtocolError(self._provider, "its answer is not a response")
        usage = self._end.get("usage")
        return self._builder.response(
            finish_reason=self._finish_reason(self._end),
            usage=Usage(
                prompt_tokens=count_of(usage, "input_tokens"),
                completion_tokens=count_of(usage, "output_tokens"),
                cached_tokens=count_of(usage, "input_tokens_details", "cached_tokens"),
                reasoning_tokens=count_of(usage, "output_tokens_details", "reasoning_tokens"),
            ),
            blocks=self._blocks(),
        )

    def _finish(self, response: object) -> Iterator[StreamEvent]:
        """Take the final report, and its output if no event contained an item.

        Raises:
            ProviderError: the service failed.
        """
        if not isinstance(response, dict):
            raise ProviderProtocolError(self._provider, "its last event contains no response")
        status = response.get("status")
        if response.get("error"):
            raise self._failures.from_error(response)
        if status not in ("completed", "incomplete"):
            found = self._failures.clean(str(status))
            raise Overloaded(self._provider, f"it ended the answer with the status '{found}'")
        output = response.get("output")
        if not self._items and isinstance(output, list):
            for index, item in enumerate(output):
                yield from self._take_item(index, _object(item))
        self._end = response

    def _take(self, kind: str, index: int, event: dict[str, Any]) -> Iterator[StreamEvent]:
        delta = event.get("delta")
        text = delta if isinstance(delta, str) else ""
        match kind:
            case "output_item.added":
                yield from self._open(index, _object(event.get("item")))
            case "output_item.done":
                yield from self._take_item(index, _object(event.get("item")))
            case "output_text.delta" | "refusal.delta":
                yield from self._text(self._item(index, "message"), text)
            case "reasoning_summary_part.added":
                item = self._item(index, "reasoning")
                if item.parts:
                    yield self._builder.reasoning(TEXT_GAP)
                item.parts += 1
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                yield from self._reasoning(self._item(index, "reasoning"), text)
            case "function_call_arguments.delta":
                self._arguments(self._item(index, "function_call"), text)

    def _take_item(self, index: int, item: dict[str, Any]) -> Iterator[StreamEvent]:
        """Take a complete item: what must be kept of it, and its content if no delta came."""
        yield from self._open(index, item)
        kind = item.get("type")
        if kind == "reasoning":
            known = self._item(index, kind)
            known.kept = {name: item[name] for name in _REASONING_FIELDS if name in item}
            if not known.chars:
                texts = _texts(item.get("summary")) or _texts(item.get("content"))
                yield from self._reasoning(known, TEXT_GAP.join(texts))
        elif kind == "message":
            known = self._item(index, kind)
            if isinstance(phase := item.get("phase"), str):
                known.kept["phase"] = phase
            if not known.chars:
                yield from self._text(known, "".join(_texts(item.get("content"))))
        elif kind == "function_call":
            known = self._item(index, kind)
            if not known.chars:
                self._arguments(known, _text(item.get("arguments")))

    def _open(self, index: int, item: dict[str, Any]) -> Iterator[StreamEvent]:
        if item.get("type") != "function_call":
            return
        position = self._item(index, "function_call").call
        delta = self._builder.add_to_call(
            position, call_id=_text(item.get("call_id")), name=_text(item.get("name"))
        )
        if delta is not None:
            yield delta

    def _item(self, index: int, kind: str) -> _Item:
        item = self._items.get((index, kind))
        if item is None:
            item = self._items[index, kind] = _Item({"type": kind})
            if kind == "function_call":
                item.call = item.kept["call"] = self._builder.open_call()
        return item

    def _text(self, item: _Item, text: str) -> Iterator[StreamEvent]:
        if not text:
            return
        if not item.chars and self._has_text:
            yield self._builder.text(TEXT_GAP)
        self._has_text = True
        item.chars += len(text)
        yield self._builder.text(text)

    def _reasoning(self, item: _Item, text: str) -> Iterator[StreamEvent]:
        if text:
            item.chars += len(text)
            yield self._builder.reasoning(text)

    def _arguments(self, item: _Item, text: str) -> None:
        item.chars += len(text)
        self._builder.add_to_call(item.call, arguments=text)

    def _finish_reason(self, response: dict[str, Any]) -> FinishReason:
        if response.get("status") == "completed":
            return "stop"
        reason = _object(response.get("incomplete_details")).get("reason")
        return _FINISH_REASONS.get(str(reason), "length")

    def _blocks(self) -> tuple[JsonObject, ...]:
        kept: list[JsonValue] = []
        kinds: list[str] = []
        is_plain = True
        for (_, kind), item in sorted(self._items.items(), key=itemgetter(0)):
            if kind == "reasoning" and not item.kept.get("encrypted_content"):
                continue  # its id would refer to something that the service did not store
            is_plain = is_plain and kind != "reasoning" and "phase" not in item.kept
            kinds.append(kind)
            kept.append({**item.kept, "chars": item.chars} if kind == "message" else item.kept)
        if is_plain and "message" not in kinds[1:]:
            return ()
        return ({OWNER: self._provider, ACCOUNT: self._account, OUTPUT: kept},)


def _texts(parts: object) -> list[str]:
    """Return the texts of the parts of a message or of reasoning."""
    found = [_object(part) for part in parts] if isinstance(parts, list) else []
    return [_text(part.get("text")) or _text(part.get("refusal")) for part in found]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
