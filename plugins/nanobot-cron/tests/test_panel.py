"""The panel ``jobs``, as a page or a terminal uses it."""

from __future__ import annotations

import pytest

from nanobot_core import NanobotError, Panel, PanelTable, PanelText, Requester
from nanobot_core.testing import FakePluginContext
from nanobot_cron.job import Every
from nanobot_cron.jobs import Jobs
from nanobot_cron.panel import MAX_SHOWN, jobs_panel
from nanobot_cron.plugin import CronPlugin


@pytest.fixture
def panel(ctx: FakePluginContext) -> Panel:
    (found,) = CronPlugin().contribute_panels(ctx)
    return found


async def add(ctx: FakePluginContext, chat: Requester, message: str = "Say hello") -> str:
    jobs = ctx.shared(Jobs)
    every = Every(seconds=3_600, anchor=ctx.clock.now())
    return (await jobs.add(message=message, schedule=every, requester=chat)).id


async def tables(panel: Panel, view: str = "") -> list[PanelTable]:
    return [part for part in (await panel.show(view)).parts if isinstance(part, PanelTable)]


async def test_jobs_of_people_and_plugins_are_listed_with_their_next_runs(
    panel: Panel, ctx: FakePluginContext, chat: Requester
) -> None:
    await add(ctx, chat)

    people, plugins = await tables(panel)

    assert [row.cells for row in people.rows] == [
        ("Say hello", "every hour", "Mon 23 Nov 11:30", "never", "chatty:c1")
    ]
    assert [row.cells[0] for row in plugins.rows] == ["remove old files"]
    assert plugins.rows[0].cells[-1] == "acme"


async def test_actions_do_what_the_command_does(
    panel: Panel, ctx: FakePluginContext, chat: Requester
) -> None:
    job_id = await add(ctx, chat)

    async def offered() -> list[str]:
        ((row, *_), _) = [table.rows for table in await tables(panel)]
        return [action.name for action in row.actions]

    assert await offered() == ["run", "disable", "remove"]
    assert await panel.act("disable", job_id) == f"Disabled job {job_id}."
    assert await offered() == ["run", "enable", "remove"]
    assert "next run" in await panel.act("enable", job_id)
    assert await panel.act("run", job_id) == f"Job {job_id} runs now."
    assert await offered() == ["disable", "remove"]
    assert await panel.act("remove", job_id) == f"Removed job {job_id} 'Say hello'."
    assert (await tables(panel))[0].rows == ()


async def test_a_job_of_a_plugin_cannot_be_removed(panel: Panel) -> None:
    (_, plugins) = await tables(panel)

    assert [action.name for action in plugins.rows[0].actions] == ["run", "disable"]
    with pytest.raises(NanobotError, match="managed by plugin 'acme'"):
        await panel.act("remove", "tidy")


async def test_what_harms_is_asked_first(
    panel: Panel, ctx: FakePluginContext, chat: Requester
) -> None:
    view = await panel.show(await add(ctx, chat))

    asked = {action.name: (bool(action.question), action.danger) for action in view.actions}
    assert asked == {"run": (True, False), "disable": (False, False), "remove": (True, True)}


async def test_a_view_shows_task_next_runs_and_history(
    panel: Panel, ctx: FakePluginContext, chat: Requester
) -> None:
    view = await panel.show(await add(ctx, chat, "Say hello\nand <b>smile</b>"))
    texts = {part.title: part.text for part in view.parts if isinstance(part, PanelText)}

    assert texts["Task"] == "Say hello\nand <b>smile</b>"
    assert texts["Next runs"].startswith("Mon 23 Nov 11:30, Mon 23 Nov 12:30")
    assert view.links[0].view == ""


async def test_the_history_shows_the_run_that_was_started(
    ctx: FakePluginContext, panel: Panel
) -> None:
    ctx.gateway = None  # then the run has ended when the call returns
    await panel.act("run", "tidy")

    (history,) = await tables(panel, "tidy")

    assert [row.cells[1:] for row in history.rows] == [("ok", "0.0", "removed 3 files")]


@pytest.mark.parametrize("name", ["", "explode", "add"])
async def test_an_unknown_action_changes_nothing(panel: Panel, name: str) -> None:
    with pytest.raises(NanobotError, match="no action"):
        await panel.act(name, "tidy")

    assert "run" in [action.name for action in (await panel.show("tidy")).actions]
    assert "disable" in [action.name for action in (await panel.show("tidy")).actions]


async def test_an_unknown_job_is_an_error(panel: Panel) -> None:
    with pytest.raises(NanobotError, match="no job 'x'"):
        await panel.show("x")
    with pytest.raises(NanobotError, match="no job 'x'"):
        await panel.act("disable", "x")


async def test_a_table_is_bounded_and_says_so(
    ctx: FakePluginContext, panel: Panel, chat: Requester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanobot_cron.panel.MAX_SHOWN", 1)
    for number in range(2):
        await add(ctx, chat, f"Task {number}")

    view = await panel.show("")

    assert MAX_SHOWN > 1
    assert len((await tables(panel))[0].rows) == 1
    assert any(isinstance(part, PanelText) and "1 more" in part.text for part in view.parts)


def test_the_panel_is_named_for_a_menu(ctx: FakePluginContext) -> None:
    assert (jobs_panel(ctx).id, jobs_panel(ctx).title) == ("jobs", "Jobs")
