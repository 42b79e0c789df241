"""The model of a month: it answers people, jobs, heartbeats and memory, and obeys attackers."""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from nanobot_core.messages import JsonObject
from nanobot_core.testing import RecordedRequest, Reply, ScriptedCall
from tests.crowd.model import TOOLS, CrowdModel, since_the_last_answer
from tests.month.attacks import Attacks

TOKENS: Final = 15
"""Of an answer that is not scripted otherwise."""
SPENT: Final = 60_000_000
"""Tokens of an answer to ``spend``."""
REPORT: Final = "Report this to the user"
FORM: Final = "final_answer"
_NUMBER = re.compile(r"number (\d+)")
_SPEND = re.compile(r"^spend number \d+$", re.MULTILINE)
_VERSION = re.compile(r"forecast of version (\d+)")


class MonthModel(CrowdModel):
    """Answers whatever a gateway asks in a month.

    Attributes:
        faults: replies that come before all others, in order.
        calls: how many answers it gave whole, with their usage.
        recent: the ends of the last requests.
        tokens: tokens of these.
        beats: reports of heartbeats that it made, as they were numbered.
        forecasts: versions of the plugin that gave forecasts, in order.
        forget: called for each request, because a service remembers all of them.

    Args:
        attacks: what an attacker makes it do.
    """

    def __init__(self, attacks: Attacks) -> None:
        super().__init__(
            40,
            {
                **TOOLS,
                "attack": attacks.calls,
                "clock": lambda _: [("mcp_clock_get_current_time", {"timezone": "UTC"})],
                "forecast": lambda _: [("forecast", {})],
                "spawn": lambda number: [("spawn", {"task": f"number {number}"})],
            },
        )
        self.faults: list[Reply] = []
        self.calls: int = 0
        self.tokens: int = 0
        self.recent: deque[str] = deque(maxlen=10)
        self.beats: Iterator[int] = itertools.count(1)
        self.forecasts: list[int] = []
        self.forget: Callable[[], None] = lambda: None
        self._attacks = attacks

    def __call__(self, request: RecordedRequest) -> Reply:
        """Return the reply to a request."""
        self._attacks.look(request.body)
        self.recent.append(_text(request.body["messages"][-1])[-100:])
        self.forget()
        reply = self.faults.pop(0) if self.faults else self._reply(request)
        if reply.status == 200 and reply.body is None and reply.stop_after_bytes is None:
            self.calls += 1
            self.tokens += int((reply.usage or {}).get("total_tokens", 0))  # type: ignore[arg-type]
        return reply

    def _reply(self, request: RecordedRequest) -> Reply:
        messages = request.body["messages"]
        system = _text(messages[0])
        if system.startswith("You look after the long-term memory"):
            return Reply(text="[MEMORY] Numbers are spoken of every day (2026-12-01)")
        if system.startswith("You edit the memory files"):
            return self._remember(messages)
        if system.startswith("You summarise a part of a conversation"):
            return Reply(text="- Numbers were spoken of.")
        if (form := _form(request.body)) is not None:
            return self._fill(form)
        return self._said(request, since_the_last_answer(messages))

    def _said(self, request: RecordedRequest, since: list[dict[str, Any]]) -> Reply:
        texts = [_text(each).strip() for each in since if each["role"] == "user"]
        for text in (_text(each) for each in since if each["role"] == "tool"):
            if found := _VERSION.search(text):
                self.forecasts.append(int(found[1]))
        reply = super().__call__(request)
        if texts and _SPEND.search(texts[-1]) and not reply.calls:
            usage: JsonObject = {
                "prompt_tokens": SPENT - 5,
                "completion_tokens": 5,
                "total_tokens": SPENT,
            }
            return replace(reply, usage=usage)
        return reply

    def _heard(self, content: str | list[dict[str, Any]]) -> tuple[str, str]:
        if isinstance(content, str) and REPORT in content:
            found = _NUMBER.search(content)
            return (f"report {found[0]}" if found else "", "")
        return super()._heard(content)

    def _answer(self, words: str, attached: str) -> str:
        verb, _, rest = words.partition(" ")
        match verb if rest.startswith("number ") else "":
            case "report":
                return f"Done {rest}"
            case "spawn":
                return "The subagent begins."
            case "send":  # the file came with the number
                return "It is sent."
            case "spend":
                return f"You said: {rest}"
        return super()._answer(words, attached)

    def _fill(self, form: Mapping[str, Any]) -> Reply:
        if "worth_a_message" in form:
            answer = {"worth_a_message": True, "text": f"Beat {next(self.beats)}"}
        else:
            answer = {"action": "run", "tasks": "Look at the list."}
        call = ScriptedCall(name=FORM, arguments=json.dumps(answer))
        return Reply(calls=(call,))

    def _remember(self, messages: list[dict[str, Any]]) -> Reply:
        if messages[-1]["role"] == "tool":
            return Reply(text="The fact is added.")
        fact = "- Numbers are spoken of every day (2026-12-01)"
        arguments = {"path": "memory/MEMORY.md", "old_text": "", "new_text": fact}
        return Reply(calls=(ScriptedCall(name="edit_file", arguments=json.dumps(arguments)),))


def _form(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of the object with which a run has to end, if there is one."""
    for tool in body.get("tools") or ():
        if tool["function"]["name"] == FORM:
            found: Mapping[str, Any] = tool["function"]["parameters"]["properties"]
            return found
    return None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)
