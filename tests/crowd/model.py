"""The model that people of a crowd talk to."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from nanobot_core.testing import RecordedRequest, Reply, ScriptedCall
from nanobot_core.testing.playing import what_was_written

WORDS: Final = re.compile(r"^(?:(?P<verb>[a-z]+) )?number (?P<number>\d+)$")
"""What a person writes."""
ANSWER: Final = re.compile(r"(?:You said:|Code|Table|Story|Done|Here is) number (\d+)\b")
VOICE_HEARD: Final = "I hear you"
STORY_LINE: Final = re.compile(r"Line (\d+) of story (\d+)\.")
ToolCalls: TypeAlias = Callable[[int], Sequence[tuple[str, dict[str, Any]]]]
"""Number of a message to the calls of a model that was asked for them: tool and arguments."""
TOOLS: Final[Mapping[str, ToolCalls]] = {
    "make": lambda number: [("exec", {"command": f"echo made {number}"})],
    "send": lambda number: [
        ("message", {"content": f"Here is number {number}", "media": [f"{number}.txt"]})
    ],
}
"""Verb of a message to what it makes the model call."""


class CrowdModel:
    """Answers each message of a person that has no answer yet.

    Attributes:
        unanswered: number to the last request of a turn that it does not answer.
        story_lines: lines of a story.
        tools: verb of a message to what it makes the model call.
    """

    def __init__(self, story_lines: int, tools: Mapping[str, ToolCalls] = TOOLS) -> None:
        self.unanswered: dict[int, RecordedRequest] = {}
        self.story_lines: int = story_lines
        self.tools: Mapping[str, ToolCalls] = tools

    def __call__(self, request: RecordedRequest) -> Reply:
        """Return the reply to a request."""
        messages: list[dict[str, Any]] = request.body["messages"]
        since = since_the_last_answer(messages)
        asked = [
            (what, attached)
            for message in since
            if message["role"] == "user"
            for what, attached in [self._heard(message["content"])]
        ]
        if calls := tuple(self._calls([words for words, _ in asked], since)):
            return Reply(calls=calls)
        if asked and (found := WORDS.match(asked[-1][0])) and found["verb"] == "wait":
            self.unanswered[int(found["number"])] = request
            return Reply(text="Hm", stop_after_bytes=0, stop="stall")
        return Reply(text="\n\n".join(self._answer(*each) for each in asked) or "Nothing to say.")

    def _heard(self, content: str | list[dict[str, Any]]) -> tuple[str, str]:
        """Return what a message asks for, and in words what is attached to it."""
        return what_was_written(content)

    def _answer(self, words: str, attached: str) -> str:
        found = WORDS.match(words)
        if found is None:
            return f"{VOICE_HEARD}{attached}" if not words else f"You said: {words}{attached}"
        number = found["number"]
        match found["verb"]:
            case "code":
                return f"Code number {number}:\n\n```python\nprint({number} < 2)\n```"
            case "table":
                return f"Table number {number}:\n\n| a | b |\n|---|---|\n| {number} | *two* |"
            case "story":
                lines = range(1, self.story_lines + 1)
                story = "\n".join(f"Line {line} of story {number}." for line in lines)
                return f"Story number {number}:\n\n{story}"
            case "wait":  # stopped before
                return "Let us go on."
            case verb if verb in self.tools:
                return f"Done number {number}"  # not sent after a file, which came with a text
            case _:
                return f"You said: number {number}{attached}"

    def _calls(
        self, asked: Sequence[str], since: Sequence[dict[str, Any]]
    ) -> Iterator[ScriptedCall]:
        """Yield the calls that are still to be made, also those whose outcome is unknown."""
        results = {
            str(message["tool_call_id"]): str(message["content"])
            for message in since
            if message["role"] == "tool"
        }
        for words in asked:
            found = WORDS.match(words)
            if found is None or found["verb"] not in self.tools:
                continue
            number = found["number"]
            own = [text for key, text in results.items() if key.startswith(f"call_{number}_")]
            if own and "was interrupted" not in own[-1]:
                continue
            calls = self.tools[found["verb"]](int(number))
            for place, (name, arguments) in enumerate(calls, len(own)):
                key = f"call_{number}_{place}"
                yield ScriptedCall(name=name, arguments=json.dumps(arguments), id=key)


def since_the_last_answer(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request that have no answer yet."""

    def is_answer(message: dict[str, Any]) -> bool:
        return message["role"] == "assistant" and not message.get("tool_calls")

    return list(itertools.takewhile(lambda each: not is_answer(each), reversed(messages)))[::-1]
