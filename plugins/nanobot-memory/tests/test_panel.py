"""The panel ``memory``, as a page or a terminal uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core import NanobotError, Panel, PanelDiff, PanelTable, PanelText
from nanobot_core.testing import FakePluginContext
from nanobot_memory.batch import dream_lock
from nanobot_memory.files import Memories
from nanobot_memory.plugin import contribute_panels
from nanobot_memory.versions import keep_edits, versions_of

GUEST = "sender/telegram:42"


@pytest.fixture
def context(tmp_path: Path) -> FakePluginContext:
    """A context with two versions of ``USER.md`` and the memory of a guest."""
    context = FakePluginContext(tmp_path)
    memories = context.shared(Memories)
    for text in ("- Name: Anna\n", "- Name: Anna\n- Likes <b>tea</b>\n"):
        memories.files().write("USER.md", text)
        keep_edits(memories.files(), context.clock.now())
    memories.files(GUEST).write("MEMORY.md", "- Plays chess.\n")
    return context


@pytest.fixture
def panel(context: FakePluginContext) -> Panel:
    (found,) = contribute_panels(context)
    return found


async def tables(panel: Panel, view: str = "") -> dict[str, PanelTable]:
    parts = (await panel.show(view)).parts
    return {part.title: part for part in parts if isinstance(part, PanelTable)}


async def test_files_lead_to_their_text(panel: Panel) -> None:
    rows = (await tables(panel))["Files"].rows

    (link,) = next(row.links for row in rows if row.cells[0] == "USER.md")
    (part,) = (await panel.show(link.view)).parts

    assert {row.cells[0] for row in rows} == {"SOUL.md", "USER.md", "MEMORY.md"}
    assert isinstance(part, PanelText)
    assert part.text == "- Name: Anna\n- Likes <b>tea</b>\n"
    assert part.preformatted


async def test_a_change_is_shown_as_a_difference_and_reverted(
    panel: Panel, context: FakePluginContext
) -> None:
    (newest, _) = (await tables(panel))["Changes"].rows
    view = await panel.show(newest.links[0].view)

    (diff,) = (part for part in view.parts if isinstance(part, PanelDiff))
    (action,) = view.actions
    assert "+- Likes <b>tea</b>" in diff.text
    assert action == newest.actions[0]
    assert action.question

    assert "Reverted" in await panel.act(action.name, action.subject)
    assert context.shared(Memories).files().read("USER.md") == "- Name: Anna\n"
    assert len((await tables(panel))["Changes"].rows) == 3


async def test_a_revert_that_is_refused_is_an_error_and_changes_nothing(
    panel: Panel, context: FakePluginContext
) -> None:
    files = context.shared(Memories).files()
    newest = versions_of(files, 1)[0].id
    files.write("USER.md", "- Name: Anna\n- Likes coffee\n")

    with pytest.raises(NanobotError, match="nothing was reverted"):
        await panel.act("restore", f"{newest} {files.scope}")
    with dream_lock(files), pytest.raises(NanobotError, match="nothing was reverted"):
        await panel.act("restore", f"{newest} {files.scope}")

    assert files.read("USER.md") == "- Name: Anna\n- Likes coffee\n"


async def test_memories_of_others_are_linked_and_separate(panel: Panel) -> None:
    (link,) = (await panel.show("")).links

    shown = await tables(panel, link.view)

    assert link.label == GUEST
    assert [row.cells[0] for row in shown["Files"].rows] == ["MEMORY.md"]
    assert shown["Changes"].rows == ()


@pytest.mark.parametrize(
    "view",
    [
        "x",
        "memory sender/x:1",
        "file ../../etc/passwd owner",
        "file unknown.md",
        f"file USER.md {GUEST}",
        "version owner",
        "version 0000000 owner",
    ],
)
async def test_an_unknown_view_is_an_error(panel: Panel, view: str) -> None:
    with pytest.raises(NanobotError):
        await panel.show(view)


async def test_a_version_of_another_memory_is_not_shown(
    panel: Panel, context: FakePluginContext
) -> None:
    newest = versions_of(context.shared(Memories).files(), 1)[0].id

    with pytest.raises(NanobotError, match="another memory"):
        await panel.show(f"version {newest} {GUEST}")
    with pytest.raises(NanobotError, match="another memory"):
        await panel.act("restore", f"{newest} {GUEST}")


@pytest.mark.parametrize(("name", "subject"), [("drop", "0000000 owner"), ("restore", " owner")])
async def test_an_unknown_action_is_an_error(panel: Panel, name: str, subject: str) -> None:
    with pytest.raises(NanobotError, match="no action"):
        await panel.act(name, subject)


async def test_a_link_in_place_of_a_file_is_named_and_not_followed(
    panel: Panel, context: FakePluginContext, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("4711")
    (context.workspace / "memory" / "MEMORY.md").symlink_to(secret)

    with pytest.raises(NanobotError, match=r"MEMORY\.md"):
        await panel.show("")
