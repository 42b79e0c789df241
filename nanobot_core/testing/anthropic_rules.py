"""What Anthropic's Messages API refuses: the rules by which `AnthropicServer` judges a request.

They follow the documentation of November 2026, with the check that thinking is handed back in the
conversation that it belongs to.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject
    from nanobot_core.testing.model_server import RecordedRequest

_FIELDS = frozenset(
    "model max_tokens messages system tools tool_choice stream temperature thinking output_config "  # noqa: SIM905
    "metadata stop_sequences top_k top_p service_tier cache_control".split()
)
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MAX_MARKS = 4
_SMALLEST_BUDGET = 1_024

_BUDGET_MODELS = re.compile(r"claude-(\w+-4-[015](?!\d)|haiku-4|\w+-4(?=$|-20)|3)")
_FREE_MODELS = re.compile(r"claude-(opus|sonnet)-4-6")
"""They accept thinking with a budget and without."""
_ALWAYS_THINKING = re.compile(r"claude-(fable|mythos|opus-5-5)")
_BETWEEN_TOOLS = re.compile(r"claude-sonnet-5-5")
_BOUND_MODELS = re.compile(r"claude-(\w+-5-5|(fable|mythos)-5-[12])")


class RefusedRequest(Exception):
    """A request that the service refuses."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "invalid_request_error"
    ) -> None:
        self.status = status
        self.kind = kind
        super().__init__(message)


def check_request(request: RecordedRequest) -> None:
    """Check a request for a message.

    Raises:
        RefusedRequest: the service would not answer it.
    """
    if not request.headers.get("x-api-key"):
        _refuse("x-api-key header is required", status=401, kind="authentication_error")
    if not request.headers.get("anthropic-version"):
        _refuse("anthropic-version: header is required")
    body = request.body
    for name in sorted(body.keys() - _FIELDS):
        _refuse(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("model"), str) or not body["model"]:
        _refuse("model: Field required")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        _refuse("max_tokens: Field required")
    _check_marks(body)
    _check_tools(body)
    _check_thinking(body)
    _check_answer_format(body)
    _Conversation(body).check()


def conversation_before(body: dict[str, Any], index: int | None = None) -> str:
    """Return a fingerprint of all that precedes a message, or the answer to the request."""
    messages = body["messages"] if index is None else body["messages"][:index]
    seen = _without_marks([body.get("tools"), body.get("system"), messages])
    return sha256(json.dumps(seen).encode()).hexdigest()[:12]


def signature_of(thinking: str, conversation: str) -> str:
    """Return the signature of a thinking block."""
    return f"{sha256(thinking.encode()).hexdigest()[:12]}.{conversation}"


def _refuse(message: str, *, status: int = 400, kind: str = "invalid_request_error") -> NoReturn:
    raise RefusedRequest(message, status=status, kind=kind)


def _check_marks(body: dict[str, Any]) -> None:
    marked = [block for block in _blocks_of(body) if "cache_control" in block]
    if len(marked) > _MAX_MARKS:
        _refuse(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}.")
    if any(block.get("type") in ("thinking", "redacted_thinking") for block in marked):
        _refuse("cache_control cannot be set for thinking blocks")


def _blocks_of(body: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for field in ("tools", "system"):
        value = body.get(field)
        yield from value if isinstance(value, list) else ()
    for message in body.get("messages") or ():
        content = message.get("content")
        yield from content if isinstance(content, list) else ()


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools") or []
    names = [tool.get("name") for tool in tools]
    if len(set(names)) < len(names):
        _refuse("tools: Tool names must be unique.")
    for name, tool in zip(names, tools, strict=True):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _refuse(f"tools.name: String should match pattern '{_NAME.pattern}'")
        if tool.get("input_schema", {}).get("type") != "object":
            _refuse("tools.input_schema.type: Field required")
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not tools:
        _refuse("tool_choice: may only be specified while providing tools.")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        _refuse("tool_choice: Input tag is not one of 'auto', 'any', 'tool', 'none'")
    if choice["type"] in ("any", "tool"):
        model = body["model"]
        if _ALWAYS_THINKING.search(model) or _BETWEEN_TOOLS.search(model):
            _refuse('tool_choice: type "tool" and "any" are not supported for this model.')
        if _is_thinking(body):
            _refuse("Thinking may not be enabled when tool_choice forces tool use.")


def _is_thinking(body: dict[str, Any]) -> bool:
    kind = (body.get("thinking") or {}).get("type")
    if kind is not None:
        return bool(kind != "disabled")
    return re.search(r"claude-\w+-5", body["model"]) is not None


def _check_thinking(body: dict[str, Any]) -> None:
    model, thinking = body["model"], body.get("thinking") or {}
    kind = thinking.get("type")
    is_budget_model = _BUDGET_MODELS.search(model) is not None
    if kind == "enabled":
        if "claude" in model and not is_budget_model and not _FREE_MODELS.search(model):
            _refuse('"thinking.type.enabled" is not supported for this model.')
        budget = thinking.get("budget_tokens", 0)
        if budget < _SMALLEST_BUDGET:
            _refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            _refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    elif kind == "adaptive" and is_budget_model:
        _refuse("adaptive thinking is not supported on this model")
    elif kind == "disabled" and (_ALWAYS_THINKING.search(model) or _BETWEEN_TOOLS.search(model)):
        _refuse('"thinking.type.disabled" is not supported for this model.')
    elif kind == "between_tools" and not _BETWEEN_TOOLS.search(model):
        _refuse('"thinking.type.between_tools" is not supported for this model.')
    if (temperature := body.get("temperature")) is not None:
        if "claude" in model and not is_budget_model and not _FREE_MODELS.search(model):
            _refuse("temperature: not supported for this model.")
        if not 0 <= temperature <= 1 or (_is_thinking(body) and temperature != 1):
            _refuse("temperature: range: 0..1, and only 1 when thinking is enabled")
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and is_budget_model and "opus-4-5" not in model:
        _refuse("This model does not support the effort parameter.")


def _check_answer_format(body: dict[str, Any]) -> None:
    answer = (body.get("output_config") or {}).get("format")
    if answer is not None:
        if answer.get("type") != "json_schema":
            _refuse("output_config.format.type: Input should be 'json_schema'")
        _check_closed(answer.get("schema"))


def _check_closed(schema: object) -> None:
    if isinstance(schema, list):
        for item in schema:
            _check_closed(item)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            _refuse("For 'object' type, 'additionalProperties' must be explicitly set to false")
        for item in schema.values():
            _check_closed(item)


def _without_marks(value: object) -> object:
    if isinstance(value, list):
        return [_without_marks(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_marks(item) for key, item in value.items() if key != "cache_control"}
    return value


class _Conversation:
    """The messages of one request, checked in order."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self._model: str = body["model"]
        self._ids: set[str] = set()
        self._open: list[str] = []

    def check(self) -> None:
        """Check system prompt and messages."""
        system = self._body.get("system")
        for block in system if isinstance(system, list) else ():
            _check_text(block, "system")
        messages = self._body.get("messages")
        if not isinstance(messages, list) or not messages:
            _refuse("messages: at least one message is required")
        if messages[0].get("role") == "assistant":
            _refuse('messages: first message must use the "user" role')
        previous = ""
        for index, message in enumerate(messages):
            role = message.get("role")
            if role not in ("user", "assistant"):
                _refuse(f"messages.{index}.role: Input should be 'user' or 'assistant'")
            if role == previous and self._open:
                _refuse(f"messages.{index}: `tool_use` ids were found without `tool_result` blocks")
            blocks = self._blocks(message, index)
            if role == "user":
                self._check_user(blocks, index)
            else:
                self._check_assistant(blocks, index)
            previous = role
        if previous == "assistant":
            _refuse("This model does not support assistant message prefill.")
        self._check_start_of_turn(messages)

    def _blocks(self, message: dict[str, Any], index: int) -> list[dict[str, Any]]:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not blocks:
            _refuse(f"messages.{index}: all messages must have non-empty content")
        return blocks

    def _check_user(self, blocks: Sequence[dict[str, Any]], index: int) -> None:
        is_after_results = False
        for block in blocks:
            if block.get("type") == "tool_result":
                if is_after_results:
                    _refuse(f"messages.{index}: `tool_result` blocks must come first")
                self._check_result(block, index)
                continue
            is_after_results = True
            _check_content(block, f"messages.{index}")
        if self._open:
            missing = ", ".join(self._open)
            _refuse(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {missing}"
            )

    def _check_result(self, block: dict[str, Any], index: int) -> None:
        call = block.get("tool_use_id")
        if call not in self._open:
            _refuse(f"messages.{index}: unexpected `tool_use_id` found in `tool_result`: {call}")
        self._open.remove(call)
        content = block.get("content", [])
        for part in content if isinstance(content, list) else ():
            _check_content(part, f"messages.{index}.tool_result")
            if block.get("is_error") and part.get("type") != "text":
                _refuse('all content must be type "text" if `is_error` is true')

    def _check_assistant(self, blocks: Sequence[dict[str, Any]], index: int) -> None:
        for block in blocks:
            kind = block.get("type")
            if kind == "tool_use":
                self._check_call(block, index)
            elif kind == "thinking":
                self._check_thought(block, index)
            elif kind == "text":
                _check_text(block, f"messages.{index}")
            elif kind != "redacted_thinking":
                _refuse(f"messages.{index}: a block of type {kind} is not allowed here")

    def _check_call(self, block: dict[str, Any], index: int) -> None:
        call = block.get("id")
        if not isinstance(call, str) or not _ID.fullmatch(call):
            _refuse(f"messages.{index}.tool_use.id: String should match pattern '{_ID.pattern}'")
        if call in self._ids:
            _refuse(f"messages.{index}: `tool_use` ids must be unique")
        if not _NAME.fullmatch(str(block.get("name"))):
            _refuse(f"messages.{index}.tool_use.name: String should match '{_NAME.pattern}'")
        if not isinstance(block.get("input"), dict):
            _refuse(f"messages.{index}.tool_use.input: Input should be a valid dictionary")
        if not self._body.get("tools"):
            _refuse("Requests which include `tool_use` blocks must define tools")
        self._ids.add(call)
        self._open.append(call)

    def _check_thought(self, block: dict[str, Any], index: int) -> None:
        signed, _, conversation = str(block.get("signature")).partition(".")
        expected, _, _ = signature_of(str(block.get("thinking")), "").partition(".")
        if signed != expected:
            _refuse(f"messages.{index}: Invalid `signature` in `thinking` block")
        is_bound = _BOUND_MODELS.search(self._model) is not None
        if is_bound and conversation != conversation_before(self._body, index):
            _refuse(f"messages.{index}: The block is bound to a different conversation")

    def _check_start_of_turn(self, messages: Sequence[dict[str, Any]]) -> None:
        """With a budget, the answer that the model continues must begin with thinking."""
        if (self._body.get("thinking") or {}).get("type") != "enabled" or len(messages) < 2:
            return
        newest, answer = messages[-1]["content"], messages[-2]["content"]
        continues = isinstance(newest, list) and {"tool_result"} == {b["type"] for b in newest}
        if continues and answer[0]["type"] not in ("thinking", "redacted_thinking"):
            _refuse("Expected `thinking` or `redacted_thinking`, but found another block")


def _check_content(block: dict[str, Any], where: str) -> None:
    kind = block.get("type")
    if kind == "text":
        _check_text(block, where)
        return
    if kind not in ("image", "document"):
        _refuse(f"{where}: a block of type {kind} is not allowed here")
    source: JsonObject = block.get("source") or {}
    allowed = _IMAGES if kind == "image" else ("application/pdf",)
    if source.get("media_type") not in allowed:
        _refuse(f"{where}.{kind}.source.base64.media_type: Input should be one of {allowed}")
    try:
        base64.b64decode(str(source.get("data") or "?"), validate=True)
    except (ValueError, binascii.Error):
        _refuse(f"{where}.{kind}.source.base64: invalid base64 data")


def _check_text(block: dict[str, Any], where: str) -> None:
    text = block.get("text")
    if not isinstance(text, str) or not text:
        _refuse(f"{where}: text content blocks must be non-empty")
    elif not text.strip():
        _refuse(f"{where}: text content blocks must contain non-whitespace text")
