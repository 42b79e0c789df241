"""Tool calls: side by side or alone, in time, contained, bounded, in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from loguru import logger

from nanobot_core import (
    DeclaredTool,
    ImageBlock,
    JsonObject,
    Message,
    SessionError,
    TextBlock,
    Tool,
    ToolBatchStarted,
    ToolCall,
    ToolCallFinished,
    ToolContext,
    ToolFailed,
    ToolInputError,
    ToolOutcome,
    ToolResult,
    ToolResultReady,
    on,
    tasks,
)
from nanobot_core.contracts.tool import ToolOutput
from nanobot_core.errors import PluginLoadFailed
from nanobot_core.events import ProgressMade, ToolCallStarted, ToolDefinition
from nanobot_core.folder import Folder
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from nanobot_core.tools.registry import RETRY_HINT, RegisteredTool
from tests.unit.agent.conftest import Bench, call

if TYPE_CHECKING:
    from loguru import Message as LogMessage

pytestmark = pytest.mark.anyio


Work: TypeAlias = Callable[[ToolContext], object]


class Scripted(Tool):
    """Does what it is given as a function of the context."""

    description = "Scripted."
    parameters: JsonObject = {"type": "object", "properties": {}}  # noqa: RUF012 - a contract's attribute

    def __init__(self, name: str, work: Work, **traits: Any) -> None:
        self.name = name
        self.work = work
        for trait, value in traits.items():
            setattr(self, trait, value)

    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        output = self.work(context)
        result: ToolOutput = await output if asyncio.iscoroutine(output) else output  # type: ignore[assignment]  # rubbish on purpose
        return result


def several(*names: str) -> FakeReply:
    return FakeReply(
        tool_calls=tuple(call(name, f"c{number}") for number, name in enumerate(names))
    )


async def test_read_only_neighbours_overlap_and_results_keep_their_order(bench: Bench) -> None:
    barrier = asyncio.Barrier(3)
    ended: list[str] = []

    def meet(name: str) -> Scripted:
        async def work(context: ToolContext) -> str:
            await barrier.wait()
            if name == "a":
                await asyncio.sleep(0)
            ended.append(name)
            return name

        return Scripted(name, work, read_only=True)

    bench.offer(meet("a"), meet("b"), meet("c"))
    result = await bench.run(several("a", "b", "c"), "met")
    assert result.content == "met"
    assert ended != ["a", "b", "c"]
    assert [message.text for message in result.messages[1:4]] == ["a", "b", "c"]


async def test_what_writes_or_is_exclusive_runs_alone_and_in_order(bench: Bench) -> None:
    running: list[str] = []
    most: list[int] = []

    def watch(name: str, **traits: Any) -> Scripted:
        async def work(context: ToolContext) -> str:
            running.append(name)
            await asyncio.sleep(0)
            most.append(len(running))
            running.remove(name)
            return name

        return Scripted(name, work, **traits)

    bench.offer(
        watch("read", read_only=True),
        watch("write"),
        watch("alone", read_only=True, exclusive=True),
    )
    await bench.run(several("read", "write", "read", "alone", "write"), "done")
    assert bench.results() == ["read", "write", "read", "alone", "write"]
    assert most == [1] * 5


async def test_no_more_calls_run_side_by_side_than_allowed(bench: Bench) -> None:
    running = most = 0

    async def work(context: ToolContext) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    bench.offer(Scripted("read", work, read_only=True))
    await bench.run(several(*["read"] * 5), "done", spec=bench.spec(max_parallel=2))
    assert most == 2


def _exit(context: ToolContext) -> None:
    sys.exit(3)


def _raise(error: BaseException) -> Work:
    def work(context: ToolContext) -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (_raise(ValueError("bad luck")), "Error: it failed: ValueError: bad luck"),
        (_raise(TimeoutError("own limit")), "Error: it failed: TimeoutError: own limit"),
        (_raise(ToolFailed("no such file")), "Error: it failed: no such file"),
        (_raise(ToolInputError("path is relative")), "Error: it failed: path is relative"),
        (_raise(KeyboardInterrupt()), "Error: it failed: KeyboardInterrupt: "),
        (_raise(asyncio.CancelledError("mine")), "Error: it failed: it cancelled itself: mine"),
        (_exit, "Error: it failed: SystemExit: 3"),
        (lambda context: None, "Error: it returned NoneType, which is not a tool result"),
        (lambda context: [1, 2], "Error: it returned list, which is not a tool result"),
        (lambda context: ToolResult(5), "Error: it returned int, which is not a tool result"),  # type: ignore[arg-type]  # rubbish on purpose
        (lambda context: (TextBlock(7),), "Error: it failed: TypeError:"),  # type: ignore[arg-type]  # rubbish on purpose
    ],
)
async def test_a_tool_that_misbehaves_is_told_to_the_model_and_ends_nothing(
    bench: Bench, work: Work, text: str
) -> None:
    bench.offer(Scripted("it", work))
    result = await bench.run(call("it"), "I see.")
    assert result.content == "I see."
    sent = bench.provider.requests[1].messages[-1]
    assert sent.text.startswith(text)
    assert sent.is_error
    assert "Traceback" not in sent.text


async def test_what_a_tool_raised_is_logged_with_its_traceback_for_its_author(
    bench: Bench,
) -> None:
    records: list[tuple[object, BaseException | None]] = []

    def keep(message: LogMessage) -> None:
        raised = message.record["exception"]
        records.append((message.record["extra"].get("plugin"), raised and raised.value))

    sink = logger.add(keep, level="DEBUG", filter="nanobot_core.agent.tool_runner")
    error = ValueError("bad luck")
    bench.offer(Scripted("it", _raise(error)), Scripted("other", _raise(ToolFailed("expected"))))
    await bench.run(FakeReply(tool_calls=(call("it"), call("other", "c2"))), "I see.")
    logger.remove(sink)
    assert [raised for _, raised in records] == [error]
    assert all(plugin for plugin, _ in records)


@pytest.mark.parametrize("output", ["", "  ", [], ToolResult(""), (TextBlock(""),)])
async def test_empty_output_becomes_a_sentence(bench: Bench, output: object) -> None:
    bench.offer(Scripted("it", lambda context: output))
    await bench.run(call("it"), "done")
    assert bench.results() == ["(it completed with no output)"]


async def test_images_go_to_the_model_beside_the_text(bench: Bench) -> None:
    image = ImageBlock("image/png", "AAAA")
    bench.offer(Scripted("look", lambda context: [TextBlock("a cat"), image]))
    await bench.run(call("look"), "done")
    assert bench.provider.requests[1].messages[-1].content == (TextBlock("a cat"), image)


async def test_an_image_alone_is_a_result(bench: Bench) -> None:
    image = ImageBlock("image/png", "AAAA")
    bench.offer(Scripted("look", lambda context: ToolResult((image,))))
    await bench.run(call("look"), "done")
    assert bench.provider.requests[1].messages[-1].content == (TextBlock(""), image)


async def test_a_tool_that_hangs_is_stopped_at_its_limit(bench: Bench) -> None:
    ended = asyncio.Event()

    async def hang(context: ToolContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    bench.offer(Scripted("hang", hang, timeout_s=0.01))
    await bench.run(call("hang"), "done")
    assert ended.is_set()
    assert bench.results()[0].startswith(
        "Error: hang failed: hang did not finish within 0.01 seconds and was stopped"
    )


async def test_a_tool_that_ignores_its_cancellation_does_not_hold_the_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "WORK_END_S", 0.01)
    let_go = asyncio.Event()

    async def stubborn(context: ToolContext) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    bench.offer(Scripted("stubborn", stubborn, timeout_s=0.01))
    result = await bench.run(call("stubborn"), "done")
    let_go.set()
    assert result.content == "done"
    assert "cannot be stopped; it may still take effect" in bench.results()[0]


async def test_cancelling_the_run_cancels_the_tools_and_waits_for_them(bench: Bench) -> None:
    begun, cleaned = asyncio.Barrier(3), []

    async def work(context: ToolContext) -> str:
        try:
            await begun.wait()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(context.call_id)
        return ""

    bench.offer(Scripted("slow", work, read_only=True))
    run = bench.spawn(bench.run(several("slow", "slow"), "never"), name="run")
    async with asyncio.timeout(5):
        await begun.wait()
        run.cancel()
        await asyncio.wait({run})
    assert run.cancelled()
    assert sorted(cleaned) == ["c0", "c1"]


async def test_a_tool_knows_its_circumstances_and_can_tell_progress(bench: Bench) -> None:
    seen: list[ToolContext] = []

    async def work(context: ToolContext) -> str:
        seen.append(context)
        await context.progress("half way")
        return "ok"

    bench.offer(Scripted("it", work))
    await bench.run(call("it"), "done")
    assert (seen[0].session_key, seen[0].turn_id, seen[0].call_id) == (
        "cli:direct",
        "turn0001",
        "c1",
    )
    assert seen[0].workspace == bench.workspace
    assert [event.text for event in bench.told(ProgressMade)] == ["half way"]


async def test_unknown_tools_and_bad_arguments_are_told_with_the_hint_once(bench: Bench) -> None:
    @tool
    def read_file(path: str) -> str:
        """Read."""
        return path

    bench.offer(read_file)
    calls = (
        call("read_fil", "c1"),
        call("read_file", "c2"),
        ToolCall("c3", "read_file", {}, unparsed="{path: "),
    )
    await bench.run(FakeReply(tool_calls=calls), "done")
    unknown, missing, unparsed = bench.results()
    assert "Did you mean read_file?" in unknown
    assert "path is required" in missing
    assert "the arguments of read_file are not a JSON object: {path: " in unparsed
    assert all(text.count(RETRY_HINT) == 1 for text in bench.results())


async def test_a_tool_whose_code_does_not_load_is_told_by_name(bench: Bench) -> None:
    def load() -> Tool:
        raise PluginLoadFailed("broken", "module 'x' is not installed", "pip install x")

    definition = ToolDefinition(name="lazy", description="", parameters={"type": "object"})
    bench.registry.register(RegisteredTool(DeclaredTool(definition), load, plugin="broken"))
    await bench.run(call("lazy"), "done")
    assert "plugin 'broken': module 'x' is not installed; pip install x" in bench.results()[0]


async def test_an_over_long_result_is_kept_in_a_file(bench: Bench) -> None:
    text = "a" * 30_000 + "b" * 30_000
    bench.offer(Scripted("big", lambda context: text))
    await bench.run(call("big", "../evil id"), "done", spec=bench.spec(max_tool_result_chars=100))
    shown = bench.results()[0]
    files = list((bench.workspace / ".nanobot" / "tool-results").glob("*/*.txt"))
    assert [file.read_text() for file in files] == [text]
    assert str(files[0]) in shown
    assert "60,000 characters" in shown
    assert shown.startswith("a" * 50)
    assert len(shown) < 600


async def test_a_tool_may_show_less_of_its_results_than_the_limit(bench: Bench) -> None:
    tool = Scripted("big", lambda context: "a" * 500)
    tool.max_result_chars = 100
    bench.offer(tool)
    await bench.run(call("big"), "done", spec=bench.spec(max_tool_result_chars=1_000))
    (file,) = (bench.workspace / ".nanobot" / "tool-results").glob("*/*.txt")
    assert file.read_text() == "a" * 500
    assert str(file) in bench.results()[0]
    assert len(bench.results()[0]) < 500


async def test_a_result_that_cannot_be_kept_is_cut_and_says_so(bench: Bench) -> None:
    (bench.workspace / ".nanobot").write_text("in the way")
    bench.offer(Scripted("big", lambda context: "x" * 500))
    await bench.run(call("big"), "done", spec=bench.spec(max_tool_result_chars=100))
    cut = "\n[shortened; the whole text could not be stored:"
    assert bench.results()[0].startswith("x" * 100 + cut)


@pytest.mark.promise(28)
async def test_hooks_around_tools_hear_rewrite_and_keep_the_origin(bench: Bench) -> None:
    heard: list[object] = []

    class Plugin:
        @on.before_execute_tools
        def batch(self, event: ToolBatchStarted) -> None:
            heard.append([item.name for item in event.calls])

        @on.rewrite_tool_result
        def redact(self, event: ToolResultReady) -> ToolOutcome:
            return ToolOutcome(text=event.result.text.replace("secret", "***"))

        @on.after_execute_tool
        def after(self, event: ToolCallFinished) -> None:
            heard.append(event.result.text)

    bench.plug(Plugin())
    bench.offer(Scripted("it", lambda context: "a secret"))
    result = await bench.run(call("it"), "done")
    assert heard == [["it"], "a ***"]
    assert result.messages[1].origin == "kit@1.0"
    assert [type(event) for event in bench.events][:2] == [ToolCallStarted, ToolCallFinished]
    assert bench.told(ToolCallFinished)[0].result.text == "a ***"


async def test_a_critical_redaction_that_fails_withholds_the_result(bench: Bench) -> None:
    class Redaction:
        @on.rewrite_tool_result(critical=True)
        def redact(self, event: ToolResultReady) -> ToolOutcome:
            raise ValueError("broken")

    image = ImageBlock("image/png", "AAAA")
    bench.plug(Redaction())
    bench.offer(Scripted("it", lambda context: [TextBlock("secret"), image]))
    await bench.run(call("it"), "done")
    sent = bench.provider.requests[1].messages[-1]
    assert isinstance(sent.content, str)
    assert sent.content.startswith("Error: result withheld:")
    assert "secret" not in sent.content


@pytest.mark.parametrize("names", [("it",), ("it", "it")])
async def test_a_result_that_cannot_be_stored_ends_the_run_with_that_error(
    bench: Bench, names: tuple[str, ...]
) -> None:
    async def full(messages: list[Message], running: object) -> None:
        if messages[0].role == "tool":
            raise SessionError("cli:direct", "the disk is full")

    bench.offer(Scripted("it", lambda context: "x", read_only=True))
    with pytest.raises(SessionError, match="the disk is full"):
        await bench.run(several(*names), spec=bench.spec(record=full))


async def test_hints_are_short(bench: Bench) -> None:
    @tool
    def note(count: int = 0, text: str = "") -> str:
        """Note."""
        return "ok"

    bench.offer(note)
    calls = (
        call("note", "c1", text="x" * 1_000),
        call("note", "c2", count=5),
        call("note", "c3"),
        call("note", "c4", count=1, text="kurz"),
    )
    await bench.run(FakeReply(tool_calls=calls), "done")
    hints = [event.hint for event in bench.told(ToolCallStarted)]
    assert len(hints[0]) < 80
    assert hints[0].endswith('…")')
    assert hints[1:] == ["note(5)", "note()", 'note("kurz")']


async def test_old_results_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    import os

    from nanobot_core.agent.results import ResultFiles

    results = ResultFiles(Folder(tmp_path))
    folder = results.folder_of("telegram:1")
    results.bounded("x" * 50, 10, "telegram:1", "old")
    results.bounded("x" * 50, 10, "telegram:1", "young")
    assert results.bounded("short", 10, "telegram:1", "none") == "short"
    os.utime(folder / "old.txt", (0, 0))
    assert results.remove_old(7) == 1
    assert [file.name for file in folder.iterdir()] == ["young.txt"]
