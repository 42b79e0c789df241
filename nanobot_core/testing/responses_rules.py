"""What the Responses API accepts, as rules that are written independently of any client.

Sources: OpenAI's API reference and the parameter types of its Python package (2.54), and for limits
and pairs of items, the errors that the service returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from nanobot_core.messages import JsonObject

_BODY_FIELDS: Final = {
    *("model", "input", "instructions", "store", "include", "stream", "stream_options"),
    *("temperature", "top_p", "max_output_tokens", "tools", "tool_choice", "parallel_tool_calls"),
    *("reasoning", "text", "truncation", "metadata", "prompt_cache_key", "safety_identifier"),
    "service_tier",
}
_ITEM_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "message": ("role content", "type id status phase"),
    "function_call": ("type call_id name arguments", "id status"),
    "function_call_output": ("type call_id output", "id status"),
    "reasoning": ("type summary", "id encrypted_content content status"),
}
"""Type of an item to its required and its optional fields."""
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "detail"}),
    "input_file": frozenset({"type", "filename", "file_data"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_INPUT_PARTS: Final = frozenset({"input_text", "input_image", "input_file"})
_OUTPUT_PARTS: Final = frozenset({"output_text", "refusal"})
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_SUMMARIES: Final = frozenset({"auto", "concise", "detailed"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE: Final = re.compile(r"https?://\S+|data:image/[a-z.+-]+;base64,[A-Za-z0-9+/]+=*")
_NO_REASONING: Final = re.compile(r"gpt-[34]|chatgpt|.*-chat")
"""Models that refuse what concerns reasoning; the others refuse sampling parameters."""


class Refusal(Exception):
    """The service answers with an error.

    Attributes:
        status: HTTP status.
        error: its error object.
    """

    def __init__(
        self, param: str, message: str, *, code: str = "invalid_value", status: int = 400
    ) -> None:
        super().__init__(f"{param}: {message}")
        self.status: int = status
        self.error: JsonObject = {
            "message": f"Invalid '{param}': {message}",
            "type": "invalid_request_error",
            "param": param,
            "code": code,
        }


@dataclass(slots=True)
class ResponsesRules:
    """Checks requests, and remembers the reasoning that was issued.

    Attributes:
        issued: encrypted content to the item in which it was sent.
    """

    issued: dict[str, JsonObject] = field(default_factory=dict)

    def check(self, body: dict[str, Any]) -> None:
        """Check one request.

        Raises:
            Refusal: it breaks a rule.
        """
        _only(body, _BODY_FIELDS, "")
        if not isinstance(body.get("model"), str) or not body["model"]:
            raise Refusal("model", "a model is required", code="missing_required_parameter")
        _check_options(body)
        _check_tools(body)
        _check_format(body.get("text", {}))
        items = body.get("input")
        if isinstance(items, str) and items:
            return
        if not isinstance(items, list) or not items:
            raise Refusal("input", "expected a text or items", code="missing_required_parameter")
        for index, item in enumerate(items):
            self._check_item(item, f"input[{index}]")
            if item.get("type") == "reasoning" and _NO_REASONING.match(body["model"]):
                raise Refusal(f"input[{index}]", "reasoning is only for models that reason")
        _check_ids(items)
        _check_pairs(items)

    def _check_item(self, item: object, where: str) -> None:
        if not isinstance(item, dict):
            raise Refusal(where, "expected an object", code="invalid_type")
        kind = item.get("type", "message")
        if kind not in _ITEM_FIELDS:
            raise Refusal(f"{where}.type", f"unsupported value {kind!r}")
        required, optional = (set(names.split()) for names in _ITEM_FIELDS[kind])
        _only(item, required | optional, f"{where}.")
        if missing := sorted(required - set(item)):
            name = f"{where}.{missing[0]}"
            raise Refusal(name, "it is required", code="missing_required_parameter")
        if kind == "message":
            _check_message(item, where)
        elif kind == "reasoning":
            self._check_reasoning(item, where)
        elif not _matches(_NAME, item["call_id"]):
            raise Refusal(f"{where}.call_id", "expected 1 to 64 letters, digits, '_' or '-'")
        if kind == "function_call":
            _check_call(item, where)
        elif kind == "function_call_output" and not _has_text(item["output"]):
            _check_parts(item["output"], _INPUT_PARTS, f"{where}.output")

    def _check_reasoning(self, item: JsonObject, where: str) -> None:
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str):
            message = "items are not persisted when 'store' is false"
            raise Refusal(where, message, code="not_found", status=404)
        if self.issued.get(sealed) != item:
            code = "invalid_encrypted_content"
            raise Refusal(f"{where}.encrypted_content", "it could not be verified", code=code)


def _check_options(body: dict[str, Any]) -> None:
    reasons = not _NO_REASONING.match(body["model"])
    rules: dict[str, Callable[[Any], bool]] = {
        "instructions": _has_text,
        "store": lambda value: value is False,
        "stream": lambda value: isinstance(value, bool),
        "temperature": lambda value: not reasons and 0 <= value <= 2,
        "top_p": lambda value: not reasons and 0 <= value <= 1,
        "max_output_tokens": lambda value: isinstance(value, int) and value >= 16,
        "include": lambda value: reasons and value == ["reasoning.encrypted_content"],
        "reasoning": lambda value: reasons and _is_reasoning(value),
        "prompt_cache_key": lambda value: _has_text(value) and len(value) <= 64,
    }
    for name, is_valid in rules.items():
        if name in body and not is_valid(body[name]):
            raise Refusal(name, f"not supported here: {body[name]!r}", code="unsupported_value")
    if "store" not in body:
        raise Refusal("store", "this server stores nothing; send false")


def _is_reasoning(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= {"effort", "summary"}
        and value.get("effort", "low") in _EFFORTS
        and value.get("summary", "auto") in _SUMMARIES
    )


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools", [])):
        where = f"tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise Refusal(f"{where}.type", "expected a function")
        fields = {"type", "name", "description", "parameters", "strict"}
        _only(tool, fields, f"{where}.")
        if not _matches(_NAME, tool.get("name")) or tool["name"] in names:
            raise Refusal(f"{where}.name", "expected a unique name of letters and digits")
        names.add(tool["name"])
        schema = tool.get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            code = "invalid_function_parameters"
            raise Refusal(f"{where}.parameters", "expected the schema of an object", code=code)
        _check_schema(schema, f"{where}.parameters")
        if tool.get("strict", True) is not False:
            _check_strict(schema, f"{where}.parameters")
    choice = body.get("tool_choice", "auto")
    if choice not in ("auto", "none", "required") or ("tool_choice" in body and not names):
        raise Refusal("tool_choice", f"not supported here: {choice!r}")


def _check_format(text: dict[str, Any]) -> None:
    _only(text, {"format", "verbosity"}, "text.")
    found = text.get("format", {"type": "text"})
    if found == {"type": "text"}:
        return
    _only(found, {"type", "name", "schema", "strict", "description"}, "text.format.")
    if found.get("type") != "json_schema":
        raise Refusal("text.format.type", "unsupported value")
    if not _matches(_NAME, found.get("name")) or not isinstance(found.get("schema"), dict):
        raise Refusal("text.format", "a name and a schema are required")
    if found.get("strict"):
        _check_strict(found["schema"], "text.format.schema")


def _check_schema(schema: object, where: str) -> None:
    """Check for what the service refuses in the parameters of functions."""
    for part in schema if isinstance(schema, list) else ():
        _check_schema(part, where)
    if not isinstance(schema, dict):
        return
    refused = {"allOf", "prefixItems"} & schema.keys()
    if refused or (schema.get("type") == "array" and "items" not in schema):
        message = f"not permitted: {min(refused, default='an array without items')}"
        raise Refusal(where, message, code="invalid_function_parameters")
    for name, part in schema.items():
        for each in part.values() if name == "properties" else [part]:
            _check_schema(each, where)


def _check_strict(schema: object, where: str) -> None:
    """Check that objects are closed and that all their properties are required."""
    if isinstance(schema, list):
        for part in schema:
            _check_strict(part, where)
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties", {})
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(properties)
    ):
        message = "'additionalProperties' must be false and all properties required"
        raise Refusal(where, message, code="invalid_json_schema")
    for part in schema.values():
        _check_strict(part, where)


def _check_message(item: dict[str, Any], where: str) -> None:
    role, content = item["role"], item["content"]
    if role not in _ROLES:
        raise Refusal(f"{where}.role", f"unsupported value {role!r}")
    if _has_text(content):
        return
    is_answer = role == "assistant"
    _check_parts(content, _OUTPUT_PARTS if is_answer else _INPUT_PARTS, f"{where}.content")
    if is_answer and not (_matches(_NAME, item.get("id")) and item["id"].startswith("msg_")):
        raise Refusal(f"{where}.id", "expected an id that begins with 'msg_'")
    if is_answer and item.get("status") not in ("completed", "incomplete"):
        raise Refusal(f"{where}.status", "it is required", code="missing_required_parameter")


def _check_parts(parts: object, allowed: frozenset[str], where: str) -> None:
    if not isinstance(parts, list) or not parts:
        raise Refusal(where, "expected a text or parts that are not empty")
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            raise Refusal(f"{where}[{index}].type", f"unsupported value {kind!r}")
        _only(part, _PARTS[kind], f"{where}[{index}].")
        if kind == "input_image" and not _matches(_IMAGE, part.get("image_url")):
            raise Refusal(f"{where}[{index}].image_url", "expected a URL or a base64 image")
        if kind in ("input_text", "output_text") and not _has_text(part.get("text")):
            raise Refusal(f"{where}[{index}].text", "it must not be empty")


def _check_call(item: dict[str, Any], where: str) -> None:
    if not _matches(_NAME, item["name"]):
        raise Refusal(f"{where}.name", "expected 1 to 64 letters, digits, '_' or '-'")
    try:
        arguments = json.loads(item["arguments"])
    except (TypeError, ValueError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Refusal(f"{where}.arguments", "expected a JSON object in a text")


def _check_ids(items: list[dict[str, Any]]) -> None:
    ids = [item["id"] for item in items if "id" in item]
    if len(ids) != len(set(ids)):
        raise Refusal("input", "duplicate item ids")


def _check_pairs(items: list[dict[str, Any]]) -> None:
    """Check that each call has one output, and that reasoning is followed by what it led to."""
    waiting: set[str] = set()
    called: set[str] = set()
    for index, item in enumerate(items):
        kind, where = item.get("type", "message"), f"input[{index}]"
        if kind == "function_call":
            if item["call_id"] in called:
                raise Refusal(f"{where}.call_id", "duplicate call id")
            called.add(item["call_id"])
            waiting.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in waiting:
                raise Refusal(where, "no tool call found for function call output")
            waiting.discard(item["call_id"])
        elif kind == "message" and item["role"] == "user" and waiting:
            raise Refusal(where, f"no tool output found for function call {min(waiting)}")
        elif kind == "reasoning" and not _is_output(items[index + 1 : index + 2]):
            raise Refusal(where, "reasoning was provided without its required following item")
    if waiting:
        raise Refusal("input", f"no tool output found for function call {min(waiting)}")


def _is_output(following: list[dict[str, Any]]) -> bool:
    return any(
        item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant"
        for item in following
    )


def _only(found: object, known: Set[str], prefix: str) -> None:
    if not isinstance(found, dict):
        raise Refusal(prefix.rstrip("."), "expected an object", code="invalid_type")
    if unknown := sorted(set(found) - known):
        raise Refusal(f"{prefix}{unknown[0]}", "unknown parameter", code="unknown_parameter")


def _has_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
