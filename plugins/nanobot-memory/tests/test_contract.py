from __future__ import annotations

from pathlib import Path

from nanobot_core import AgentTask, MemoryBackend
from nanobot_core.testing import FakePluginContext, MemoryContract
from nanobot_memory.backend import FileMemory


class TestFileMemory(MemoryContract):
    """The model repeats its request, so that no summary can be used."""

    def make_memory(self, context: FakePluginContext) -> MemoryBackend:
        return FileMemory(context)


class TestFileMemoryWithSummaries(MemoryContract):
    """The model writes what the user says as bullet points."""

    def make_memory(self, context: FakePluginContext) -> MemoryBackend:
        return FileMemory(context)

    def make_context(self, tmp_path: Path) -> FakePluginContext:
        context = super().make_context(tmp_path)
        context.agent.answer = said_by_user
        return context


def said_by_user(task: AgentTask) -> str:
    """Return what a summariser would write from the text of its request."""
    lines = [line for line in task.messages[-1].text.splitlines() if "User: " in line]
    return "\n".join(f"- {line.partition('User: ')[2][:150]}" for line in lines)
