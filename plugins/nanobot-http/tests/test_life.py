"""Starting, stopping, and what the server leaves alone."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import AsgiApp, PluginLoadFailed
from nanobot_core.testing import FakePluginContext
from nanobot_http import plugin
from nanobot_http.connection import BoundedConnection
from nanobot_http.service import HttpService

if TYPE_CHECKING:
    from conftest import Serve

    Load = Callable[[], Awaitable[AsgiApp]]


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys, json; import nanobot_http.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_http', 'pydantic', 'starlette', 'uvicorn', 'prometheus_client')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout
    assert sorted(json.loads(output)) == ["nanobot_http", "nanobot_http.plugin"]


def test_the_service_is_found_under_its_name(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_services(FakePluginContext(tmp_path))
    assert (spec.name, spec.factory) == ("http", "nanobot_http.service:HttpService")


async def test_outside_of_a_gateway_it_does_not_run(tmp_path: Path) -> None:
    async with FakePluginContext(tmp_path, plugin_id="http") as ctx:
        with pytest.raises(PluginLoadFailed, match="in a gateway only"):
            await HttpService(ctx).run()


async def test_pieces_of_an_answer_do_not_wait_for_a_confirmation(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stream began 40 ms late, because the kernel held the first piece back."""
    seen: list[int] = []

    class Watched(BoundedConnection):
        def data_received(self, data: bytes) -> None:
            peer: socket.socket = self.transport.get_extra_info("socket")
            seen.append(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            super().data_received(data)

    monkeypatch.setattr("nanobot_http.service.BoundedConnection", Watched)
    async with serve() as served, asyncio.timeout(10):
        assert (await served.client.get("/health")).is_success
    assert seen
    assert all(seen)


async def test_signals_stay_with_the_gateway(serve: Serve) -> None:
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    came = asyncio.Event()

    def note() -> None:
        seen.append(signal.SIGTERM)
        came.set()

    loop.add_signal_handler(signal.SIGTERM, note)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        async with serve() as served, asyncio.timeout(10):
            assert signal.getsignal(signal.SIGINT) is interrupt
            signal.raise_signal(signal.SIGTERM)
            await came.wait()
            assert (await served.client.get("/health")).is_success
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    assert seen == [signal.SIGTERM]


async def test_stopping_frees_the_port_and_leaves_no_task(serve: Serve) -> None:
    before = asyncio.all_tasks()
    async with serve() as served:
        host, port = served.address
        await served.client.get("/health")
    with pytest.raises(OSError):  # noqa: PT011 - refused in several ways
        await asyncio.open_connection(host, port)
    assert asyncio.all_tasks() == before
    assert served.task.cancelled()


async def test_a_request_under_way_ends_before_the_server_does(
    serve: Serve, load_echo: Load
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    app = await load_echo()

    async def load() -> AsgiApp:
        begun.set()
        await go_on.wait()
        return app

    async with serve() as served, asyncio.TaskGroup() as group:
        served.gateway.mount("/slow", load, access="open")
        call = group.create_task(served.client.get("/slow"))
        await begun.wait()
        served.task.cancel()
        go_on.set()
        assert (await call).text == "/slow /slow 0"


async def test_a_second_run_serves_again(serve: Serve) -> None:
    for _ in range(2):
        async with serve() as served:
            assert (await served.client.get("/health")).is_success
