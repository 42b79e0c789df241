"""Shell commands that get round a guard: each is refused, or does no harm in the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nanobot_core import Deny, JsonObject, ToolCall, ToolCallProposed, TurnInfo
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.plugin import ShellPlugin
from nanobot_shell.sandbox import probe_sandbox
from tests.security.corpora import commands

pytestmark = pytest.mark.anyio
CANARY = "canary-of-the-outside"
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
        self._plugin = ShellPlugin()
        self._plugin.start(self.context)

    def command(self, text: str) -> str:
        return text.replace("@OUT@", str(self.root / "outside"))

    @property
    def is_whole(self) -> bool:
        canary = self.box / "canary"
        return canary.exists() and canary.read_text() == CANARY

    async def refusal(self, command: str) -> str:
        call = ToolCall("c", "exec", {"command": command})
        turn = TurnInfo(
            id="t",
            session_key="cli:direct",
            channel="cli",
            chat_id="direct",
            sender_id="user",
            source="chat",
        )
        event = ToolCallProposed(turn=turn, call=call, origin="shell@0.1.0", read_only=False)
        decision = await self._plugin.authorize_tool_call(event)
        assert decision is None or isinstance(decision, Deny)
        return decision.reason if decision else ""

    async def run(self, command: str) -> str:
        arguments: JsonObject = {"command": command, "timeout": 2}
        tool = ExecTool(self.context)
        return output_text(await tool.execute(call_in(self.workspace), arguments))


@pytest.fixture(scope="module")
def sandbox_works(tmp_path_factory: pytest.TempPathFactory) -> bool:
    folder = tmp_path_factory.mktemp("probe")
    (folder / "home").mkdir()
    return probe_sandbox(folder, folder / "home", has_network=True, path=PATH).sandbox is not None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_number_of_cases(capsys: pytest.CaptureFixture[str]) -> None:
    deletions = sum(len(group) for group in commands.GROUPS.values())
    reading = len(commands.READING)
    with capsys.disabled():
        sys.stdout.write(
            f"\nshell bypasses: {deletions} of deletion, {reading} of reading, "
            f"{2 * (deletions + reading)} cases\n"
        )

    assert deletions > 350
    assert reading > 150


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("group", commands.GROUPS)
async def test_without_a_sandbox_every_bypass_is_refused(
    tmp_path: Path, group: str, restricted: bool
) -> None:
    world = World(tmp_path, "none", restricted=restricted)
    async with world.context:
        passed = [
            text
            for text in commands.GROUPS[group]
            if not await world.refusal(world.command(text))
            and (restricted or not _deletes_one_file(text))
        ]

    assert passed == []


async def test_without_a_sandbox_no_reading_of_the_outside_passes(tmp_path: Path) -> None:
    world = World(tmp_path, "none", restricted=True)
    async with world.context:
        passed = [text for text in commands.READING if not await world.refusal(world.command(text))]

    assert passed == []


def _deletes_one_file(text: str) -> bool:
    return text.startswith(tuple(commands.DELETES_ONE_FILE))


async def _harm(tmp_path: Path, texts: list[str]) -> list[str]:
    """Run what passes in the sandbox, and return what reached the outside."""
    harmful = []
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, "auto", restricted=False)
        async with world.context:
            command = world.command(text)
            said = "" if await world.refusal(command) else await world.run(command)
        if not world.is_whole or CANARY in said:
            harmful.append(text)
    return harmful


PORTIONS = 40


@pytest.mark.parametrize("group", [*commands.GROUPS, "reading"])
async def test_what_passes_does_no_harm_in_the_sandbox(
    tmp_path: Path, group: str, sandbox_works: bool
) -> None:
    if not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    texts = {**commands.GROUPS, "reading": commands.READING}[group]

    assert await _harm(tmp_path, list(texts[::9])) == []


@pytest.mark.long
@pytest.mark.parametrize("portion", range(PORTIONS))
async def test_nothing_that_passes_does_harm_in_the_sandbox(
    tmp_path: Path, portion: int, sandbox_works: bool
) -> None:
    if not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    texts = [*(text for group in commands.GROUPS.values() for text in group), *commands.READING]

    assert await _harm(tmp_path, texts[portion::PORTIONS]) == []
