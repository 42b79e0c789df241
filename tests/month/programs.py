"""Clients of a month besides people on platforms: a program, and a page in the browser."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx

from tests.month.setting import command

LIMIT_S: Final = 60.0
_AGAIN_S: Final = 0.2
_ANSWER: Final = re.compile(r"You said: number (\d+)")
_CODE: Final = re.compile(r"http://\S+#code=(\S+)")
_TOKEN: Final = re.compile(r'data-token="([^"]+)"')


class ApiProgram:
    """Asks over OpenAI's API, each time with a key that makes repetitions harmless.

    Attributes:
        asked: how many questions it had.
        unknown: how many of them a kill has left without a known outcome.
        wrong: what it did not expect.
    """

    def __init__(self, home: Path) -> None:
        self.asked: int = 0
        self.unknown: int = 0
        self.wrong: list[str] = []
        self._home = home
        self._key = command(home, "api", "keys", "add", "month", "--requests-per-minute", "0")

    async def ask(self, number: int) -> None:
        """Ask until there is an answer, and once more, which must give the same."""
        self.asked += 1
        headers = {"authorization": f"Bearer {self._key.strip()}", "idempotency-key": uuid4().hex}
        body = {"model": "nanobot", "messages": [{"role": "user", "content": f"number {number}"}]}

        async def post() -> httpx.Response:
            async with _client(self._home) as client:
                return await client.post("/v1/chat/completions", json=body, headers=headers)

        first = await _patiently(post)
        if first.status_code == 409:  # its turn was killed
            self.unknown += 1
            return
        again = await _patiently(post)
        texts = [
            each.json()["choices"][0]["message"]["content"] if each.is_success else each.text
            for each in (first, again)
        ]
        if texts[0] != texts[1] or f"number {number}" not in texts[0]:
            self.wrong.append(f"program: {number} was answered with {texts}")


class PageClient:
    """Writes in a chat of the page, and repeats what was not confirmed.

    Attributes:
        said: numbers in the order of writing.
    """

    def __init__(self, home: Path) -> None:
        self.said: list[int] = []
        self._home = home
        self._session = f"web:{uuid4().hex[:12]}"
        self._cookies: dict[str, str] = {}
        self._token = ""

    async def sign_in(self) -> None:
        """Sign in with a link, as the owner; the gateway runs."""
        found = _CODE.search(await asyncio.to_thread(command, self._home, "web", "--no-open"))
        assert found
        async with _client(self._home) as client:
            answer = await client.post("/login", json={"code": found[1]})
            assert answer.is_success, answer.text
            shown = await client.get("/chat")
            self._cookies = dict(client.cookies)
        token = _TOKEN.search(shown.text)
        assert token, shown.text
        self._token = token[1]

    async def say(self, number: int) -> None:
        """Write, and wait until the answer is shown."""
        self.said.append(number)
        body = {"id": str(uuid4()), "session": self._session, "text": f"number {number}"}

        async def post() -> httpx.Response:
            async with _client(self._home, self._cookies) as client:
                headers = {"x-nanobot-token": self._token}
                return await client.post("/web/messages", json=body, headers=headers)

        await _patiently(post)
        async with asyncio.timeout(LIMIT_S):
            while number not in await self._answered():  # noqa: ASYNC110 - another process
                await asyncio.sleep(_AGAIN_S)

    async def findings(self) -> list[str]:
        """Return what is wrong with what the page shows."""
        answered = await self._answered()
        if answered == self.said or not self.said:
            return []
        doubled = [number for number, count in Counter(answered).items() if count > 1]
        missing = sorted(set(self.said) - set(answered))
        return [f"page: twice {doubled}, missing {missing}, in this order: {answered[-20:]}"]

    async def _answered(self) -> list[int]:
        async def get() -> httpx.Response:
            async with _client(self._home, self._cookies) as client:
                return await client.get("/web/export", params={"s": self._session})

        shown = await _patiently(get, {404})
        return [int(number) for number in _ANSWER.findall(shown.text)]


def _client(home: Path, cookies: dict[str, str] | None = None) -> httpx.AsyncClient:
    address = (home / "plugins/http/address").read_text("utf-8").strip()
    return httpx.AsyncClient(base_url=address, cookies=cookies, timeout=LIMIT_S, trust_env=False)


async def _patiently(
    ask: Callable[[], Awaitable[httpx.Response]], final: frozenset[int] | set[int] = frozenset()
) -> httpx.Response:
    """Ask again while the gateway is away or busy; return the first answer that is final."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                answer = await ask()
            except (httpx.TransportError, OSError, httpx.UnsupportedProtocol):
                await asyncio.sleep(_AGAIN_S)
                continue
            if answer.is_success or answer.status_code in {400, 401, 409, *final}:
                return answer
            await asyncio.sleep(_AGAIN_S)
