"""Run: a task that was given to a subagent, from the request to its report."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from nanobot_core import Assignment, Requester, ToolRule, as_label

PLUGIN = "subagents"
REPORT_SUFFIX = ":result"
MAX_TITLE_CHARS = 60
MAX_STEPS = 30
"""The newest steps of a run are kept."""
State: TypeAlias = Literal["queued", "running", "complete", "partial", "failed", "stopped", "lost"]
"""``partial``: ended by a limit. ``stopped``: by a person. ``lost``: its end was never reported."""
ENDED: frozenset[State] = frozenset({"complete", "partial", "failed", "stopped", "lost"})


class Run(BaseModel):
    """A run, as it is stored. It is replaced, never changed.

    Attributes:
        id: names the run, its session and its file.
        kind: ``spawn`` works in the background; the caller of ``delegate`` waits.
        label: a few words for people.
        agent: name of the profile, or an empty string.
        requester: who asked, with the rights that they had.
        parent: session that the run works for.
        depth: 1 for a run of a conversation, 2 for a run of such a run.
        workspace: folder of the requester, for a long result.
        ending: why it is being ended, or an empty string.
        steps: its last tool calls.
        result: the beginning and the end of its last text.
        result_file: file with the whole answer, or an empty string.
        cause: why it ended early or will; empty if it is complete.
        is_reported: the session has the result, or needs none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    kind: Literal["spawn", "delegate"]
    task: str
    label: str
    requester: Requester
    parent: str
    instructions: str
    created_at: datetime
    workspace: str
    agent: str = ""
    state: State = "queued"
    tools: tuple[ToolRule, ...] = ()
    model: str | None = None
    max_iterations: int = 15
    depth: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    tokens: int = 0
    ending: Literal["", "person", "time"] = ""
    steps: tuple[str, ...] = ()
    result: str = ""
    result_file: str = ""
    cause: str = ""
    is_reported: bool = False

    @property
    def session_key(self) -> str:
        """The session in which the run works."""
        return f"{PLUGIN}:{self.id}"

    @property
    def has_ended(self) -> bool:
        """Whether the run is over."""
        return self.state in ENDED

    @property
    def title(self) -> str:
        """The label, or the beginning of the task, as people may see it."""
        label, task = as_label(self.label, MAX_TITLE_CHARS), as_label(self.task, MAX_TITLE_CHARS)
        return label or task

    def with_step(self, step: str) -> Run:
        """Return the run with one more step."""
        return self.model_copy(update={"steps": (*self.steps, step)[-MAX_STEPS:]})

    def assignment(self) -> Assignment:
        """Return the work of the run."""
        return Assignment(
            plugin=PLUGIN,
            id=self.id,
            source="subagent",
            requester=self.requester,
            title=self.title,
            session_key=self.session_key,
            parent=self.parent,
            instructions=self.instructions,
            tools=self.tools,
            model=self.model,
            max_iterations=self.max_iterations,
            delivery="never",
        )

    def report(self) -> Assignment:
        """Return the work of reporting the result, in the session that asked for it."""
        return Assignment(
            plugin=PLUGIN,
            id=f"{self.id}{REPORT_SUFFIX}",
            source="subagent",
            requester=self.requester,
            title=self.title,
        )


def run_of(assignment: Assignment | None) -> str:
    """Return the id of the run that an assignment belongs to, or an empty string."""
    if assignment is None or assignment.plugin != PLUGIN or assignment.id.endswith(REPORT_SUFFIX):
        return ""
    return assignment.id
