"""Nothing runs a tool but what `authorize_tool_call` has allowed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from nanobot_core import Deny, InboundMessage, ToolCallProposed, on, tool
from nanobot_core.events import TurnSource
from nanobot_core.turns.request import TurnRequest
from tests.integration.conftest import call, started
from tests.rules.checks.source import dotted, product_sources
from tests.scripted_provider import ScriptedPlugin

REPOSITORY = Path(__file__).parents[2]
RUNNER = "nanobot_core/agent/tool_runner.py"
MCP = "plugins/nanobot-mcp/src/nanobot_mcp"
RUNS_TOOLS = {
    (RUNNER, "run"): "inside of `_execute`, which `_allowed_result` alone calls",
    (f"{MCP}/serve.py", "_execute"): "an isolated plugin; the agent's process has checked the call",
    (f"{MCP}/commands.py", "_call"): "a person calls a tool in the terminal, without an agent",
}
"""The functions that run a tool, with the reason why each may."""


def awaiting(name: str) -> Iterator[tuple[str, str]]:
    """Yield file and innermost function of each awaited call of a method, without the test kit.

    The methods of databases with the same name are not awaited.
    """
    for source in product_sources(REPOSITORY):
        if source.path.startswith("nanobot_core/testing/") or f".{name}" not in source.text:
            continue
        for function in ast.walk(source.tree):
            if isinstance(function, ast.AsyncFunctionDef):
                waits = [node for node in inner_nodes(function) if isinstance(node, ast.Await)]
                if any(dotted(node.value).endswith(f".{name}") for node in waits):
                    yield source.path, function.name


def inner_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what belongs to a function itself, and not to a function inside of it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from inner_nodes(node)


@pytest.mark.promise(44)
def test_the_functions_that_run_a_tool_are_known() -> None:
    present = {each for each in RUNS_TOOLS if (REPOSITORY / each[0]).exists()}

    assert set(awaiting("execute")) == present


@pytest.mark.promise(44)
def test_a_call_of_the_agent_is_decided_on_before_it_runs() -> None:
    assert set(awaiting("_execute")) <= {(RUNNER, "_allowed_result"), (f"{MCP}/serve.py", "_run")}
    [allowed] = [
        node
        for source in product_sources(REPOSITORY)
        if source.path == RUNNER
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "_allowed_result"
    ]

    lines = {
        dotted(node.func): node.lineno for node in ast.walk(allowed) if isinstance(node, ast.Call)
    }

    assert lines["self._approver.decide"] < lines["self._execute"]


@pytest.mark.anyio
@pytest.mark.promise(44)
@pytest.mark.parametrize("source", get_args(TurnSource))
async def test_a_gate_holds_whatever_started_the_turn(tmp_path: Path, source: TurnSource) -> None:
    notes: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note a text."""
        notes.append(text)
        return "noted"

    class Guard:
        @on.authorize_tool_call
        def judge(self, event: ToolCallProposed) -> Deny | None:
            return Deny("not today")

    script = ScriptedPlugin(call("note", text="x"), "done")
    message = InboundMessage(channel="cli", sender_id="me", chat_id="direct", content="note x")
    async with started(tmp_path, script, Guard()) as bot:
        bot.tools.register(note)
        request = TurnRequest(message=message, source=source, is_owner=True)
        outcome = await bot.process_direct(request)

    assert outcome.reply == "done"
    assert "not today" in script.provider.requests[1].messages[-1].text
    assert notes == []
