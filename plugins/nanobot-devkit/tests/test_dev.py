"""`plugins dev`: a plugin is loaded from its source, and again on each save."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import ApprovalRequested, Nanobot, ToolCall, TurnInfo
from nanobot_devkit.dev import TerminalApproval
from nanobot_devkit.faults import place_of_import
from nanobot_devkit.overlay import Source, SourceUnusable, find_source, write_overlay
from nanobot_devkit.reloading import Reloader, watch
from nanobot_devkit.scaffold import Kind

LIMIT_S = 90.0
PROJECT = """
[project]
name = "acme-moon"
version = "1.0"
dependencies = ["nanobot-core"]
[project.entry-points.nanobot]
moon = "acme_moon"
[project.entry-points."nanobot.manifest"]
moon = "acme_moon"
"""
CODE = """
from nanobot_core import on
PHASE = "new"

@on.start
def start(ctx):
    (ctx.data_dir.parent / "phase").write_text(PHASE)

@on.before_turn
def listen(event): ...
"""


@pytest.fixture
def moon(tmp_path: Path) -> Source:
    """The source of a plugin that writes its phase into a file when it starts."""
    package = tmp_path / "acme-moon" / "src" / "acme_moon"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CODE, "utf-8")
    (package / "nanobot-plugin.json").write_text("{}", "utf-8")  # never up to date
    (tmp_path / "acme-moon" / "pyproject.toml").write_text(PROJECT, "utf-8")
    return find_source(tmp_path / "acme-moon")


def change(source: Source, old: str, new: str) -> list[Path]:
    file = source.code / "__init__.py"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    return [file]


class Development:
    """A reloader, and what it says."""

    def __init__(self, bot: Nanobot, source: Source, paths: Sequence[str]) -> None:
        self.bot = bot
        self.told: list[str] = []
        self.reloader = Reloader(bot, source, paths, self.told.append)

    def phase(self) -> str:
        return (self.bot.loaded.home / "plugins" / "phase").read_text("utf-8")

    def last(self) -> str:
        return self.told[-1]


@pytest.fixture
async def development(
    moon: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Development]:
    paths = write_overlay(moon, tmp_path / "overlay")
    monkeypatch.setattr(sys, "path", [sys.path[0], *paths, *sys.path[1:]])
    async with Nanobot.from_config(home=tmp_path / "home") as bot:
        made = Development(bot, moon, paths)
        sink = logger.add(made.reloader.show, level="DEBUG", format="{message}")
        await made.reloader.start()
        yield made
        logger.remove(sink)
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


@pytest.mark.anyio
async def test_changed_code_replaces_the_former_one(development: Development, moon: Source) -> None:
    assert development.phase() == "new"

    await development.reloader.reload(change(moon, '"new"', '"full"'))

    assert development.last() == "moon loaded again (__init__.py)"
    assert development.phase() == "full"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("PHASE = (", "__init__.py:3: '(' was never closed"),
        ("PHASE = undefined", "acme_moon/__init__.py:3"),
        ("import no_such_library", "acme_moon/__init__.py:3: module 'no_such_library' is not"),
        ("on.before_trun(None)", "acme_moon/__init__.py:3: "),
    ],
)
async def test_code_that_fails_is_reported_with_its_line_and_the_former_one_continues(
    development: Development, moon: Source, broken: str, expected: str
) -> None:
    await development.reloader.reload(change(moon, 'PHASE = "new"', broken))
    report = next(each for each in development.bot.plugins.reports() if each.id == "moon")
    said = development.last()
    await development.reloader.reload(change(moon, broken, 'PHASE = "half"'))

    assert said.startswith("moon not loaded (__init__.py), the former version continues: ")
    assert expected in said
    assert report.state == "degraded"
    assert development.phase() == "half"


@pytest.mark.anyio
async def test_a_start_that_fails_is_reported_with_its_line(
    development: Development, moon: Source
) -> None:
    await development.reloader.reload(change(moon, "def start(ctx):", "def start(ctx):\n    1 / 0"))

    assert "acme_moon/__init__.py:7: its start failed: ZeroDivisionError" in development.last()
    assert development.phase() == "new"


@pytest.mark.anyio
async def test_a_new_capability_of_the_author_is_named_and_not_asked_for(
    development: Development, moon: Source, tmp_path: Path
) -> None:
    addition = "@on.finalize_content\ndef finalize(event): return None\n\n@on.before_turn"

    await development.reloader.reload(change(moon, "@on.before_turn", addition))

    assert development.told[-2:] == [
        "moon: new since you last agreed: reads and changes answers",
        "moon loaded again (__init__.py)",
    ]
    assert not (tmp_path / "home" / "config.yaml").exists()


@pytest.mark.anyio
async def test_a_hook_that_raises_is_reported_with_its_line(
    development: Development, moon: Source
) -> None:
    await development.reloader.reload(change(moon, "(event): ...", "(event): raise KeyError(1)"))

    await development.bot.run("hello")

    assert "moon: acme_moon/__init__.py:10: KeyError: 1" in development.told


@pytest.mark.anyio
async def test_files_saved_one_after_the_other_are_one_change(moon: Source) -> None:
    seen: list[Sequence[Path]] = []
    called = asyncio.Event()

    async def note(changed: Sequence[Path]) -> None:
        seen.append(changed)
        called.set()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        watching = group.create_task(watch(moon, note))
        await asyncio.sleep(0.1)  # the first look
        (moon.code / "nanobot-plugin.json").write_text("[]", "utf-8")
        for name in ("one.py", "two.md"):
            (moon.code / name).write_text("", "utf-8")
        await called.wait()
        watching.cancel()

    assert [sorted(file.name for file in each) for each in seen] == [["one.py", "two.md"]]


class ScriptedTerminal:
    """Answers one question."""

    def __init__(self, answer: str | None) -> None:
        self.told: list[str] = []
        self._answer = answer

    def tell(self, line: str) -> None:
        self.told.append(line)

    async def ask(self, prompt: str) -> str | None:
        self.told.append(prompt)
        return self._answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "is_allowed"),
    [("yes", True), ("Y", True), ("", False), ("no", False), (None, False)],
)
async def test_the_author_is_asked_about_calls_that_need_approval(
    answer: str | None, is_allowed: bool
) -> None:
    terminal = ScriptedTerminal(answer)
    turn = TurnInfo(
        id="t", session_key="cli:dev", channel="cli", chat_id="c", sender_id="user", source="sdk"
    )
    asked = ApprovalRequested(
        turn=turn, id="1", call=ToolCall("c", "exec", {"command": "ls"}), question="Run it?"
    )

    ticket = await TerminalApproval(terminal).choose_approval(asked)

    assert ticket is not None
    assert ticket.allowed is is_allowed
    assert terminal.told[0] == "Run it?"
    assert '"command": "ls"' in terminal.told[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "has no pyproject.toml"),
        ("not toml", "cannot read"),
        ("a = 1", "has no table"),
        ("[project]\nname = 'x'", "names no plugins"),
        ("[project.entry-points.nanobot]\nx = 'absent'", "there is no module 'absent'"),
        ("[project.entry-points.nanobot]\nx = 'a'\ny = 'b'", "names 2 plugins"),
    ],
)
def test_a_folder_that_holds_no_plugin_is_refused(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text, "utf-8")

    with pytest.raises(SourceUnusable, match=expected):
        find_source(tmp_path)


def test_the_line_of_a_single_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "moon.py"
    file.write_text("\n\n1 / 0\n", "utf-8")

    assert place_of_import(str(file), [], file) == "moon.py:3"


class Screen:
    """What a program shows on a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""
        self._seen = 0

    def type(self, line: str) -> None:
        os.write(self._descriptor, line.encode())

    def wait_for(self, expected: str) -> None:
        """Wait until a text appears, behind what was seen before."""
        deadline_s = time.monotonic() + LIMIT_S / 2
        while (found := self.text.find(expected, self._seen)) < 0:
            ready, _, _ = select.select([self._descriptor], [], [], 0.5)
            if ready:
                self.text += os.read(self._descriptor, 65_536).decode(errors="replace")
            assert time.monotonic() < deadline_s, self.text
        self._seen = found + len(expected)


@contextmanager
def on_terminal(command: Sequence[str]) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Run a program on a terminal of its own."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Screen(ours), child
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@pytest.mark.skipif(find_spec("nanobot_offline") is None, reason="needs nanobot-offline")
@pytest.mark.timeout(2 * LIMIT_S)
def test_the_chat_continues_while_the_plugin_changes(
    write: Callable[[str, Kind], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write("weather", "tool")
    tool = project / "src/nanobot_weather/tool.py"
    monkeypatch.setenv("NANOBOT_HOME", str(tmp_path / "home"))
    command = (sys.executable, "-m", "nanobot_core", "plugins", "dev", str(project))

    with on_terminal(command) as (screen, child):
        screen.wait_for("weather runs")
        screen.type('weather {"city": "Bonn"}\r')
        screen.wait_for("made up by")
        screen.type('weather {"city": ')
        tool.write_text(tool.read_text("utf-8").replace("made up by", "invented by"), "utf-8")
        screen.wait_for("weather loaded again (tool.py)")
        screen.type('"Oslo"}\r')
        screen.wait_for("Oslo: 21 °C, invented by")
        tool.write_text(tool.read_text("utf-8").replace("return f", "return 1 / 0, f"), "utf-8")
        screen.wait_for("weather loaded again (tool.py)")
        screen.type('weather {"city": "Rome"}\r')
        screen.wait_for("nanobot_weather/tool.py:")
        screen.wait_for("ZeroDivisionError")
        screen.wait_for("different approach")
        screen.wait_for(">")
        screen.type("exit\r")
        assert child.wait(LIMIT_S / 2) == 0
