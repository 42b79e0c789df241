"""The channel keeps the contract of channels; its platform is the page, as a browser loads it."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from html import unescape
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from httpx import ASGITransport

from nanobot_core import Channel, DeliveryError, Nanobot, OutboundMessage
from nanobot_core.testing import (
    ChannelContract,
    ChannelPlatform,
    FakeClock,
    FakeGateway,
    FakePluginContext,
    PluginContract,
)
from nanobot_page.access import Logins
from nanobot_page.app import build_app
from nanobot_page.channel import WebChannel
from nanobot_page.events import Events
from nanobot_page.notices import MAX_CHARS, Notices
from nanobot_page.plugin import WebPlugin

CHAT = "0123456789ab"
_NOTICE = re.compile(r'aria-label="Notice"><div class="text"><p>(.*?)</p>\s*</div>', re.DOTALL)


class PageClient(ChannelPlatform):
    """A page that sends messages one after the other, each until the server takes it."""

    chat_id = CHAT

    def __init__(self, ctx: FakePluginContext, client: httpx.AsyncClient, token: str) -> None:
        self.acknowledged: list[str] = []
        self._ctx = ctx
        self._client = client
        self._headers = {"x-nanobot-token": token}
        self._events = ctx.shared(Events)
        self._begin = self._events.last
        self._unsent: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def channel(self) -> Channel:
        return WebChannel(self._ctx)

    async def say(self, key: str, text: str) -> None:
        await self._unsent.put((key, text))

    async def send_all(self) -> None:
        """Send what is said, until cancelled."""
        while True:
            key, text = await self._unsent.get()
            body = {"id": str(UUID(int=int(key))), "session": f"web:{CHAT}", "text": text}
            while await self._post(body) != 202:  # noqa: ASYNC110 - that is what pages do
                await asyncio.sleep(0.01)
            self.acknowledged.append(key)

    async def _post(self, body: dict[str, str]) -> int:
        answer = await self._client.post("/web/messages", json=body, headers=self._headers)
        assert answer.status_code in (202, 429, 503), answer.text
        return answer.status_code

    @property
    def delivered(self) -> list[str]:  # type: ignore[override]
        """What the chat shows, by the events of the page."""
        shown: dict[str, tuple[int, str]] = {}
        for event in self._events.after(self._begin) or ():
            for element in json.loads(event.data).get("put", ()):
                shown[element["id"]] = (element["place"], element["html"])
        texts = (_NOTICE.search(html) for _, html in sorted(shown.values()))
        return [unescape(found[1]) for found in texts if found]

    async def hang_up(self, after: int = 0) -> None:
        """Let the disk be full after some more notices."""
        full = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        when = f"WHEN (SELECT count(*) FROM notices) >= {after}"  # noqa: S608 - a number
        trigger = f"CREATE TRIGGER full BEFORE INSERT ON notices {when} {full}"
        await asyncio.to_thread(self._on_disk, trigger)

    async def come_back(self) -> None:
        await asyncio.to_thread(self._on_disk, "DROP TRIGGER full")

    def _on_disk(self, statement: str) -> None:
        file = self._ctx.data_dir / "notices.sqlite"
        with closing(sqlite3.connect(file, timeout=10)) as database, database:
            database.execute(statement)


class TestWebChannel(ChannelContract):
    @asynccontextmanager
    async def serve(self, tmp_path: Path) -> AsyncIterator[ChannelPlatform]:
        async with Nanobot.from_config(home=tmp_path / "home", safe=True) as bot:
            ctx = FakePluginContext(
                tmp_path,
                plugin_id="page",
                settings={},
                clock=FakeClock(),
                gateway=FakeGateway(client=bot.client),
            )
            await ctx.shared(Notices).of(f"web:{CHAT}", 0, None)  # makes its file
            app = ASGITransport(build_app(ctx))
            cookies = {"nanobot_80": await ctx.shared(Logins).add("Browser")}
            async with (
                ctx,
                httpx.AsyncClient(transport=app, base_url="http://page", cookies=cookies) as client,
            ):
                login = await ctx.shared(Logins).find(cookies["nanobot_80"])
                assert login is not None
                page = PageClient(ctx, client, login.token)
                sending = asyncio.create_task(page.send_all())
                try:
                    yield page
                finally:
                    sending.cancel()
                    await asyncio.wait({sending})


class TestWebPlugin(PluginContract):
    """Outside a gateway; what the hooks do in one is what the page shows."""

    plugin_id = "page"

    def make_context(self, tmp_path: Path) -> FakePluginContext:
        return FakePluginContext(tmp_path, plugin_id="page")

    def make_plugin(self) -> object:
        return WebPlugin()


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys; import nanobot_page.plugin; "
        "print(*sorted(m for m in sys.modules if m.partition('.')[0] in "
        "('jinja2', 'markdown_it', 'nanobot_page', 'nh3', 'pydantic', 'pygments', 'starlette')))"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert output.split() == ["nanobot_page", "nanobot_page.plugin"]


async def test_a_long_notice_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    async with TestWebChannel().serve(tmp_path) as page:
        channel = page.channel()
        text = "\n".join(f"line {number}" for number in range(MAX_CHARS // 5))
        message = OutboundMessage(channel="web", chat_id=CHAT, content=text)
        await page.hang_up(after=1)
        with pytest.raises(DeliveryError):
            await channel.send(message)
        assert page.delivered == []
        await page.come_back()
        await channel.send(message)
        assert "".join(page.delivered).replace("line", "").split() == [
            str(number) for number in range(MAX_CHARS // 5)
        ]
