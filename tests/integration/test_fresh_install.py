"""The README's way to a Telegram bot, gone in an environment that has nothing but pip.

As a program, ``python -m tests.integration.test_fresh_install [FOLDER]``, it prints what each step
said and how much was installed, and keeps the folder when one is named.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from nanobot_core.testing import ScriptedModel
from tests.gateways import REPOSITORY
from tests.local_telegram import LocalApi, bot_api, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(900)]
STEP_LIMIT_S = 600.0


@dataclass(frozen=True)
class Section:
    """A section of the README.

    Attributes:
        commands: its shell commands, in order.
        settings: its YAML.
    """

    commands: list[str]
    settings: str

    @classmethod
    def read(cls, heading: str) -> Section:
        text = (REPOSITORY / "README.md").read_text("utf-8")
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
        (settings,) = [body for kind, body in blocks if kind == "yaml"]
        return cls([body.strip() for kind, body in blocks if kind == "sh"], settings)


class Machine:
    """A user's account with an environment of its own.

    Attributes:
        folder: home folder and environment.
        home: nanobot's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home: Path = folder / ".nanobot"
        self._bin = folder / "env" / "bin"

    def create(self) -> None:
        venv.create(self.folder / "env", with_pip=True, symlinks=True)

    async def run(self, command: str) -> str:
        """Do what the user types, and return what is printed."""
        async with self.started(command) as process, asyncio.timeout(STEP_LIMIT_S):
            printed = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{command}\n{printed}"
        _tell(f"$ {command}\n{printed[-2_000:]}")
        return printed

    @asynccontextmanager
    async def started(self, command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a command, and end it afterwards."""
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", f"exec {command}"),
            cwd=self.folder,
            env={
                "HOME": str(self.folder),
                "PATH": f"{self._bin}:/usr/bin:/bin",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
                await asyncio.wait_for(process.communicate(), 60)

    async def size(self) -> tuple[int, float]:
        """Return how many distributions are installed besides pip and setuptools, and their MB."""
        count = len((await self.run("pip list --format=freeze")).splitlines())
        (site,) = (self.folder / "env" / "lib").glob("python*/site-packages")
        # Compiled files are made at the first start and differ with it.
        total = sum(
            file.stat().st_size
            for file in site.rglob("*")
            if file.is_file()
            and "__pycache__" not in file.parts
            and not file.relative_to(site).parts[0].startswith(("pip", "setuptools", "_distutils"))
        )
        return count - len(list(site.glob("pip-*")) + list(site.glob("setuptools-*"))), total / 1e6


async def build_wheels(sources: list[str], target: Path) -> list[Path]:
    """Build a wheel of each folder of the repository."""
    for source in sources:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(target), str(REPOSITORY / source)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed = (await process.communicate())[0].decode()
        assert process.returncode == 0, printed
    return sorted(target.glob("*.whl"))


async def go_the_way(folder: Path) -> str:
    """Do what the README says and return what the person sees in Telegram."""
    install, onboard, start, approve = _section().commands
    machine, sources = Machine(folder), install.removeprefix("python3 -m pip install ").split()
    await asyncio.to_thread(machine.create)
    wheels = await build_wheels(sources, folder / "wheels")
    await machine.run(f"python3 -m pip install {' '.join(map(str, wheels))}")
    count, megabytes = await machine.size()
    _tell(f"{count} distributions, {megabytes:.1f} MB")
    await machine.run(onboard)
    async with serving(ScriptedModel()) as (api, model):
        with (machine.home / "config.yaml").open("a") as file:
            file.write(_on_this_machine(_section().settings, api, model.url))
        await machine.run("nanobot config check")
        async with machine.started(start) as gateway:
            await _ready(gateway)
            api.say("Hello")
            await _shown(api, "approve")
            (code,) = re.findall(r"approve ([A-Z2-9]{8})", api.shown()[-1].text)
            await machine.run(approve.replace("CODE", code))
            api.say("Hello again")
            await _shown(api, "You said: Hello again")
            conversation: str = api.conversation()
        _tell(conversation)
        return conversation.replace(code, "CODE")


def _section() -> Section:
    return Section.read("A Telegram bot")


def _on_this_machine(settings: str, api: LocalApi, model_url: str) -> str:
    """Put the local servers' addresses into the README's settings; everything else stays."""
    settings, tokens = re.subn(r'token: ".*"', f'token: "{bot_api.TOKEN}"', settings)
    settings = settings.replace("  telegram:\n", f"  telegram:\n    api_base: {api.url}\n")
    settings = settings.replace("  openai:\n", f"  openai:\n    api_base: {model_url}\n")
    assert (tokens, settings.count("api_base")) == (1, 2)
    return f"{settings}gateway: {{port: 0}}\n"


async def _ready(gateway: asyncio.subprocess.Process) -> None:
    assert gateway.stdout is not None
    printed = ""
    async with asyncio.timeout(60):
        while "gateway ready" not in printed:
            line = await gateway.stdout.readline()
            assert line, printed
            printed += line.decode()
    _tell(f"$ nanobot gateway\n{printed}")


async def _shown(api: LocalApi, text: str) -> None:
    await until(api, lambda: any(text in shown.text for shown in api.shown()))


def _tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the program is run for


@pytest.mark.skipif(find_spec("build") is None, reason="the package build is not installed")
@pytest.mark.skipif(
    not (REPOSITORY / "plugins" / "nanobot-openai").exists(),
    reason="nanobot-openai is not in this tree",
)
async def test_the_way_of_the_readme_leads_to_a_bot_that_answers(tmp_path: Path) -> None:
    assert await go_the_way(tmp_path) == (
        "Anna: Hello\n"
        "Nano: I do not know you yet. If you know my owner, have them run"
        " nanobot pairing approve CODE within an hour.\n"
        "   <code> nanobot pairing approve CODE\n"
        "Anna: Hello again\n"
        "Nano: You said: Hello again"
    )


def main() -> None:
    """Go the way in a folder."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1]).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(go_the_way(folder))
        return
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(go_the_way(Path(temporary)))


if __name__ == "__main__":
    main()
