"""Socket.IO reports that there is something new; messages are still read by polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import SystemClock
from nanobot_core.testing import FakePluginContext
from nanobot_mochat.settings import MochatSettings
from nanobot_mochat.socket import watch_socket

socketio = pytest.importorskip("socketio", reason="the extra 'socket' is not installed")
web = pytest.importorskip("aiohttp.web")
pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, Any, list[object]]]:
    """Run a server; yield its address, itself, and what was subscribed to."""
    server = socketio.AsyncServer(async_mode="aiohttp")
    subscribed: list[object] = []

    async def connect(_sid: str, _environ: object, auth: dict[str, str]) -> bool:
        return auth["token"] == "t"

    async def subscribe(_sid: str, asked: object) -> dict[str, bool]:
        subscribed.append(asked)
        return {"result": True}

    server.on("connect", connect)
    server.on("com.claw.im.subscribePanels", subscribe)
    app = web.Application()
    server.attach(app)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}", server, subscribed
    finally:
        await runner.cleanup()


async def test_an_event_is_news(tmp_path: Path) -> None:
    news = asyncio.Event()
    async with served() as (url, server, subscribed), asyncio.timeout(10):
        settings = MochatSettings.model_validate(
            {"claw_token": "t", "base_url": url, "panels": ["panel-1", "*"]}
        )
        ctx = FakePluginContext(tmp_path, clock=SystemClock())
        watching = asyncio.create_task(watch_socket(ctx, settings, news))
        while not subscribed:  # noqa: ASYNC110 - a server has no event to wait for
            await asyncio.sleep(0.01)
        assert not news.is_set()
        await server.emit("claw.panel.events", {"panelId": "panel-1"})
        await news.wait()
        watching.cancel()
        await asyncio.wait({watching})
    assert watching.cancelled()
    assert subscribed == [{"panelIds": ["panel-1"]}]
