"""A single-file plugin: a tool that gives work to the agent, and a record of its end.

The hooks append lines to ``ends.jsonl`` and ``stops.jsonl`` in the folder ``delegator`` of the
workspace, which is on the disk when they return.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nanobot_core import (
    Assignment,
    AssignmentFinished,
    PluginContext,
    PluginFacts,
    Tool,
    ToolContext,
    ToolRule,
    WorkStopped,
    on,
    tool,
)

ID = "delegator"
_contexts: list[PluginContext] = []
"""The context of the last start."""


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    return PluginFacts(summary="gives work to the agent")


@on.start
def start(ctx: PluginContext) -> None:
    _contexts[:] = [ctx]


@on.after_assignment
def after_assignment(event: AssignmentFinished) -> None:
    outcome = event.outcome
    if event.assignment.plugin == _contexts[0].id:
        _append(
            "ends",
            id=event.assignment.id,
            reply=outcome.reply,
            error=outcome.error,
            stop_reason=outcome.stop_reason,
            session=outcome.turn.session_key,
            is_owner=outcome.turn.is_owner,
            authority=event.assignment.requester.authority,
        )


@on.on_stop
def on_stop(event: WorkStopped) -> None:
    _append("stops", session=event.session_key)


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[Tool]:
    yield assign
    yield work


@tool(for_guests=True)
async def assign(context: ToolContext, name: str, content: str, how: str = "{}") -> str:
    """Give work to the agent, for the person who asks.

    Args:
        name: id of the work.
        content: the task.
        how: further fields of the assignment, as a JSON object.
    """
    gateway = _contexts[0].gateway
    assert gateway is not None
    is_new = await gateway.assign(_assignment(context, name, json.loads(how)), content)
    return f"assigned {name}" if is_new else f"{name} is known"


@tool(for_guests=True, timeout_s=600)
async def work(context: ToolContext, name: str, content: str, how: str = "{}") -> str:
    """Do work at once, as part of this call.

    Args:
        name: id of the work.
        content: the task.
        how: further fields of the assignment, as a JSON object.
    """
    outcome = await _contexts[0].agent.work(_assignment(context, name, json.loads(how)), content)
    return f"{name} ended ({outcome.stop_reason}): {outcome.error or outcome.reply}"


def _assignment(context: ToolContext, name: str, how: dict[str, Any]) -> Assignment:
    tools = tuple(ToolRule(tuple(rule["allow"])) for rule in how.pop("tools", ()))
    fields = {"session_key": f"{ID}:{name}", "parent": context.session_key, "source": "subagent"}
    plugin = _contexts[0].id
    return Assignment(
        plugin=plugin, id=name, requester=context.requester, tools=tools, **(fields | how)
    )


def _append(name: str, **fields: object) -> None:
    path = folder_of(_contexts[0].workspace) / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(fields) + "\n")
        file.flush()
        os.fsync(file.fileno())


def context() -> PluginContext:
    """Return the context of the last start."""
    return _contexts[0]


def plugin_id() -> str:
    """Return the id under which the plugin runs."""
    return context().id


def folder_of(workspace: Path) -> Path:
    """Return where the plugin of a workspace keeps its records."""
    return workspace / ID


def records(workspace: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of a record; a kill may have cut the last one."""
    file = folder_of(workspace) / f"{name}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]
