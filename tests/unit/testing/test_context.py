from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from nanobot_core import LazyTool, PluginContext, PluginRejected
from nanobot_core.testing import FakeClock, FakePluginContext


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = 3


@pytest.mark.promise(32)
def test_it_is_a_plugin_context_on_the_temporary_folder(tmp_path: Path) -> None:
    fake = FakePluginContext(tmp_path, plugin_id="demo", environment={"A": "1", "B": "2"})
    context: PluginContext = fake

    assert (context.id, context.version) == ("demo", "0.0.0")
    assert context.workspace.is_dir()
    assert context.data_dir.is_dir()
    assert tmp_path.resolve() in context.workspace.parents
    assert tmp_path.resolve() in context.data_dir.parents
    assert isinstance(context.clock, FakeClock)
    assert not context.restrict_to_workspace
    assert context.environment(["A", "C"]) == {"A": "1"}
    context.tools.replace([LazyTool("a", "x:y")])
    assert fake.tools.published == [(LazyTool("a", "x:y"),)]


def test_log_records_carry_the_plugins_id(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path, plugin_id="demo")
    records: list[object] = []
    sink = context.logger.add(lambda message: records.append(message.record["extra"]["plugin"]))
    try:
        context.logger.info("hello")
    finally:
        context.logger.remove(sink)

    assert records == ["demo"]


def test_settings_are_defaults_a_section_or_an_instance(tmp_path: Path) -> None:
    class Other(BaseModel):
        pass

    assert FakePluginContext(tmp_path).settings(Limits) == Limits()
    assert FakePluginContext(tmp_path, settings={"limit": 5}).settings(Limits).limit == 5
    given = FakePluginContext(tmp_path, settings=Limits(limit=7))
    assert given.settings(Limits).limit == 7
    with pytest.raises(PluginRejected, match="settings are a Limits, wanted Other"):
        given.settings(Other)


@pytest.mark.anyio
async def test_leaving_it_cancels_what_was_spawned_and_closes_in_reverse(tmp_path: Path) -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("work")

    async def close_later() -> None:
        await asyncio.sleep(0)
        closed.append("second")

    async with asyncio.timeout(5), FakePluginContext(tmp_path) as context:
        context.on_dispose(lambda: closed.append("first"))
        context.on_dispose(close_later)
        context.spawn(work(), name="work")
        await asyncio.sleep(0)

    assert closed == ["work", "second", "first"]


@pytest.mark.anyio
async def test_closers_run_although_one_of_them_fails(tmp_path: Path) -> None:
    closed: list[str] = []

    async def fail() -> None:
        raise OSError("busy")

    context = await FakePluginContext(tmp_path).__aenter__()
    context.on_dispose(lambda: closed.append("first"))
    context.on_dispose(fail)
    with pytest.raises(OSError, match="busy"):
        await context.__aexit__(None, None, None)

    assert closed == ["first"]


@pytest.mark.anyio
async def test_a_failure_of_spawned_work_is_not_overlooked(tmp_path: Path) -> None:
    async def fail() -> None:
        raise OSError

    async def use() -> None:
        async with asyncio.timeout(5), FakePluginContext(tmp_path) as context:
            context.spawn(fail(), name="fail")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await use()

    assert raised.group_contains(OSError)


@pytest.mark.anyio
async def test_an_error_of_the_test_itself_comes_out_as_it_is(tmp_path: Path) -> None:
    async def use() -> None:
        async with FakePluginContext(tmp_path):
            raise KeyError

    with pytest.raises(KeyError):
        await use()


@pytest.mark.anyio
async def test_spawning_before_it_is_entered_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="enter the context first"):
        FakePluginContext(tmp_path).spawn(work(), name="work")
