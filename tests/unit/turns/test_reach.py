"""What the owner and guests may reach."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nanobot_core import PathGuard, ToolDenied, TurnInfo
from nanobot_core.agent.results import ResultFiles
from nanobot_core.config.loading import load_config
from nanobot_core.folder import Folder
from nanobot_core.messages import JsonValue
from nanobot_core.turns.reach import Reach

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path.resolve() / "home"
    (home / "workspace").mkdir(parents=True)
    return home


def reach(home: Path, **tools: JsonValue) -> Reach:
    (home / "key").write_text("canary")
    config = home / "config.yaml"
    section = {"token": "${file:../secret}"}
    (home.parent / "secret").write_text("canary")
    config.write_text(yaml.safe_dump({"tools": tools, "x": section}))
    loaded = load_config(config, home=home, environ={})
    return Reach(loaded, ResultFiles(Folder(loaded.workspace)))


def turn(sender: str = "7|ann", *, is_owner: bool = False, chat: str = "1") -> TurnInfo:
    return TurnInfo(
        id="t", session_key=f"chatty:{chat}", channel="chatty", chat_id=chat, sender_id=sender,
        source="chat", is_owner=is_owner,
    )  # fmt: skip


def closed(guard: PathGuard, path: object) -> None:
    for access in ("read", "write"):
        with pytest.raises(ToolDenied):
            guard.judge(access, str(path))


async def test_the_owner_works_in_the_workspace_and_is_asked_outside(home: Path) -> None:
    guard = await reach(home).guard_for(turn(is_owner=True))

    assert guard.workspace == home / "workspace"
    assert not guard.judge("write", "AGENTS.md").needs_approval
    assert guard.judge("read", "/etc/hosts").needs_approval


async def test_a_restricted_owner_is_refused_outside(home: Path) -> None:
    guard = await reach(home, restrict_to_workspace=True).guard_for(turn(is_owner=True))
    closed(guard, "/etc/hosts")


@pytest.mark.parametrize("is_owner", [True, False])
async def test_nanobots_folder_and_secret_files_are_closed_to_everyone(
    home: Path, is_owner: bool
) -> None:
    guard = await reach(home).guard_for(turn(is_owner=is_owner))

    for name in ("config.yaml", "gateway/pairing.json", "allowed.json", "plugins/x/y", "logs/a"):
        closed(guard, home / name)
    closed(guard, home.parent / "secret")


async def test_each_guest_has_a_folder_and_nothing_else(home: Path) -> None:
    made = reach(home)
    ann, bob = await made.guard_for(turn()), await made.guard_for(turn("8|ann"))

    assert ann.workspace != bob.workspace
    assert ann.workspace.is_dir()
    assert not ann.judge("write", "notes.txt").needs_approval
    for place in (bob.workspace, home / "workspace", "/etc/hosts", home / "workspace/sessions"):
        closed(ann, place)


async def test_a_guest_keeps_the_folder_when_the_name_changes(home: Path) -> None:
    made = reach(home)
    ann, renamed = await made.guard_for(turn("7|ann")), await made.guard_for(turn("7|owner"))
    assert ann.workspace == renamed.workspace


async def test_a_guest_reads_the_long_results_of_the_same_session_only(home: Path) -> None:
    made = reach(home)
    results = home / "workspace/.nanobot/tool-results"
    guard = await made.guard_for(turn())
    own, other = (ResultFiles(Folder(home / "workspace")).folder_of(f"chatty:{n}") for n in "12")

    assert own.parent == results
    assert not guard.judge("read", f"{own}/c.txt").needs_approval
    closed(guard, f"{other}/c.txt")


@pytest.mark.parametrize("files", ["own", "workspace"])
async def test_what_steers_the_agent_needs_approval_when_a_guest_writes_it(
    home: Path, files: str
) -> None:
    guard = await reach(home, guests={"files": files}).guard_for(turn())

    names = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "memory/M.md")
    for name in (*names, "skills/x/SKILL.md", ".agents/skills/x/SKILL.md"):
        assert guard.judge("write", str(home / "workspace" / name)).needs_approval, name


async def test_guests_may_have_the_workspace(home: Path) -> None:
    guard = await reach(home, guests={"files": "workspace"}).guard_for(turn())

    assert guard.workspace == home / "workspace"
    assert not guard.judge("write", "notes.txt").needs_approval
    closed(guard, "/etc/hosts")


async def test_a_link_in_place_of_the_guests_folder_is_not_followed(home: Path) -> None:
    (home.parent / "elsewhere").mkdir()
    (home / "workspace/guests").symlink_to(home.parent / "elsewhere")

    with pytest.raises(NotADirectoryError):
        await reach(home).guard_for(turn())
    assert list((home.parent / "elsewhere").iterdir()) == []
