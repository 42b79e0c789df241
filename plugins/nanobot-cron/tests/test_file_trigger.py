"""The trigger ``file``: each settled change is an event once, also across restarts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from nanobot_core import (
    JsonObject,
    PathGuard,
    Requester,
    ToolContext,
    ToolError,
    ToolFailed,
    TriggerEvent,
)
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_cron import snapshot
from nanobot_cron.file_trigger import POLL_S, FileTrigger
from nanobot_cron.job import On
from nanobot_cron.jobs import Jobs


def context(ctx: FakePluginContext, **facts: Any) -> ToolContext:
    given: dict[str, Any] = {"files": ctx.files, "is_owner": True} | facts
    return ToolContext(
        session_key="cli:1", turn_id="t", call_id="c", workspace=ctx.workspace, **given
    )


@dataclass
class Watch:
    """A job that waits for changes, and a clock that looks at them.

    Attributes:
        events: what started the job.
        accept: called before an event is stored; may fail like a full disk.
    """

    ctx: FakePluginContext
    options: JsonObject
    events: list[TriggerEvent] = field(default_factory=list)
    accept: Callable[[], None] = lambda: None
    job_id: str = "job1"

    async def fire(self, event: TriggerEvent) -> None:
        self.accept()
        self.events.append(event)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch from now on; the first look is over."""
        trigger = FileTrigger(self.ctx)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(trigger.watch(self.job_id, self.options, self.fire))
            await self.clock.wait_for_sleepers()
            yield
            task.cancel()

    @property
    def clock(self) -> FakeClock:
        clock = self.ctx.clock
        assert isinstance(clock, FakeClock)
        return clock

    async def look(self, times: int = 2) -> list[str]:
        """Let `times` looks pass and return the texts of new events."""
        before = len(self.events)
        for _ in range(times):
            await self.clock.advance(POLL_S)
            await self.clock.wait_for_sleepers()
        return [event.text for event in self.events[before:]]


async def make(ctx: FakePluginContext, **options: Any) -> Watch:
    return Watch(ctx, await FileTrigger(ctx).check(context(ctx), options))


async def test_created_changed_and_removed_files_are_one_event_each(ctx: FakePluginContext) -> None:
    old = ctx.workspace / "inbox" / "old.txt"
    old.write_text("old")
    watch = await make(ctx, path="inbox")
    async with watch.running():
        assert await watch.look() == []
        (ctx.workspace / "inbox" / "new.txt").write_text("new")
        (created,) = await watch.look(4)
        old.write_text("another content")
        (changed,) = await watch.look(4)
        old.unlink()
        (removed,) = await watch.look(4)

    assert "- created: new.txt" in created
    assert "- changed: old.txt" in changed
    assert "- removed: old.txt" in removed
    assert len({event.id for event in watch.events}) == 3


async def test_a_file_that_is_being_written_waits(ctx: FakePluginContext) -> None:
    watch = await make(ctx, path="inbox")
    file = ctx.workspace / "inbox" / "a.bin"
    async with watch.running():
        for size in range(1, 4):
            file.write_bytes(b"x" * size)
            assert await watch.look(1) == []
        (text,) = await watch.look(2)

    assert "created: a.bin" in text


async def test_changes_while_nothing_watches_are_found_later_and_once(
    ctx: FakePluginContext,
) -> None:
    watch = await make(ctx, path="inbox")
    (ctx.workspace / "inbox" / "before.txt").write_text("before the first look")
    async with watch.running():
        (first,) = await watch.look()
    (ctx.workspace / "inbox" / "between.txt").write_text("between two runs")
    async with watch.running():
        (second,) = await watch.look()
    async with watch.running():
        assert await watch.look() == []

    assert "before.txt" in first
    assert "between.txt" in second
    assert "before.txt" not in second


async def test_an_event_that_was_not_stored_is_fired_again_with_the_same_id(
    ctx: FakePluginContext,
) -> None:
    watch = await make(ctx, path="inbox")
    tried: list[TriggerEvent] = []

    async def fail(event: TriggerEvent) -> None:
        tried.append(event)
        raise OSError

    (ctx.workspace / "inbox" / "a.txt").write_text("a")
    task = asyncio.create_task(FileTrigger(ctx).watch("job1", watch.options, fail))
    await watch.clock.wait_for_sleepers()
    await watch.clock.advance(POLL_S)
    await asyncio.wait({task}, timeout=5)
    assert isinstance(task.exception(), OSError)
    (ctx.workspace / "inbox" / "b.txt").write_text("b")
    async with watch.running():
        await watch.look()

    assert [event.text for event in watch.events[:1]] == [tried[0].text]
    assert watch.events[0].id == tried[0].id
    assert "b.txt" in watch.events[1].text


async def test_one_file_is_watched_by_its_path_before_it_exists(ctx: FakePluginContext) -> None:
    watch = await make(ctx, path="report.csv", events=["created", "changed"])
    file = ctx.workspace / "report.csv"
    async with watch.running():
        file.write_text("1")
        created = await watch.look()
        file.unlink()
        removed = await watch.look()
        file.write_text("22")
        created += await watch.look()

    assert [text.count("created: report.csv") for text in created] == [1, 1]
    assert removed == []
    assert FileTrigger(ctx).describe(watch.options) == "`report.csv` is created or changed"


async def test_pattern_depth_links_and_hidden_files(ctx: FakePluginContext) -> None:
    folder = ctx.workspace / "inbox"
    (folder / "deep").mkdir()
    flat = await make(ctx, path="inbox", pattern="*.pdf")
    deep = await make(ctx, path="inbox", pattern="*.pdf", recursive=True)
    for name in ("a.pdf", "a.txt", ".a.pdf", "deep/b.pdf"):
        (folder / name).write_text(name)
    (folder / "link.pdf").symlink_to(folder / "a.txt")
    (folder / "loop").symlink_to(folder)
    named = {}
    for name, watch in (("flat", flat), ("deep", deep)):
        async with watch.running():
            (named[name],) = await watch.look()
        (ctx.data_dir / "watched").rename(ctx.data_dir / name)

    assert named["flat"].splitlines()[1:] == ["- created: a.pdf"]
    assert named["deep"].splitlines()[1:] == ["- created: a.pdf", "- created: deep/b.pdf"]
    assert FileTrigger(ctx).describe(deep.options) == (
        "a file `*.pdf` in `inbox` or a folder below it is created, changed or removed"
    )


async def test_a_folder_that_cannot_be_reached_removes_nothing(ctx: FakePluginContext) -> None:
    folder, away = ctx.workspace / "inbox", ctx.workspace / "away"
    (folder / "a.txt").write_text("a")
    watch = await make(ctx, path="inbox")
    async with watch.running():
        folder.rename(away)
        assert await watch.look() == []
        away.rename(folder)
        assert await watch.look() == []


async def test_a_folder_that_became_a_link_is_not_followed(ctx: FakePluginContext) -> None:
    watch = await make(ctx, path="inbox")
    (ctx.workspace / "inbox").rmdir()
    (ctx.workspace / "inbox").symlink_to("/etc")

    with pytest.raises(ToolFailed, match="cannot watch"):
        async with asyncio.timeout(5):
            await FileTrigger(ctx).watch("job1", watch.options, watch.fire)


async def test_a_folder_with_too_many_files_is_refused(
    ctx: FakePluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    for number in range(4):
        (ctx.workspace / "inbox" / f"{number}").touch()

    with pytest.raises(ToolFailed, match="more than 3 files"):
        await make(ctx, path="inbox")


async def test_many_changes_are_one_event_with_a_bounded_text(ctx: FakePluginContext) -> None:
    watch = await make(ctx, path="inbox")
    for number in range(60):
        (ctx.workspace / "inbox" / f"{number:02}").touch()
    async with watch.running():
        (text,) = await watch.look()

    assert text.endswith("- and 10 more")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"path": "missing/a.txt"}, "does not exist"),
        ({"path": "out", "pattern": "*.pdf"}, "folder 'out' does not exist; create it first"),
        ({"path": "a.txt", "pattern": "*"}, "not a folder"),
        ({"path": "pipe"}, "neither a regular file"),
        ({"path": "/proc/self/status"}, "cannot read"),
        ({"path": "../config.yaml"}, "cannot read"),
    ],
)
async def test_what_cannot_be_watched_is_refused_at_once(
    ctx: FakePluginContext, options: JsonObject, reason: str
) -> None:
    os.mkfifo(ctx.workspace / "pipe")
    (ctx.workspace / "a.txt").touch()
    with pytest.raises(ToolError, match=reason):
        await FileTrigger(ctx).check(context(ctx), options)


async def test_a_guest_watches_the_guests_own_folder_only(ctx: FakePluginContext) -> None:
    own = ctx.workspace / "guest"
    own.mkdir()
    guest = context(ctx, is_owner=False, files=PathGuard(own))

    assert (await FileTrigger(ctx).check(guest, {"path": "."}))["path"] == str(own)
    with pytest.raises(ToolError, match="outside"):
        await FileTrigger(ctx).check(guest, {"path": str(ctx.workspace / "inbox")})


async def test_damaged_knowledge_starts_with_the_files_at_creation(ctx: FakePluginContext) -> None:
    watch = await make(ctx, path="inbox")
    async with watch.running():
        (ctx.workspace / "inbox" / "a.txt").touch()
        await watch.look()
    (state,) = (ctx.data_dir / "watched").iterdir()
    state.write_text("{")
    async with watch.running():
        (again,) = await watch.look()

    assert "a.txt" in again


async def test_knowledge_of_removed_jobs_is_removed(ctx: FakePluginContext) -> None:
    async def count_after(job_id: str) -> int:
        watch = await make(ctx, path="inbox")
        watch.job_id = job_id
        async with watch.running():
            (ctx.workspace / "inbox" / job_id).touch()
            await watch.look()
        return len(list((ctx.data_dir / "watched").iterdir()))

    kept = await ctx.shared(Jobs).add(
        message="x", schedule=On(trigger="file", options={}), requester=Requester()
    )

    assert [await count_after(name) for name in ("job1", kept.id, "job2")] == [1, 1, 2]
