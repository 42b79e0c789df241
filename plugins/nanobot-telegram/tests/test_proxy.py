"""Everything goes through the proxy that the owner has set, and only through it."""

from __future__ import annotations

import importlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from nanobot_telegram.settings import TelegramSettings

bot_api: Any = importlib.import_module("telegram_bot_api")
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalApi: TypeAlias = Any


class _Proxy(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[BaseRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.served = 0


class _Forwarding(BaseRequestHandler):
    server: _Proxy
    request: socket.socket

    def carry(self, beginning: bytes, address: tuple[str, int]) -> None:
        self.server.served += 1
        with socket.create_connection(address, 5) as target:
            target.sendall(beginning)
            ends = {self.request: target, target: self.request}
            while True:
                ready, _, _ = select.select(list(ends), [], [], 10)
                for end in ready:
                    data = end.recv(65_536)
                    if not data:
                        return
                    ends[end].sendall(data)
                if not ready:
                    return


class _HttpProxy(_Forwarding):
    def handle(self) -> None:
        beginning = self.request.recv(65_536)
        line, _, rest = beginning.partition(b"\r\n")
        method, url, version = line.split(b" ")
        address = urlsplit(url.decode())
        path = url.decode().partition(address.netloc)[2].encode()
        host = (str(address.hostname), int(address.port or 80))
        self.carry(b" ".join((method, path, version)) + b"\r\n" + rest, host)


class _SocksProxy(_Forwarding):
    def handle(self) -> None:
        # RFC 1928: greeting without authentication, then one request to connect.
        self.request.recv(1_024)
        self.request.sendall(b"\x05\x00")
        asked = self.request.recv(1_024)
        if asked[3] == 1:
            host, port = socket.inet_ntoa(asked[4:8]), asked[8:10]
        else:
            host, port = asked[5 : 5 + asked[4]].decode(), asked[5 + asked[4] :]
        self.request.sendall(b"\x05\x00\x00\x01" + bytes(6))
        self.carry(b"", (host, struct.unpack("!H", port[:2])[0]))


@contextmanager
def serving(handler: type[BaseRequestHandler]) -> Iterator[tuple[str, _Proxy]]:
    with _Proxy(handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{proxy.server_address[1]}", proxy
        finally:
            proxy.shutdown()
            thread.join()


@pytest.mark.parametrize(("scheme", "handler"), [("http", _HttpProxy), ("socks5", _SocksProxy)])
async def test_both_pools_go_through_the_proxy(
    opened: Opened, scheme: str, handler: type[BaseRequestHandler]
) -> None:
    with serving(handler) as (address, proxy):
        async with opened(proxy=f"{scheme}://{address}") as talk:
            talk.api.say(document={"file_id": talk.api.upload(b"x" * 100_000)})
            await talk.inbox.wait_for_stored(1)
            await talk.send("hi")

    assert [shown.text for shown in talk.api.shown()] == ["hi"]
    assert len(talk.inbox.stored[0].media) == 1
    assert proxy.served >= 2


async def test_proxies_of_the_environment_are_left_alone(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened() as talk:
        talk.api.say("hi")
        await talk.inbox.wait_for_stored(1)


@pytest.mark.parametrize("proxy", ["ftp://secret-host:1", "secret-host:1", "socks5://"])
def test_a_proxy_that_is_none_is_refused_without_repeating_it(proxy: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TelegramSettings.model_validate({"proxy": proxy})
    assert "socks5" in str(raised.value)
    assert "secret-host" not in str(raised.value)
