"""A gateway's plugins come, change and go while people talk: everybody is answered, once, in order.

The gateway runs in this process, with a local Telegram and a second platform; the changes are made
as a user makes them, in the file and with ``nanobot gateway reload``.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

for _plugin in ("files", "telegram"):
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)

from nanobot_core import Nanobot  # noqa: E402 - see above
from nanobot_core.app.client import CHANGE_LIMIT_S, ControlClient  # noqa: E402 - see above
from nanobot_core.plugins.loader import loaded_modules  # noqa: E402 - see above
from tests.gateways import Platform, running, until, write_config  # noqa: E402 - see above
from tests.local_telegram import LocalApi, bot_api, person  # noqa: E402 - see above

pytestmark = pytest.mark.anyio
CHATS = 3
AHEAD = 4
"""Messages that may wait for their answer before their author writes more slowly."""
READ = 'call read_file {"path": "here.txt"}'
OURS = ("TelegramChannel", "Client", "Delivery", "Intake", "Poller", "AsyncClient")
"""Classes of which nothing may be left when Telegram is off, by their names."""


@pytest.fixture(autouse=True)
def modules_as_they_were() -> Iterator[None]:
    """Put back the modules that a disabled plugin's code leaves with: other tests have them."""
    packages = {"nanobot_files", "nanobot_telegram"}
    former = loaded_modules(packages)
    yield
    for name in loaded_modules(packages):
        del sys.modules[name]
    sys.modules.update(former)


@dataclass
class Talk:
    """People who write all the time on two platforms.

    Attributes:
        api: the local Telegram.
        platform: the other one.
        said: chat to what was written there, in order.
    """

    api: LocalApi
    platform: Platform
    said: dict[str, list[str]] = field(default_factory=dict)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Let them talk, and wait in the end until all are answered."""
        self._is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CHATS):
                group.create_task(self._talk(f"c{number}"))
                group.create_task(self._write(2_001 + number))
            yield
            self._is_over.set()
        wanted = sum(len(texts) for chat, texts in self.said.items() if chat.isdigit())
        try:
            await until(lambda: self.answered() >= wanted, 40)
        except TimeoutError:
            chats = range(2_001, 2_001 + CHATS)
            missing = [set(self.wanted(chat)) - set(self.telegram(chat)) for chat in chats]
            raise AssertionError(f"not answered: {missing}") from None

    def answered(self) -> int:
        """How many messages were answered on Telegram."""
        return sum(len(self.telegram(2_001 + number)) for number in range(CHATS))

    def is_right(self) -> bool:
        """Whether everybody on Telegram sees each answer once; leftovers go in the background."""
        chats = range(2_001, 2_001 + CHATS)
        return all(Counter(self.telegram(chat)) == Counter(self.wanted(chat)) for chat in chats)

    def telegram(self, chat: int) -> list[str]:
        return [shown.text for shown in self.api.shown(chat)]

    def wanted(self, chat: int) -> list[str]:
        return [text.removeprefix("say ") for text in self.said.get(str(chat), [])]

    async def more(self) -> None:
        """Wait until something more was answered on both platforms."""
        await self.more_here()
        there = self.answered()
        await until(lambda: self.answered() > there)

    async def more_here(self) -> None:
        """Wait until something more was answered on the platform that is never off."""
        here = len(self.platform.sent)
        await self.platform.until(lambda: len(self.platform.sent) >= here + CHATS)

    async def _talk(self, chat: str) -> None:
        texts = self.said.setdefault(chat, [])
        while not self._is_over.is_set():
            texts.append(READ if len(texts) % 3 == 2 else f"say {chat} {len(texts)}")
            await self.platform.say(texts[-1], chat)
            await self.platform.until(lambda: len(self.platform.texts(chat)) >= len(texts))

    async def _write(self, number: int) -> None:
        """Write to the bot whether it is there or not, and never be far ahead of its answers."""
        sender, chat = person(number, f"Person{number}")
        texts = self.said.setdefault(str(number), [])
        while not self._is_over.is_set():
            texts.append(f"say {number} {len(texts)}")
            self.api.say(texts[-1], chat=chat, sender=sender)
            await asyncio.sleep(0.02 if len(texts) - len(self.telegram(number)) < AHEAD else 0.2)


class Operator:
    """The person who changes the configuration of a running gateway.

    Attributes:
        home: nanobot's folder.
    """

    def __init__(
        self, home: Path, api: LocalApi, platform: Platform, *, streaming: bool = False
    ) -> None:
        self.home = home
        self._api = api
        self._platform = platform
        self._streaming = streaming

    def configure(self, *plugins: str, edits: bool = False, page: int = 5_000) -> None:
        """Write the configuration with these plugins besides the platform's."""
        telegram = {
            "token": bot_api.TOKEN,
            "api_base": self._api.url,
            "allow_from": ["*"],
            "rate_limit": 100_000,
            "edited_messages": edits,
            "streaming": self._streaming,
        }
        write_config(
            self.home,
            self._platform,
            plugins=list(plugins),
            channels={"telegram": telegram},
            tools={"files": {"max_page_chars": page}},
        )

    async def reload(self, *plugins: str, **settings: Any) -> str:
        """Change the configuration, have it taken up, and return what is said of that."""
        await asyncio.to_thread(self.configure, *plugins, **settings)
        said = await ControlClient(self.home / "gateway").call("reload", limit_s=CHANGE_LIMIT_S)
        assert isinstance(said, dict)
        return str(said["text"])

    async def idle(self) -> None:
        """Wait until nothing waits in the gateway; what Telegram shows may still be a draft."""
        client = ControlClient(self.home / "gateway")
        async with asyncio.timeout(40):
            while True:
                status = await client.call("status")
                assert isinstance(status, dict)
                depth = status["depth"]
                assert isinstance(depth, dict)
                if (depth["inbound"], depth["outbound"]) == (0, 0):
                    return
                await asyncio.sleep(0.05)


async def change_again_and_again(
    home: Path, rounds: int, *, streaming: bool = False
) -> Counter[str]:
    """Enable, reconfigure and disable two plugins so many times under load; return figures."""
    others = objects()  # LiteLLM, which other tests import, keeps clients of httpx
    async with Platform() as platform:
        with bot_api.BotApi() as api:
            operator = Operator(home, api, platform, streaming=streaming)
            talk = Talk(api, platform)
            operator.configure()
            (home / "workspace").mkdir()
            (home / "workspace" / "here.txt").write_text("found me")
            async with running(home) as bot:
                await one_round(bot, operator, talk, 0)
                await until(lambda: objects() <= others)
                before = belongings()
                watched: list[weakref.ref[object]] = []
                for number in range(1, rounds + 1):
                    watched += await one_round(bot, operator, talk, number)
                await until(lambda: objects() <= others)
                await until(lambda: belongings() <= before)
                left = [item for each in watched if (item := each()) is not None]
                assert [type(item).__name__ for item in left] == []
            check_answers(talk, is_ordered=not streaming)
            assert api.conflicts == 0
            assert api.acknowledged == sorted(set(api.acknowledged))
            return Counter(
                reloads=6 * (rounds + 1),
                telegram=talk.answered(),
                other=sum(len(platform.texts(f"c{number}")) for number in range(CHATS)),
            )


async def one_round(
    bot: Nanobot, operator: Operator, talk: Talk, number: int
) -> list[weakref.ref[object]]:
    """Bring both plugins, change them, and take them away, while people talk."""
    async with talk.going_on():
        assert await operator.reload("telegram", "files") == "enabled: files, telegram"
        await talk.more()
        watched = [weakref.ref(item) for item in await parts(bot)]
        said = await operator.reload("telegram", "files", edits=True, page=6_000 + number)
        assert said == "reloaded: files, telegram"
        await talk.more()
        assert await operator.reload("files", page=6_000 + number) == "disabled: telegram"
        await talk.more_here()
        said = await operator.reload("telegram", page=6_000 + number)
        assert said == "enabled: telegram\ndisabled: files"
        await talk.more()
        said = await operator.reload("telegram", "files", page=6_000 + number)
        assert said == "enabled: files"
        await talk.more()
    await operator.idle()
    await until(talk.is_right)
    assert await operator.reload() == "disabled: telegram, files"
    return watched


async def parts(bot: Nanobot) -> list[object]:
    """Return what both plugins are made of now."""
    found: list[object] = []
    for plugin_id in ("telegram", "files"):
        active = await bot.plugins.activate(plugin_id)
        found += [active, active.context, active.registrant.namespace]
    async with bot.plugins.snapshot() as generation:
        found += [generation, generation.hooks]
    return found


def check_answers(talk: Talk, *, is_ordered: bool) -> None:
    """See that everybody was answered once and in order.

    Args:
        talk: what was said.
        is_ordered: whether on Telegram the order counts too; a draft may appear above an earlier
            answer that could not be sent at once.
    """
    for number in range(CHATS):
        shown, wanted = talk.telegram(2_001 + number), talk.wanted(2_001 + number)
        assert Counter(shown) == Counter(wanted)
        assert shown == wanted or not is_ordered
        said = talk.said[f"c{number}"]
        for text, words in zip(talk.platform.texts(f"c{number}"), said, strict=True):
            if words == READ:
                assert "found me" in text or "there is no tool 'read_file'" in text
            else:
                assert text == words.removeprefix("say ")
    assert max(Counter(one["key"] for one in talk.platform.sent).values()) == 1


def objects() -> Counter[str]:
    """Count the objects of Telegram, by class."""
    gc.collect()
    return Counter(
        kind.__name__
        for kind in map(type, gc.get_objects())
        if kind.__name__ in OURS and kind.__module__.startswith(("nanobot_telegram", "httpx"))
    )


def belongings() -> Counter[str]:
    """Count tasks, open files, and threads besides those of the loop's pool, which has a bound."""
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return Counter(
        tasks=len(asyncio.all_tasks()),
        threads=len(threads),
        files=len(list(Path("/proc/self/fd").iterdir())),
    )


@pytest.mark.promise(20)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("streaming", [pytest.param(False, marks=pytest.mark.long), True])
async def test_telegram_and_files_come_change_and_go_under_load(
    tmp_path: Path, streaming: bool
) -> None:
    figures = await change_again_and_again(tmp_path / "home", 2, streaming=streaming)
    print(dict(figures))  # noqa: T201 - the figures are what the test is run for


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("streaming", [False, True])
async def test_telegram_and_files_come_change_and_go_fifty_times(
    tmp_path: Path, streaming: bool
) -> None:
    figures = await change_again_and_again(tmp_path / "home", 50, streaming=streaming)
    print(dict(figures))  # noqa: T201 - the figures are what the test is run for
