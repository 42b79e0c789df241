"""No credential of a channel is shown or stored, on the stand-ins of all installed channels."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.app.client import ControlClient
from nanobot_core.testing import GatewayProcess, OpenAIServer, Refusal, ScriptedModel, StandIn
from nanobot_core.testing.gateway import gateway_environment, until
from nanobot_core.testing.playing import write_config
from nanobot_core.testing.stand_in import answers
from tests.security.played_channel import PlayedChannel, hello, played
from tests.stand_ins import installed_stand_ins

pytestmark = pytest.mark.anyio
FOUND = installed_stand_ins()
ISSUED = re.compile(
    rb"canary-token|canary(\+|%2B)ticket|ticket=|sendBySession\?session=|/upload/|\btoken-\d"
)
"""Credentials that the local platforms issue: tokens, tickets, webhooks, addresses for uploads."""
LIMIT_S = 40.0
TOKEN_CACHES = frozenset({"reply-routes.json"})
"""Files of plugins whose purpose is to keep a credential; only the owner can read them."""
COMMANDS = (
    "channels status --json",
    "doctor --json",
    "config show",
    "deadletters list --json",
    "--debug channels login dingtalk",
)


@pytest.mark.parametrize("kind", FOUND, ids=[kind.name for kind in FOUND])
async def test_a_channel_shows_and_stores_no_credential(
    kind: type[StandIn], tmp_path: Path
) -> None:
    """Without what the gateway hides: in logs, errors with their causes, and files."""
    for number, why in enumerate((None, *kind.abilities.refusals)):
        async with played(kind, tmp_path / str(number)) as there:
            await trouble(there, why)
        secrets = set(credentials(there))
        assert secrets
        found = leaks("\n".join(there.shown).encode(), secrets)
        assert found == []
        for file in written(tmp_path / str(number)):
            is_private = file.stat().st_mode & 0o077 == 0
            found = [] if is_private else leaks(file.read_bytes(), secrets)
            assert found == [], file.name


async def trouble(there: PlayedChannel, why: Refusal | None) -> None:
    """Let everything happen that produces text."""
    stand_in, able = there.stand_in, there.stand_in.abilities
    await hello(there)
    document = there.ctx.workspace / "list.txt"
    document.write_text("milk\n")
    await there.send("Here you are", *([document] if able.files_out else []))
    if able.reports_blocking:
        stand_in.block(stand_in.private(stand_in.anna))
        await there.send("Are you there?")
        stand_in.block(stand_in.private(stand_in.anna), blocked=False)
    if why is not None:
        stand_in.refuse_credentials(why)
    await stand_in.hang_up()
    await login(there)
    await there.send("Are you there now?")
    await stand_in.come_back()
    await login(there)
    if why is not None:
        await there.send("And now?")


async def login(there: PlayedChannel) -> None:
    channel = there.build()
    try:
        async with asyncio.timeout(5):
            there.shown.append(await channel.login())
    except Exception as error:  # noqa: BLE001 - what it says is the question
        there.note(error)
    finally:
        await channel.stop()


def credentials(there: PlayedChannel) -> Iterator[str]:
    """Yield the secrets of the channel's section, and those that it conceals."""
    yield from section_secrets(there.stand_in)
    for concealed in there.ctx.concealed.values():
        yield from concealed


def leaks(content: bytes, secrets: set[str]) -> list[str]:
    found = [secret for secret in secrets if secret.encode() in content]
    return found + [match[0].decode() for match in ISSUED.finditer(content)]


def written(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def test_a_gateway_of_all_channels_shows_and_stores_no_credential(tmp_path: Path) -> None:
    for plugin in ("files", "message", "openai", "shell"):
        pytest.importorskip(f"nanobot_{plugin}")
    home = tmp_path / "home"
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(kind()) for kind in FOUND]
        model = await stack.enter_async_context(OpenAIServer(default=ScriptedModel()))
        write_config(home, running, model.url, logging={"level": "TRACE", "json": True})
        secrets = {secret for stand_in in running for secret in section_secrets(stand_in)}
        async with GatewayProcess(home, skips=True) as gateway:
            await reached(home, "running")
            for stand_in in running:
                await stand_in.say("hello")
                await stand_in.say("let me in", sender=stand_in.bert)
            await until(lambda: all(map(is_answered, running)))
            for stand_in in running:
                stand_in.refuse_credentials(stand_in.abilities.refusals[0])
                await stand_in.hang_up()
            gateway.skip_hour()
            for stand_in in running:
                await stand_in.come_back()
            await reached(home, "failed", gateway)
            shown = [await command(home, *words.split(" ")) for words in COMMANDS]
            shown.append((await gateway.reported()).encode())
    assert all(kind.name.encode() in shown[0] for kind in FOUND)
    for text in shown:
        assert leaks(text, secrets) == []
    for file in written(home):
        is_cache = file.name in TOKEN_CACHES and file.stat().st_mode & 0o077 == 0
        is_private = file.name == "config.yaml" or is_cache
        found = [] if is_private else leaks(file.read_bytes(), secrets)
        assert found == [], file.name


async def reached(home: Path, state: str, gateway: GatewayProcess | None = None) -> None:
    """Wait until all channels are in a state; with `gateway`, its pauses are skipped.

    A skip ends the attempts under way too: on a busy machine they need longer than the first
    pauses between skips.
    """
    states: dict[str, str] = {}
    pause_s = 0.1
    async with asyncio.timeout(LIMIT_S):
        while len(states) < len(FOUND) or set(states.values()) != {state}:
            pause_s *= 1.5
            await asyncio.sleep(pause_s)
            if gateway is not None:
                gateway.skip_hour()
            status: Any = await ControlClient(home / "gateway").call("status")
            rows = [row for row in status["running"] if row["kind"] == "channel"]
            states = {row["name"]: row["state"] for row in rows}


async def command(home: Path, *words: str) -> bytes:
    """Return all that a command prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot_core", *words),
        env=gateway_environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output


def is_answered(stand_in: StandIn) -> bool:
    chat = stand_in.private(stand_in.anna)
    return any("hello" in message.text for message in answers(stand_in, chat))


def section_secrets(stand_in: StandIn) -> Iterator[str]:
    """Yield the secrets of a channel's section."""
    plugin: Any = import_module(f"nanobot_{stand_in.name}.plugin")
    section = stand_in.section()
    for spec in plugin.contribute_channels(None):
        yield from (str(section[key]) for key in spec.secrets if section.get(key))
