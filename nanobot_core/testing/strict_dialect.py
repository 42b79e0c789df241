"""A service that refuses what a vendor's form of the OpenAI protocol does not allow.

The rules are data: ``dialects.toml`` beside this file says for each vendor what it refuses, and
where that is documented.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from nanobot_core.messages import JsonObject
from nanobot_core.testing.model_server import RecordedRequest, Reply, Responder
from nanobot_core.testing.openai_server import echo
from nanobot_core.testing.strict_schema import schema_problem

Rules = Mapping[str, Any]
"""One dialect: what it sets itself, and the rest of ``[common]``."""


class _Irregular(Exception):
    """A request has something that the service refuses."""


@cache
def _table() -> Mapping[str, Any]:
    text = files("nanobot_core.testing").joinpath("dialects.toml").read_text("utf-8")
    return tomllib.loads(text)


def strict_dialects() -> Sequence[str]:
    """Return the names of the known dialects."""
    return tuple(_table()["dialect"])


def strict_rules(dialect: str) -> Rules:
    """Return the rules of a dialect, as in ``dialects.toml``.

    Raises:
        KeyError: it is not known.
    """
    table = _table()
    rules = {**table["common"], **table["dialect"][dialect]}
    schema = {**table["schema"]["common"], **table["schema"][rules["schema"]]}
    return {**rules, "schema": schema}


def irregularity(dialect: str, body: Mapping[str, Any]) -> str | None:
    """Return the first thing in the body of a chat request that a vendor refuses, or ``None``."""
    try:
        _Check(strict_rules(dialect), body).run()
    except _Irregular as found:
        return str(found)
    return None


class StrictService:
    """Answers regular requests, and refuses others in the vendor's form; see `OpenAIServer`.

    Use it as the `default` of the server.

    Attributes:
        refusals: why requests were refused, in order.

    Args:
        dialect: name in ``dialects.toml``, such as ``mistral``.
        script: replies to regular requests, in order.
        default: reply, or function of the request, for regular requests after the script.
    """

    def __init__(
        self, dialect: str, script: Iterable[Reply] = (), *, default: Reply | Responder = echo
    ) -> None:
        self.refusals: list[str] = []
        self._dialect, self._rules = dialect, strict_rules(dialect)
        self._script = list(script)
        self._default = default

    def __call__(self, request: RecordedRequest) -> Reply:
        problem = irregularity(self._dialect, request.body)
        if problem is not None:
            self.refusals.append(problem)
            body = _FORMS[self._rules["error"]] % {"message": json.dumps(problem)[1:-1]}
            return Reply(status=self._rules["status"], body=body.encode())
        if self._script:
            return self._script.pop(0)
        return self._default if isinstance(self._default, Reply) else self._default(request)


_FORMS = {
    "openai": '{"error": {"message": "%(message)s", "type": "invalid_request_error",'
    ' "param": null, "code": null}}',
    "mistral": '{"object": "error", "message": "%(message)s", "type": "invalid_request_error",'
    ' "param": null, "code": "3051"}',
    "gemini": '[{"error": {"code": 400, "message": "%(message)s", "status": "INVALID_ARGUMENT"}}]',
    "minimax": '{"type": "error", "error": {"type": "bad_request_error",'
    ' "message": "invalid params, %(message)s (2013)", "http_code": "400"}}',
    "xai": '{"code": "Client specified an invalid argument", "error": "%(message)s"}',
    "zhipu": '{"error": {"code": "1214", "message": "%(message)s"}}',
    "siliconflow": '{"code": 20015, "message": "%(message)s", "data": null}',
    "dashscope": '{"error": {"code": "invalid_parameter_error", "param": null,'
    ' "message": "%(message)s", "type": "invalid_request_error"}}',
    "plain": '{"error": "%(message)s"}',
}
"""How vendors report an invalid request."""


class _Check:
    """Checks one request."""

    def __init__(self, rules: Rules, body: Mapping[str, Any]) -> None:
        self._rules, self._body = rules, body
        self._model = str(body.get("model"))

    def run(self) -> None:
        extra = {"thinking"} if self._matching("thinking")["values"] else set[str]()
        extra |= {"enable_thinking"} if self._is_among("flag") else set()
        self._known("the body", self._body, {*self._rules["body"], *extra})
        self._require(self._body.get("model"), "model is required")
        self._check_messages()
        if "tools" in self._body:
            self._check_tools()
        self._check_choice()
        self._check_numbers()
        self._check_thinking()
        form = self._body.get("response_format")
        if form is not None:
            schema = form.get("json_schema", {}).get("schema")
            self._check_schema("response_format", schema, is_strict=form["json_schema"]["strict"])
        if "stream_options" in self._body:
            self._require(self._body.get("stream"), "stream_options is for streams")

    def _check_messages(self) -> None:
        messages = self._body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise _Irregular("messages is empty")
        before = ""
        pending: list[str] = []
        for place, message in enumerate(messages):
            role, where = message.get("role"), f"messages[{place}]"
            self._require(role in _ROLES, f"{where} has an unknown role")
            self._check_order(where, before, role, is_first=place == 0)
            if role == "tool":
                self._require(
                    message.get("tool_call_id") in pending, f"{where} answers no open call"
                )
                pending.remove(message["tool_call_id"])
            else:
                self._require(not pending, f"{where} comes before the results of {pending}")
            self._check_message(where, role, message)
            pending += [call["id"] for call in message.get("tool_calls", ())]
            before = role
        self._require(not pending, f"the results of {pending} are missing")
        self._require(before in self._rules["last_roles"], f"the last role is {before}")

    def _check_order(self, where: str, before: str, role: str, *, is_first: bool) -> None:
        rules = self._rules
        if role == "system":
            self._require(is_first or rules["late_system"], f"{where} is a late system message")
        elif before == "system" and not rules["late_system"]:
            self._require(role == "user", f"{where} is not the user's")
        if before == "tool" and role == "user":
            self._require(rules["user_may_follow_tool"], f"{where}: role 'user' after role 'tool'")
        if rules["roles_alternate"] and role == before and role != "tool":
            raise _Irregular(f"{where}: role '{role}' after role '{before}'")

    def _check_message(self, where: str, role: str, message: JsonObject) -> None:
        required = self._rules["reasoning_content"]
        calls = message.get("tool_calls")
        known = set(self._rules[role])
        if role == "assistant" and required != "refused":
            known.add("reasoning_content")
            is_required = required == "all" or (required == "calls" and calls)
            if is_required and self._thinks():
                text = message.get("reasoning_content")
                is_given = text is not None if required == "all" else bool(text)
                self._require(is_given, f"{where}: reasoning_content must be passed back")
        self._known(where, message, known)
        content = message.get("content")
        if content is None:
            self._require("content" in message and calls, f"{where} has no content")
        elif isinstance(content, str):
            self._require(content, f"{where} has empty content")
        else:
            self._check_parts(where, role, content)
        if "tool_calls" in message:
            self._check_calls(where, calls)

    def _check_parts(self, where: str, role: str, content: object) -> None:
        if not isinstance(content, list) or not content or role == "assistant":
            raise _Irregular(f"{where} has content of a wrong type")
        for part in content:
            self._require(part["type"] in self._rules["parts"], f"{where}: unknown variant")
            self._require(part["type"] == "text" or role == "user", f"{where} has an image")
            if part["type"] == "text":
                self._require(part["text"], f"{where} has an empty text")
            elif part["type"] == "file":
                self._known(f"{where}.file", part["file"], ["filename", "file_data"])
                data = part["file"]["file_data"]
                self._require(re.match("data:application/pdf;base64,.", data), f"{where}: no PDF")
            else:
                url = part["image_url"]["url"]
                self._require(re.match("data:image/.+;base64,.", url), f"{where}: broken image")

    def _check_calls(self, where: str, calls: object) -> None:
        if not isinstance(calls, list) or not calls:
            raise _Irregular(f"{where}: tool_calls is empty")
        ids = [call.get("id") for call in calls]
        self._require(len(set(ids)) == len(ids), f"{where}: ids of calls repeat")
        for call in calls:
            self._known(f"{where}.tool_calls", call, self._rules["call"])
            self._matches(f"{where}: id of a call", call["id"], "call_id")
            self._require(call.get("type") == "function", f"{where}: type of a call")
            function = call["function"]
            self._known(f"{where}.tool_calls.function", function, ["name", "arguments"])
            self._matches(f"{where}: name of a tool", function["name"], "tool_name")
            try:
                arguments = json.loads(function["arguments"])
            except (TypeError, ValueError):
                arguments = None
            self._require(isinstance(arguments, dict), f"{where}: arguments are not an object")
        if self._is_among("signed_calls"):
            signature = calls[0].get("extra_content", {}).get("google", {}).get("thought_signature")
            self._require(signature, f"{where}: function call is missing a thought_signature")

    def _check_tools(self) -> None:
        tools = self._body["tools"]
        self._require(isinstance(tools, list) and tools, "tools is empty")
        names = [tool["function"]["name"] for tool in tools]
        self._require(len(set(names)) == len(names), "names of tools repeat")
        for tool in tools:
            self._known("tools", tool, ["type", "function"])
            function, where = tool["function"], f"tool {tool['function']['name']}"
            self._known(where, function, ["name", "description", "parameters"])
            self._matches("name of a tool", function["name"], "tool_name")
            self._require(isinstance(function["description"], str), f"{where}: no description")
            self._check_schema(where, function["parameters"])

    def _check_schema(self, where: str, schema: object, *, is_strict: bool = False) -> None:
        problem = schema_problem(schema, self._rules["schema"], is_strict=is_strict)
        if problem is not None:
            raise _Irregular(f"{where}: {problem}")

    def _check_choice(self) -> None:
        choice = self._body.get("tool_choice")
        if choice is None:
            return
        self._require("tools" in self._body, "tool_choice without tools")
        kind = "thinking_tool_choice" if self._thinks() else "tool_choice"
        self._require(choice in self._rules[kind], f"tool_choice '{choice}' is not supported")

    def _check_numbers(self) -> None:
        limits = [self._body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        for limit in limits:
            self._require(limit is None or limit > 0, "a limit on tokens must be positive")
        if self._is_among("max_completion_tokens"):
            self._require(limits[0] is None, "max_tokens is not supported with this model")
        temperature = self._body.get("temperature")
        if temperature is not None:
            lowest, highest = self._rules["temperature"]
            self._require(lowest <= temperature <= highest, "temperature is out of range")
            self._require(not self._is_among("no_temperature"), "temperature is not supported")

    def _check_thinking(self) -> None:
        effort, allowed = self._body.get("reasoning_effort"), self._matching("effort")
        values = allowed["values"]
        if "tools" in self._body and "with_tools" in allowed:
            values = allowed["with_tools"]
            self._require(effort is not None, "function tools with reasoning_effort")
        self._require(effort in (None, *values), f"reasoning_effort '{effort}' is not supported")
        kind = self._body.get("thinking", {}).get("type")
        kinds = self._matching("thinking")["values"]
        self._require(kind in (None, *kinds), f"thinking '{kind}' is not supported")
        self._require(effort is None or kind is None, "thinking and reasoning_effort")
        if self._is_among("only_streamed") and not self._body.get("stream"):
            flag = self._body.get("enable_thinking")
            self._require(flag is False, "enable_thinking must be false without a stream")

    def _thinks(self) -> bool:
        body = self._body
        is_off = body.get("thinking", {}).get("type") == "disabled"
        is_on = body.get("thinking", {}).get("type") == "enabled"
        flag = body.get("enable_thinking")
        return (
            (self._is_among("thinks") and not is_off and flag is not False) or is_on or bool(flag)
        )

    def _matching(self, name: str) -> Mapping[str, Any]:
        rows: list[Mapping[str, Any]] = self._rules[name]
        found = (row for row in rows if re.search(row["models"], self._model))
        return next(found, {"values": []})

    def _is_among(self, name: str) -> bool:
        return re.search(self._rules[name], self._model) is not None

    def _matches(self, what: str, text: object, rule: str) -> None:
        is_match = isinstance(text, str) and re.fullmatch(self._rules[rule], text)
        self._require(is_match, f"{what} '{text}' does not match {self._rules[rule]}")

    def _known(self, where: str, fields: Mapping[str, Any], known: Iterable[str]) -> None:
        unknown = sorted(set(fields) - set(known))
        self._require(not unknown, f"{where} has extra inputs: {', '.join(unknown)}")

    def _require(self, condition: object, problem: str) -> None:
        if not condition:
            raise _Irregular(problem)


_ROLES = ("system", "user", "assistant", "tool")
