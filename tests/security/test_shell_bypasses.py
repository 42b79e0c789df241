"""Commands that get round a guard: contained by a sandbox, else refused or asked about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nanobot_core import Allow, Ask, Deny, JsonObject, ToolDenied
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.sandbox import probe_sandbox
from nanobot_shell.settings import SandboxName
from nanobot_shell.view import View
from tests.security.corpora import commands

pytestmark = pytest.mark.anyio
CANARY = "canary-of-the-outside"
SANDBOXES: tuple[SandboxName, ...] = ("bwrap", "landlock")
ALL = {**commands.GROUPS, "reading": commands.READING}
PATH = "/usr/local/bin:/usr/bin:/bin"


class World:
    """A workspace with links that lead out of it, and what lies there."""

    def __init__(self, tmp_path: Path, mode: str, *, restricted: bool) -> None:
        self.root = tmp_path.resolve()
        self.box = self.root / "outside" / "box"
        self.box.mkdir(parents=True)
        (self.box / "canary").write_text(CANARY)
        (self.root / "home").mkdir()
        self.context = FakePluginContext(
            tmp_path,
            settings={"sandbox": mode},
            plugin_id="shell",
            environment={"HOME": str(self.root / "home"), "LANG": "C.UTF-8", "PATH": PATH},
            restrict_to_workspace=restricted,
        )
        self.workspace = self.context.workspace
        (self.workspace / "sub").mkdir()
        (self.workspace / "a.txt").write_text("text\n")
        (self.workspace / "link").symlink_to(self.root / "outside")
        (self.workspace / "link-to-canary").symlink_to(self.box / "canary")

    def command(self, text: str) -> str:
        return text.replace("@OUT@", str(self.root / "outside"))

    @property
    def is_whole(self) -> bool:
        canary = self.box / "canary"
        return canary.exists() and canary.read_text() == CANARY

    async def decision(self, command: str) -> Allow | Ask | Deny:
        call = call_in(self.workspace, self.context.files)
        review = await ExecTool(self.context).review(call, {"command": command})
        return review.decision

    async def run(self, command: str) -> str:
        arguments: JsonObject = {"command": command, "timeout": 2}
        call = call_in(self.workspace, self.context.files)
        return output_text(await ExecTool(self.context).execute(call, arguments))


@pytest.fixture(scope="module")
def missing() -> dict[SandboxName, str]:
    """Say by sandbox why this machine does not have it; an empty text where it does."""
    view = View(Path("/nonexistent"))
    return {name: probe_sandbox(name, view, PATH).reason for name in SANDBOXES}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_number_of_cases(capsys: pytest.CaptureFixture[str]) -> None:
    deletions = sum(len(group) for group in commands.GROUPS.values())
    reading = len(commands.READING)
    with capsys.disabled():
        sys.stdout.write(
            f"\nshell bypasses: {deletions} of deletion, {reading} of reading, "
            f"{5 * (deletions + reading)} cases\n"
        )

    assert deletions > 350
    assert reading > 150


@pytest.mark.parametrize("group", ALL)
async def test_without_a_sandbox_what_is_confined_to_the_workspace_stays_there(
    tmp_path: Path, group: str
) -> None:
    world = World(tmp_path, "none", restricted=True)
    async with world.context:
        passed = [
            text for text in ALL[group] if await world.decision(world.command(text)) == Allow()
        ]

    assert passed == []


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("group", ALL)
async def test_without_a_sandbox_nothing_runs_that_the_owner_was_not_asked_about(
    tmp_path: Path, group: str, restricted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    world = World(tmp_path, "auto", restricted=restricted)
    async with world.context:
        decisions = [await world.decision(world.command(text)) for text in ALL[group]]

    assert Allow() not in decisions
    assert restricted is all(isinstance(each, Deny) for each in decisions)


async def _harm(tmp_path: Path, mode: SandboxName, texts: list[str]) -> list[str]:
    """Run what passes in the sandbox, and return what reached the outside."""
    harmful = []
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, mode, restricted=False)
        async with world.context:
            try:
                said = await world.run(world.command(text))
            except ToolDenied:
                said = ""
        if not world.is_whole or CANARY in said:
            harmful.append(text)
    return harmful


PORTIONS = 40


@pytest.mark.parametrize("mode", SANDBOXES)
@pytest.mark.parametrize("group", ALL)
async def test_what_passes_does_no_harm_in_the_sandbox(
    tmp_path: Path, group: str, mode: SandboxName, missing: dict[SandboxName, str]
) -> None:
    if missing[mode]:
        pytest.skip(missing[mode])

    assert await _harm(tmp_path, mode, list(ALL[group][::9])) == []


@pytest.mark.long
@pytest.mark.parametrize("mode", SANDBOXES)
@pytest.mark.parametrize("portion", range(PORTIONS))
async def test_nothing_that_passes_does_harm_in_the_sandbox(
    tmp_path: Path, portion: int, mode: SandboxName, missing: dict[SandboxName, str]
) -> None:
    if missing[mode]:
        pytest.skip(missing[mode])
    texts = [text for group in ALL.values() for text in group]

    assert await _harm(tmp_path, mode, texts[portion::PORTIONS]) == []
