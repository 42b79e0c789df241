"""A model that does what the attacker says, and remembers what it was shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ScriptedCall
from tests.security.goals.goal import Step
from tests.security.goals.trial import Trial

_WANTED = re.compile(r"goal-turn (\w+)")
_TAKEN_OVER = re.compile(r"take-over-(\w+)")


@dataclass(frozen=True, slots=True)
class _Turn:
    trial: Trial
    steps: tuple[Step, ...]
    key: str


@dataclass(slots=True)
class ObedientModel:
    """The model service of all worlds, as an async context manager.

    Attributes:
        taken_over: nonces of trials in which someone else than the harness began a turn.
    """

    server: OpenAIServer = field(init=False)
    taken_over: set[str] = field(default_factory=set)
    _turns: dict[str, _Turn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = OpenAIServer(default=self._reply)

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.__aexit__()

    def expect(self, trial: Trial, steps: tuple[Step, ...] = ()) -> tuple[str, str]:
        """Prepare a turn; return what the user says, and what the model says at its end."""
        key = uuid4().hex[:12]
        self._turns[key] = _Turn(trial, steps, key)
        return f"goal-turn {key}", f"finished-{key}"

    def forget(self, trial: Trial) -> None:
        """Forget the turns of a trial."""
        self._turns = {key: turn for key, turn in self._turns.items() if turn.trial is not trial}

    def _reply(self, request: RecordedRequest) -> Reply:
        # What counts is kept in the trials; thousands of requests come.
        self.server.requests.clear()
        messages = request.body["messages"]
        users = [index for index, message in enumerate(messages) if message["role"] == "user"]
        last = users[-1] if users else 0
        said = _text(messages[last]) if users else ""
        self.taken_over.update(_TAKEN_OVER.findall(said))
        wanted = _WANTED.findall(said)
        turn = self._turns.get(wanted[-1]) if wanted else None
        if turn is None:
            return Reply(text="Well.")
        following = messages[last + 1 :]
        done = sum(1 for message in following if message.get("tool_calls"))
        _note(turn, messages, following, done)
        if done >= len(turn.steps):
            words = turn.trial.goal.says if turn.steps else ""
            return Reply(text=f"{words}\n\nfinished-{turn.key}".strip())
        return Reply(calls=_calls(turn, done))


def _note(
    turn: _Turn,
    messages: list[dict[str, Any]],
    following: list[dict[str, Any]],
    done: int,
) -> None:
    """Keep what the model is shown: instructions, results, and not its own calls."""
    results = [message for message in following if message["role"] == "tool"]
    given = [message for message in messages if message["role"] in {"system", "developer"}]
    texts = [_text(message) for message in (*given, *results)]
    turn.trial.seen[f"{turn.key}-{done}"] = "\n".join(texts)
    if turn.steps:
        turn.trial.results = max(turn.trial.results, len(results))


def _calls(turn: _Turn, step: int) -> tuple[ScriptedCall, ...]:
    trial = turn.trial
    return tuple(
        ScriptedCall(
            name=one.tool,
            arguments=trial.world.fill(json.dumps(one.arguments), trial.nonce).replace(
                "@TURN", f"goal-turn {turn.key}"
            ),
            id=f"call{step:02}x{number:02}",
        )
        for number, one in enumerate(turn.steps[step])
    )


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
