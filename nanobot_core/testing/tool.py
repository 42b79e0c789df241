"""The contract of a tool, as a test suite."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core.contracts.tool import Tool, ToolContext, ToolOutput, ToolResult
from nanobot_core.errors import ToolError
from nanobot_core.messages import (
    ImageBlock,
    JsonObject,
    JsonValue,
    OutboundMessage,
    TextBlock,
    content_text,
)
from nanobot_core.paths import PathGuard
from nanobot_core.testing.context import FakePluginContext
from nanobot_core.testing.suite import ContextSuite, ends_within, file_changes
from nanobot_core.testing.tool_schema import definition_findings
from nanobot_core.tools.registry import PreparedCall, ToolRegistry

_MAX_RESULT_CHARS = 1_000_000
_CANCEL_AFTER_PASSES = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
_WRONG: tuple[JsonValue, ...] = (None, True, -1, 1.5, "\0", [], [[]], {}, {"a": [1]})


class ToolContract(ContextSuite):
    """What every tool must do. A subclass says how to make one and what a good call looks like.

    Attributes:
        sample_arguments: arguments of a call that succeeds, as a model might write them.
        limit_s: seconds that any call of the suite may take.
    """

    sample_arguments: JsonObject
    limit_s: float = 5.0

    @abstractmethod
    def make_tool(self, context: FakePluginContext) -> Tool:
        """Return a fresh tool."""

    def arguments_of(self, session: str) -> JsonObject:
        """Return the arguments of a sample call from a chat; override it to name `session`."""
        return self.sample_arguments

    def prepare(self, workspace: Path) -> None:
        """Put into `workspace` what the sample call needs, again after calls that may have used it.

        Nothing, unless overridden.
        """

    @pytest.fixture
    async def context(self, anyio_backend: str, tmp_path: Path) -> AsyncIterator[FakePluginContext]:
        """A prepared context, entered."""
        async with self.make_context(tmp_path) as context:
            self.prepare(context.workspace)
            yield context

    @pytest.fixture
    def tool(self, context: FakePluginContext) -> Tool:
        """The tool."""
        return self.make_tool(context)

    async def test_definition_suits_the_known_model_services(self, tool: Tool) -> None:
        assert definition_findings(tool.definition) == []

    async def test_definition_is_plain_data_and_the_same_each_time(
        self, tool: Tool, context: FakePluginContext
    ) -> None:
        first = json.dumps(tool.to_schema())

        assert json.dumps(tool.to_schema()) == first
        assert json.dumps(self.make_tool(context).to_schema()) == first

    async def test_sample_arguments_are_accepted_and_casting_them_changes_nothing_more(
        self, tool: Tool
    ) -> None:
        once = _prepare(tool, self.sample_arguments)
        twice = _prepare(tool, once.params)

        assert once.error is None
        assert twice.params == once.params

    async def test_sample_call_gives_a_typed_and_bounded_result(
        self, tool: Tool, context: FakePluginContext
    ) -> None:
        output = await self._call(tool, call_in(context.workspace))

        findings = output_findings(output)
        assert not findings, f"tool '{tool.name}': {'; '.join(findings)}"

    async def test_cancelling_a_call_ends_it_at_once(
        self, tool: Tool, context: FakePluginContext
    ) -> None:
        arguments = _prepare(tool, self.sample_arguments).params
        for passes in _CANCEL_AFTER_PASSES:
            self.prepare(context.workspace)
            work = _settle(tool, call_in(context.workspace), arguments)
            call = asyncio.get_running_loop().create_task(work)
            for _ in range(passes):
                await asyncio.sleep(0)
            if not call.cancel():
                return
            is_ended = await ends_within(call, self.limit_s)
            assert is_ended and call.cancelled(), (
                f"tool '{tool.name}' swallows its cancellation; let asyncio.CancelledError pass, "
                "and end what the call started"
            )

    async def test_calls_of_two_sessions_side_by_side_do_not_mix(
        self, tool: Tool, context: FakePluginContext, tmp_path: Path
    ) -> None:
        reported: dict[str, list[str]] = {"alpha": [], "beta": []}
        calls = {name: call_of_chat(name, tmp_path, reported[name]) for name in reported}
        for call in calls.values():
            self.prepare(call.workspace)
        data = tree_digest(context.data_dir)

        async with asyncio.TaskGroup() as group:
            running = {
                name: group.create_task(
                    self._call(tool, call, self.arguments_of(f"session-{name}"))
                )
                for name, call in calls.items()
            }

        # A tool for the owner may keep data in the plugin's folder.
        is_kept = not tool.for_guests and tree_digest(context.data_dir) != data
        for name, other in (("alpha", "beta"), ("beta", "alpha")):
            read = "\n".join([output_text(running[name].result()), *reported[name]])
            assert is_kept or f"session-{other}" not in read, (
                f"tool '{tool.name}' shows one chat what it got from another; keep state by "
                "context.session_key, not on the tool or in its module"
            )
        assert _files(calls["alpha"].workspace) == _files(calls["beta"].workspace)

    async def test_read_only_call_changes_nothing(
        self, tool: Tool, context: FakePluginContext, tmp_path: Path
    ) -> None:
        if not tool.read_only:
            pytest.skip("the tool is not read-only")
        data = context.data_dir
        before = tree_digest(data), tree_digest(context.workspace)

        with file_changes(outside=tmp_path) as changed:
            await self._call(tool, call_in(context.workspace))

        after = tree_digest(data), tree_digest(context.workspace)
        changed += [
            name
            for name, old, new in zip(("ctx.data_dir", "the workspace"), before, after, strict=True)
            if old != new
        ]
        assert not changed, (
            f"tool '{tool.name}' is marked read_only and changes {', '.join(changed)}; remove "
            "read_only, or write nothing"
        )

    async def test_wrong_typed_arguments_raise_nothing_but_tool_errors(
        self, tool: Tool, context: FakePluginContext
    ) -> None:
        for name, sample in self.sample_arguments.items():
            for wrong in _WRONG:
                prepared = _prepare(tool, {**self.sample_arguments, name: wrong})
                if prepared.error is not None or (_is_number(wrong) and _is_number(sample)):
                    continue
                try:
                    async with asyncio.timeout(self.limit_s):
                        await _settle(tool, call_in(context.workspace), prepared.params)
                except Exception as error:
                    msg = (
                        f"tool '{tool.name}' raises {type(error).__name__}: {error} for {name}="
                        f"{wrong!r}; restrict its parameters, or raise ToolInputError"
                    )
                    raise AssertionError(msg) from error

    async def _call(
        self, tool: Tool, call: ToolContext, arguments: JsonObject | None = None
    ) -> ToolOutput:
        prepared = _prepare(tool, self.sample_arguments if arguments is None else arguments)
        assert prepared.error is None
        async with asyncio.timeout(self.limit_s):
            return await tool.execute(call, prepared.params)


def call_in(workspace: Path, files: PathGuard | None = None) -> ToolContext:
    """Return the context of a call by the owner; messages to chats are accepted.

    Args:
        workspace: the agent's working folder.
        files: what the call may read and write; ``None`` means the workspace alone.
    """
    return ToolContext(
        session_key="cli:direct",
        turn_id="turn",
        call_id="call",
        workspace=workspace,
        files=files or PathGuard(workspace),
        is_owner=True,
        send=_accept,
    )


def call_of_chat(name: str, folder: Path, reported: list[str]) -> ToolContext:
    """Return the context of a guest's call from a chat, with a workspace of its own.

    Args:
        name: distinguishes the chats.
        folder: the workspace is made below it.
        reported: receives the reports of progress.
    """

    async def progress(text: str) -> None:
        reported.append(text)

    workspace = folder.resolve() / f"session-{name}"
    workspace.mkdir()
    return replace(
        call_in(workspace),
        session_key=f"test:session-{name}",
        turn_id=f"turn-of-session-{name}",
        call_id=f"call-of-session-{name}",
        channel="test",
        chat_id=f"session-{name}",
        sender_id=f"sender-of-session-{name}",
        is_owner=False,
        progress=progress,
    )


async def _accept(_message: OutboundMessage) -> None:
    """Accept every message."""


def output_findings(output: object) -> list[str]:
    """Return what is wrong with a tool's output."""
    if isinstance(output, ToolResult):
        found = output_findings(output.content)
        if not all(isinstance(path, str) for path in output.media):
            found.append("media must be paths as text")
        try:
            json.dumps(output.data)
        except (TypeError, ValueError):
            found.append("data must be plain JSON data")
        return found
    if isinstance(output, str):
        if len(output) > _MAX_RESULT_CHARS:
            return [f"text has {len(output)} characters, at most {_MAX_RESULT_CHARS} are taken"]
        return []
    if isinstance(output, Sequence) and all(
        isinstance(block, TextBlock | ImageBlock) for block in output
    ):
        return []
    return [f"output must be text, blocks or a ToolResult, found {type(output).__name__}"]


def output_text(output: ToolOutput) -> str:
    """Return the text of a tool's output."""
    content = output.content if isinstance(output, ToolResult) else output
    return content_text(content if isinstance(content, str) else tuple(content))


async def _settle(tool: Tool, call: ToolContext, arguments: JsonObject) -> None:
    """Run a call that may end in a result or in any `ToolError`."""
    with contextlib.suppress(ToolError):
        await tool.execute(call, arguments)


def _prepare(tool: Tool, arguments: JsonObject) -> PreparedCall:
    registry = ToolRegistry()
    registry.register(tool)
    return registry.prepare_call(tool.name, arguments)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def tree_digest(folder: Path) -> str:
    """Digest of names, kinds, modes and contents below `folder`, caches and logs left out."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if any("cache" in part or part == "logs" for part in path.relative_to(folder).parts):
            continue
        content = path.read_bytes() if path.is_file() else b""
        mode = path.lstat().st_mode
        digest.update(f"{path.relative_to(folder)}\0{mode}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
