"""The answer to a request, independent of the form in which it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from nanobot_api.error import Failure
from nanobot_core import MessageSent, StreamRestarted, TextStreamed, ToolCallStarted

if TYPE_CHECKING:
    from nanobot_core import RunEvent, Usage

Finish = Literal["stop", "length", "tool_calls"]
_GAP = "\n\n"


class MadeCall(BaseModel):
    """A call of one of the caller's tools; `arguments` is JSON in a string."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    arguments: str


class Tokens(BaseModel):
    """The consumption of a request."""

    model_config = ConfigDict(frozen=True)

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0

    @classmethod
    def of(cls, usage: Usage) -> Tokens:
        """Return the tokens of a turn or a task."""
        return cls(
            prompt=usage.prompt_tokens,
            completion=usage.completion_tokens,
            cached=usage.cached_tokens,
            reasoning=usage.reasoning_tokens,
        )


class Answer(BaseModel):
    """A complete answer.

    Attributes:
        text: what the agent or the model says.
        finish: why it ends.
        calls: of the caller's tools.
        tokens: what it took.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    finish: Finish = "stop"
    calls: tuple[MadeCall, ...] = ()
    tokens: Tokens = Tokens()

    def pieces(self) -> list[Delta]:
        """Return the answer in one piece, or none if it has no text."""
        return [Delta(self.text)] if self.text else []


class Result(BaseModel):
    """How a request ended: one of the two is set."""

    model_config = ConfigDict(frozen=True)

    answer: Answer | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of an answer, and of the thinking before it."""

    text: str = ""
    reasoning: str = ""


class AnswerText:
    """Puts together what a client reads from the events of a turn.

    What was sent cannot be taken back. When a model call is made again, the part of the new answer
    that equals the former one is left out; where they differ, the new one follows as a paragraph
    of its own. The same applies to an answer that a plugin has changed at the end.
    """

    def __init__(self) -> None:
        self._all = ""
        self._current = ""
        self._void = ""

    @property
    def text(self) -> str:
        """All text so far."""
        return self._all

    def take(self, event: RunEvent) -> Delta | None:
        """Return what an event adds, or ``None`` for nothing."""
        match event:
            case TextStreamed():
                delta = Delta(self._said(event.text), event.reasoning)
                return delta if delta.text or delta.reasoning else None
            case StreamRestarted():
                self._void = max(self._void, self._current, key=len)
                self._current = ""
            case ToolCallStarted():
                self._current = self._void = ""
            case MessageSent():
                self._current = self._void = ""
                added = self._said(event.message.content)
                self._current = ""
                return Delta(added) if added else None
            case _:
                pass
        return None

    def end(self, reply: str) -> Delta | None:
        """Return what is missing when `reply` is the complete last answer."""
        seen = self._void or self._current
        self._void = ""
        if reply.strip() == seen.strip():
            return None
        if seen and reply.startswith(seen):
            return Delta(self._sent(reply[len(seen) :]))
        return Delta(self._sent(_GAP + reply if self._all else reply))

    def _said(self, text: str) -> str:
        """Add a piece of the current answer; return what the client does not have yet."""
        if not text:
            return ""
        first = not self._current
        self._current += text
        if self._void:
            if self._void.startswith(self._current):
                return ""
            former, self._void = self._void, ""
            if self._current.startswith(former):
                return self._sent(self._current[len(former) :])
            return self._sent(_GAP + self._current)
        return self._sent(_GAP + text if first and self._all else text)

    def _sent(self, text: str) -> str:
        self._all += text
        return text
