"""A model service on the loopback that speaks the Gemini API, with scripted answers.

It is as strict as the real one about what it is sent: the order of contents, the results of
function calls, the signatures of thoughts and the keywords of schemas.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.testing.model_server import (
    ModelServer,
    RecordedRequest,
    Reply,
    Responder,
    pieces,
)

_METHOD = re.compile(r"/models/[^/:]+:(generateContent|streamGenerateContent)(\?.*)?")
_FINISH_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
_DATA = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse"})
_SCHEMA_KEYWORDS = frozenset(
    {
        "anyOf", "default", "description", "enum", "example", "format", "items", "maxItems",
        "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties",
        "minimum", "nullable", "pattern", "properties", "propertyOrdering", "required",
        "title", "type",
    }
)  # fmt: skip


class _Refused(ValueError):
    """The request breaks a rule of the API."""


class GeminiServer(ModelServer):
    """Serves ``POST …/models/<model>:generateContent`` and its streamed form; see `ModelServer`.

    The first function call of an answer has a signature, which the client must return. `usage` of
    a reply is in OpenAI's terms. The arguments of a call must be a JSON object, because the
    protocol sends them as one.

    Args:
        script: replies in the order of requests.
        default: reply, or function of the request, for requests after the script.
        port: port on 127.0.0.1; 0 takes a free one.
        models: names that the service lists.
        api_key: the only accepted key; ``None`` accepts any.
    """

    base_path: ClassVar[str] = "/v1beta"

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        default: Reply | Responder | None = None,
        port: int = 0,
        models: Iterable[str] = ("scripted",),
        api_key: str | None = None,
    ) -> None:
        super().__init__(script, default=default, port=port, models=models)
        self._api_key = api_key
        self._signatures: dict[str, str] = {}

    def is_request(self, request: RecordedRequest) -> bool:
        """Whether `request` asks for an answer."""
        return _METHOD.search(request.path) is not None

    def is_streamed(self, request: RecordedRequest) -> bool:
        """Whether `request` asks for a stream."""
        return ":streamGenerateContent" in request.path

    def echo(self, request: RecordedRequest) -> Reply:
        """Answer with the text of the request's last content."""
        parts = request.body["contents"][-1]["parts"]
        return Reply(text="\n".join(part["text"] for part in parts if "text" in part))

    def refusal(self, request: RecordedRequest) -> Reply | None:
        """Return the error for a request that breaks a rule of the API, or has another key."""
        if self._api_key not in (None, request.headers.get("x-goog-api-key")):
            return _error(HTTPStatus.BAD_REQUEST, "API key not valid. Please pass a valid API key.")
        try:
            if self.is_streamed(request) and "alt=sse" not in request.path:
                raise _Refused("this stand-in streams server-sent events only; add alt=sse")
            self._check_contents(request.body.get("contents"))
            for tool in request.body.get("tools") or ():
                for declaration in _field(tool, "functionDeclarations") or ():
                    _check_schema(_field(declaration, "parameters") or {}, declaration["name"])
        except _Refused as refused:
            return _error(HTTPStatus.BAD_REQUEST, str(refused))
        return None

    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        """Return a whole answer."""
        parts = list(self._parts(reply, whole=True))
        return _response(reply, parts, is_last=True)

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        """Yield one event for each part; the last says why the answer ends."""
        for part in self._parts(reply, whole=False):
            yield f"data: {json.dumps(_response(reply, [part], is_last=False))}"
        yield f"data: {json.dumps(_response(reply, [{'text': ''}], is_last=True))}"

    def _parts(self, reply: Reply, *, whole: bool) -> Iterator[JsonObject]:
        thoughts = [reply.reasoning] if whole else pieces(reply.reasoning, reply)
        texts = [reply.text] if whole else pieces(reply.text, reply)
        for thought in filter(None, thoughts):
            yield {"text": thought, "thought": True}
        for text in filter(None, texts):
            yield {"text": text}
        for position, call in enumerate(reply.calls):
            arguments = json.loads(call.arguments)
            part: JsonObject = {"functionCall": {"name": call.name, "args": arguments}}
            if position == 0:
                part["thoughtSignature"] = self._sign(_identity(call.name, arguments))
            yield part

    def _sign(self, call: str) -> str:
        number = len(self._signatures) + 1
        signature = b64encode(f"signature {number}".encode()).decode()
        return self._signatures.setdefault(call, signature)

    def _check_contents(self, contents: object) -> None:
        if not isinstance(contents, list) or not contents:
            raise _Refused("contents is not specified")
        allowed, calls = {"user"}, 0
        for content in contents:
            role, parts = content.get("role"), content.get("parts")
            if role not in allowed:
                raise _Refused(f"the roles user and model must alternate; found {role!r}")
            if not parts:
                raise _Refused("contents.parts must not be empty")
            for part in parts:
                self._check_part(part)
            results = sum("functionResponse" in _names(part) for part in parts)
            if results != calls:
                raise _Refused(
                    "the number of function response parts must equal the number of function call "
                    "parts of the function call turn"
                )
            calls = sum("functionCall" in _names(part) for part in parts)
            # Results are a turn of their own, which the user's may follow.
            allowed = {"user"} if role == "model" else {"model", *(("user",) if results else ())}
        if calls:
            raise _Refused("a function call must be followed by its response")

    def _check_part(self, part: Mapping[str, Any]) -> None:
        if len(_names(part) & _DATA) != 1:
            raise _Refused("a part must have exactly one field of data")
        call = _field(part, "functionCall")
        if call is None:
            return
        known = self._signatures.get(_identity(call["name"], call.get("args") or {}))
        if known is not None and _field(part, "thoughtSignature") != known:
            raise _Refused("function call is missing a thought_signature")


def _response(reply: Reply, parts: list[JsonObject], *, is_last: bool) -> JsonObject:
    content: JsonObject = {"role": "model", "parts": list[JsonValue](parts)}
    candidate: JsonObject = {"content": content, "index": 0}
    response: JsonObject = {"modelVersion": "scripted", "responseId": "scripted"}
    if is_last:
        reason = reply.finish_reason or "stop"
        candidate["finishReason"] = _FINISH_REASONS.get(reason, reason)
        if reply.usage is not None:
            response["usageMetadata"] = _usage(reply.usage)
    return {"candidates": [candidate], **response}


def _usage(usage: JsonObject) -> JsonObject:
    """Return `usage` in Gemini's terms, where thinking is counted apart from the answer."""
    details = [usage.get(f"{kind}_tokens_details") or {} for kind in ("prompt", "completion")]
    cached, thoughts = (
        detail.get(name) if isinstance(detail, dict) else None
        for detail, name in zip(details, ("cached_tokens", "reasoning_tokens"), strict=True)
    )
    answer = usage.get("completion_tokens")
    if isinstance(answer, int) and isinstance(thoughts, int):
        answer -= thoughts
    counts: JsonObject = {
        "promptTokenCount": usage.get("prompt_tokens"),
        "candidatesTokenCount": answer,
        "totalTokenCount": usage.get("total_tokens"),
        "cachedContentTokenCount": cached,
        "thoughtsTokenCount": thoughts,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _check_schema(schema: Mapping[str, Any], name: str) -> None:
    for keyword in schema:
        if _camel(keyword) not in _SCHEMA_KEYWORDS:
            raise _Refused(f'Unknown name "{keyword}" in the parameters of function {name!r}')
    for inner in (_field(schema, "properties") or {}).values():
        _check_schema(inner, name)
    for inner in [_field(schema, "items"), *(_field(schema, "anyOf") or ())]:
        if inner is not None:
            _check_schema(inner, name)


def _names(fields: Mapping[str, Any]) -> set[str]:
    return {_camel(name) for name in fields}


def _field(fields: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - what JSON holds
    """Return the field `name`; the API takes both ``camelCase`` and ``snake_case``."""
    return next((value for key, value in fields.items() if _camel(key) == name), None)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _identity(name: str, arguments: JsonObject) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def _error(status: HTTPStatus, message: str) -> Reply:
    error = {"code": status.value, "message": message, "status": "INVALID_ARGUMENT"}
    return Reply(status=status.value, body=json.dumps({"error": error}).encode())
