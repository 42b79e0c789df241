"""Gateways for tests: a platform that is played, and a gateway in this process or in another."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, Self
from uuid import uuid4

import yaml

from nanobot_core import GatewayAccess, Nanobot, PluginContext, on
from nanobot_core.app.client import ControlClient
from nanobot_core.app.lock import running_pid
from nanobot_core.app.runner import GatewayRunner
from nanobot_core.clock import Clock, SystemClock
from nanobot_core.config.loading import load_config
from nanobot_core.testing.gateway import (
    LIMIT_S,
    GatewayProcess,
    gateway_environment as environment,
    until,
)

REPOSITORY = Path(__file__).parents[1]
PLUGIN = REPOSITORY / "tests" / "strangers" / "chatty.py"
OWNER = "7"
Sent = dict[str, Any]


class GatewayKeeper:
    """A plugin that keeps the gateway it was lent."""

    def __init__(self) -> None:
        self._gateway: GatewayAccess | None = None

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self._gateway = ctx.gateway

    @property
    def gateway(self) -> GatewayAccess:
        assert self._gateway is not None, "register it in a running gateway"
        return self._gateway


class Platform:
    """What the channel ``chatty`` connects to.

    Attributes:
        path: its socket.
        sent: what the channel has delivered, in order.
        stored: keys of the messages that the gateway has taken, in order.
        takes: whether what is sent is confirmed.
    """

    def __init__(self) -> None:
        # Its address may hold 100 bytes, and folders of tests have long names.
        self._folder = tempfile.TemporaryDirectory(prefix="chatty-")
        self.path: Path = Path(self._folder.name) / "platform.sock"
        self.sent: list[Sent] = []
        self.stored: list[str] = []
        self.takes: bool = True
        self._changed = asyncio.Condition()
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        self._folder.cleanup()

    async def say(
        self,
        text: str,
        chat: str = "1",
        sender: str = OWNER,
        key: str | None = None,
        *,
        waits: bool = True,
    ) -> str:
        """Offer a message and wait until it is stored; return its key."""
        key = key or uuid4().hex
        async with self._changed:
            async with asyncio.timeout(LIMIT_S):
                await self._changed.wait_for(lambda: bool(self._writers))
        offered = {"text": text, "chat": chat, "sender": sender, "key": key}
        self._writers[-1].write(json.dumps(offered).encode() + b"\n")
        if waits:
            await self.until(lambda: key in self.stored)
        return key

    async def shows(self, text: str, chat: str = "1", limit_s: float = LIMIT_S) -> Sent:
        """Wait until a chat has got something with `text` in it, and return it."""

        def found() -> Sent | None:
            return next(
                (one for one in self.sent if one["chat"] == chat and text in one["text"]), None
            )

        try:
            await self.until(lambda: found() is not None, limit_s)
        except TimeoutError:
            raise AssertionError(f"waited for {text!r} in {chat}, saw {self.texts(chat)}") from None
        one = found()
        assert one is not None
        return one

    def texts(self, chat: str = "1") -> list[str]:
        return [one["text"] for one in self.sent if one["chat"] == chat]

    async def until(self, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        async with asyncio.timeout(limit_s), self._changed:
            await self._changed.wait_for(holds)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._changed:
            self._writers.append(writer)
            self._changed.notify_all()
        with suppress(ConnectionError):
            while line := await reader.readline():
                await self._take(json.loads(line), writer)
        self._writers.remove(writer)
        writer.close()

    async def _take(self, content: Sent, writer: asyncio.StreamWriter) -> None:
        async with self._changed:
            if "stored" in content:
                self.stored.append(content["stored"])
            elif self.takes:
                self.sent.append(content)
                writer.write(json.dumps({"taken": content["number"]}).encode() + b"\n")
            self._changed.notify_all()


def write_config(home: Path, platform: Platform | None = None, **sections: Any) -> Path:
    """Write the configuration of a gateway whose channel is `platform`'s.

    Args:
        home: its folder.
        platform: what the channel connects to.
        sections: further settings; ``plugins`` lists the ids and the files of more plugins.
    """
    copytree(_discovered(), home / "cache", dirs_exist_ok=True)
    plugins: list[str | Path] = sections.pop("plugins", [])
    files = [plugin for plugin in plugins if isinstance(plugin, Path)]
    names = [plugin.stem if isinstance(plugin, Path) else plugin for plugin in plugins]
    channel: dict[str, Any] = {"path": str(platform.path) if platform else "", "allow_from": ["*"]}
    channel |= {"enabled": platform is not None, "rate_limit": 100_000}
    content: dict[str, Any] = {
        "agents": {"defaults": {"model": "chatty/model", "workspace": str(home / "workspace")}},
        "plugins": {
            "policy": "listed",
            "enabled": ["chatty", *names],
            "local": [str(PLUGIN), *map(str, files)],
        },
        "channels": {"chatty": channel | sections.pop("chatty", {})},
        "gateway": {"port": 0, "grace_s": 2},
        "owner": [OWNER],
    }
    for name, section in sections.items():
        if isinstance(section, Mapping):
            content.setdefault(name, {}).update(section)
        else:
            content[name] = section
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    return file


@cache
def _discovered() -> Path:
    """Return the cache after the discovery of plugins, which takes half a second."""
    home = Path(tempfile.mkdtemp(prefix="nanobot-"))
    atexit.register(rmtree, home, ignore_errors=True)
    settings = {"policy": "listed", "enabled": ["chatty"], "local": [str(PLUGIN)]}
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump({"plugins": settings}))
    Nanobot(load_config(file, environ={}, home=home))
    return home / "cache"


@asynccontextmanager
async def running(
    home: Path,
    clock: Clock | None = None,
    *plugins: object,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Nanobot]:
    """Run the gateway of `home` in this process; `plugins` join it once it is ready."""
    loaded = load_config(home / "config.yaml", environ=environ or {}, home=home)
    bot = Nanobot(loaded, clock=clock, environ={"PATH": os.environ["PATH"]})
    gateway, ready = GatewayRunner(bot, clock or SystemClock()), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(gateway.run(ready.set))
        starting = group.create_task(ready.wait())
        await asyncio.wait({work, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if ready.is_set():
            for number, plugin in enumerate(plugins):
                await bot.plugins.register(plugin, f"kit{number}")
            try:
                yield bot
            finally:
                gateway.request_stop()
        await work


async def turn_begun(home: Path) -> None:
    """Wait until the gateway of `home` works on a message of a chat."""
    client = ControlClient(home / "gateway")
    async with asyncio.timeout(LIMIT_S):
        while True:
            status = await client.call("status")
            if isinstance(status, dict) and status["turns"]:
                return
            await asyncio.sleep(0.01)


__all__ = [
    "LIMIT_S",
    "OWNER",
    "GatewayProcess",
    "Platform",
    "environment",
    "running",
    "running_pid",
    "turn_begun",
    "until",
    "write_config",
]
