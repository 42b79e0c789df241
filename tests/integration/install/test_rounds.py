"""Wheels of the scaffold come, change and go in a busy gateway, and nothing of them stays."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot_core.app.client import ControlClient
from nanobot_core.testing import OpenAIServer, ScriptedModel, StandIn
from nanobot_core.testing.gateway import until
from nanobot_core.testing.playing import tool_call, write_config
from nanobot_core.testing.stand_in import answers, load_stand_in
from tests.crowd.chat import Chat, chats_of
from tests.environments import build_wheel
from tests.integration.install.packages import Bench, make_base
from tests.stand_ins import installed_stand_ins

pytestmark = pytest.mark.anyio
NEEDED = ("files", "message", "openai", "shell")
for _name in ("hatchling", "nanobot_devkit", *(f"nanobot_{each}" for each in NEEDED)):
    if find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)
# The others take seconds to notice that a message has arrived.
FOUND = [kind for kind in installed_stand_ins() if kind.abilities.resends]
if not FOUND:
    pytest.skip("no channel is installed", allow_module_level=True)

LIMIT_S = 60.0
MESSAGES_A_SECOND = 6  # of all chats together: more than this, two processors cannot answer
MOST_GROWTH_MB = 30.0
KEPT_MB = 0.0015  # of each message in the history of a chat, which is kept for the next turns
REPORT = "made up by nanobot-weather"
VERSIONS = ("0.1.0", "0.2.0")


@dataclass(frozen=True)
class Wheels:
    """What an author has written with the scaffold.

    Attributes:
        weather: wheels of the tool, by version.
        chirp: wheels of the channel, by version.
        service: the stand-in of the service of the channel, from its tests.
    """

    weather: dict[str, Path]
    chirp: dict[str, Path]
    service: type[StandIn]


def write_wheels(folder: Path) -> Wheels:
    """Do what the tutorial says, for two versions of each."""
    built: dict[str, dict[str, Path]] = {}
    for name, kind in (("weather", "tool"), ("chirp", "channel")):
        command = [sys.executable, "-m", "nanobot_core", "plugins", "new", name, "--kind", kind]
        subprocess.run([*command, "--path", str(folder)], check=True, capture_output=True)
        project = folder / f"nanobot-{name}"
        built[name] = {}
        for version in VERSIONS:
            text = (project / "pyproject.toml").read_text()
            (project / "pyproject.toml").write_text(_with_version(text, version))
            built[name][version] = build_wheel(project, folder / name / version)
    service = load_stand_in(folder / "nanobot-chirp" / "tests" / "local_chirp.py")
    return Wheels(weather=built["weather"], chirp=built["chirp"], service=service)


def _with_version(text: str, version: str) -> str:
    lines = text.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("version ="))
    return "\n".join([*lines[:place], f'version = "{version}"', *lines[place + 1 :]]) + "\n"


@dataclass
class Town:
    """A gateway in an environment of its own, and the people who write to it.

    Attributes:
        chats: chats in which someone writes all the time.
        numbers: of what they write.
    """

    bench: Bench
    wheels: Wheels
    service: StandIn
    chats: Sequence[Chat]
    pid: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def nanobot(self, *arguments: str) -> str:
        done = await asyncio.to_thread(self.bench.nanobot, *arguments)
        return done.stdout + done.stderr

    async def control(self, request: str) -> Any:  # noqa: ANN401 - JSON
        return await ControlClient(self.bench.home / "gateway").call(request)

    async def channels(self) -> dict[str, tuple[str, object]]:
        """Return the state of each channel, and since when it has it."""
        rows = (await self.control("status"))["running"]
        return {row["name"]: (row["state"], row["since"]) for row in rows}

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Let someone write in each chat while the block runs."""
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(self._write(chat)) for chat in self.chats]
            yield
            for task in writing:
                task.cancel()

    async def _write(self, chat: Chat) -> None:
        while True:
            async with chat.in_order:
                await chat.say(next(self.numbers))
            await asyncio.sleep(len(self.chats) / MESSAGES_A_SECOND)

    async def ask_tool(self) -> str:
        """Let Anna ask for the weather, and return what she reads."""
        chat = self.chats[0]
        found: list[str] = []

        def is_answered() -> bool:
            found[:] = [text for text in chat.texts()[before:] if "It gave:" in text]
            return bool(found)

        # The model answers the last message only, so that no other may join this turn.
        async with chat.in_order:
            await until(chat.is_settled, LIMIT_S)
            before = len(chat.texts())
            await chat.write("how is the weather?")
            await until(is_answered, LIMIT_S)
        return found[0]

    async def ask_channel(self) -> None:
        """Let someone write in the new channel, and wait for the answer."""
        number = next(self.numbers)
        await self.service.say(f"number {number}")
        chat, wanted = self.service.private(self.service.anna), f"You said: number {number}"
        await until(
            lambda: any(wanted in shown.text for shown in answers(self.service, chat)), LIMIT_S
        )

    async def play_round(self) -> None:
        """Add both, use them, upgrade them, use them, disable one, and remove both."""
        for version in VERSIONS:
            files = (self.wheels.weather[version], self.wheels.chirp[version])
            for file in files:
                await self.nanobot("plugins", "add", str(file), "--yes")
            assert REPORT in await self.ask_tool()
            await self.ask_channel()
            reports = {each["id"]: each for each in await self.control("plugins")}
            assert {reports[each]["version"] for each in ("weather", "chirp")} == {version}
        await self.nanobot("plugins", "disable", "weather")
        assert "there is no tool" in await self.ask_tool()
        await self.nanobot("plugins", "remove", "weather", "--yes")
        await self.nanobot("plugins", "remove", "chirp", "--yes")
        assert not {"weather", "chirp"} & {each["id"] for each in await self.control("plugins")}

    def belongings(self) -> tuple[int, int]:
        """Return the numbers of threads and open files of the gateway."""
        process = Path(f"/proc/{self.pid}")
        return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))

    def resident_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


@asynccontextmanager
async def a_town(tmp_path: Path, kinds: Sequence[type[StandIn]]) -> AsyncIterator[Town]:
    names = ["nanobot-core[chat,http]"]
    names += [f"nanobot-{each}" for each in (*NEEDED, *(kind.name for kind in kinds))]
    names += [f"nanobot-{each}" for kind in kinds for each in kind.plugins]
    bench = Bench.create(tmp_path, make_base(tmp_path / "base", *names))
    wheels = await asyncio.to_thread(write_wheels, tmp_path)
    script = ScriptedModel({"how is the weather?": tool_call("weather", '{"city": "Bonn"}')})
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(kind()) for kind in kinds]
        model = await stack.enter_async_context(OpenAIServer(default=script))
        service = await stack.enter_async_context(wheels.service())
        write_config(bench.home, running, model.url, bert_may_write=True)
        config = yaml.safe_load(bench.config.read_text())
        section = {**service.section(), "allow_from": [service.anna.id]}
        config["channels"][service.name] = section
        bench.config.write_text(yaml.safe_dump(config))
        process = await asyncio.create_subprocess_exec(
            *(str(bench.python), "-P", "-m", "nanobot_core", "gateway"),
            env=bench.variables,
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        chats = chats_of(running, bench.home)
        town = Town(bench, wheels, service, chats, process.pid)
        await until(ControlClient(bench.home / "gateway").folder.joinpath("control.sock").exists)
        missing = {kind.name for kind in kinds}
        async with asyncio.timeout(LIMIT_S):
            while missing:
                states = await town.channels()
                missing -= {name for name, (state, _) in states.items() if state == "running"}
                await asyncio.sleep(0.1)
        number = next(town.numbers)
        for chat in chats:
            await chat.say(number)
        await until(lambda: all(chat.is_settled() for chat in chats), LIMIT_S)
        yield town


async def play(tmp_path: Path, kinds: Sequence[type[StandIn]], rounds: int, warm_up: int) -> None:
    """Play rounds while chats are busy, and compare what the gateway holds with what it held.

    Args:
        warm_up: rounds before the comparison begins.
    """
    async with a_town(tmp_path, kinds) as town:
        channels = await town.channels()
        async with town.busy():
            for _ in range(warm_up):
                await town.play_round()
        await until(lambda: all(chat.is_settled() for chat in town.chats), LIMIT_S)
        held, before_mb = town.belongings(), town.resident_mb()
        said_before = sum(len(chat.said) for chat in town.chats)
        async with town.busy():
            for _ in range(rounds):
                await town.play_round()
        await until(lambda: all(chat.is_settled() for chat in town.chats), LIMIT_S)
        # Connections that are open for a moment count too.
        await until(
            lambda: all(now <= then for now, then in zip(town.belongings(), held, strict=True)),
            LIMIT_S,
        )
        grown_mb = town.resident_mb() - before_mb
        said = sum(len(chat.said) for chat in town.chats)
        rounds += warm_up
        sys.stdout.write(
            f"{len(town.chats)} chats, {said} messages, {rounds} rounds, {grown_mb:+.1f} MB\n"
        )
        findings = [finding for chat in town.chats for finding in chat.findings(0)]
        assert findings == []
        assert [chat.doubled() for chat in town.chats] == [[] for _ in town.chats]
        assert await town.channels() == channels
        said_and_answered = 2 * (said - said_before)
        assert grown_mb < MOST_GROWTH_MB + KEPT_MB * said_and_answered


@pytest.mark.promise(20)
@pytest.mark.timeout(240)
async def test_a_tool_and_a_channel_come_change_and_go_in_a_busy_gateway(tmp_path: Path) -> None:
    await play(tmp_path, FOUND[:2], rounds=0, warm_up=1)


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_a_tool_and_a_channel_come_change_and_go_fifty_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in FOUND:  # a busy second must not end connections that have heartbeats
        if hasattr(kind, "beat_ms"):
            monkeypatch.setattr(kind, "beat_ms", 10_000)
    await play(tmp_path, FOUND, rounds=48, warm_up=2)
