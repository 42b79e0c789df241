"""An address that other machines reach is served with a good secret only; the gateway goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nanobot_core import GatewayStatus, RunStatus
from nanobot_core.app.client import ControlClient
from nanobot_core.app.wire import from_json
from tests.gateways import LIMIT_S, GatewayProcess, Platform, write_config

GOOD = "a-secret-of-the-owners-own-7"
LOOPBACK = "0100007F"
LISTENING = "0A"
"""State of a TCP socket in ``/proc/net/tcp`` (proc(5))."""


def _own_address() -> str:
    """Return this machine's address in its network; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "0.0.0.0"
        return str(probe.getsockname()[0])


OPEN = ("0.0.0.0", "::", "0", "", "::ffff:0.0.0.0", _own_address())
POOR = (None, "", "x" * 15, " " * 3)


@asynccontextmanager
async def _gateway(home: Path, **gateway: Any) -> AsyncIterator[tuple[GatewayProcess, Platform]]:
    async with Platform() as platform:
        write_config(home, platform, plugins=["http"], gateway=gateway)
        async with GatewayProcess(home) as process:
            yield process, platform


async def _http(home: Path) -> RunStatus:
    """Return how the HTTP service is, once it has listened or failed."""
    client = ControlClient(home / "gateway")
    async with asyncio.timeout(LIMIT_S):
        while True:
            status = from_json(GatewayStatus, await client.call("status"))
            service = next(run for run in status.running if run.name == "http")
            listens = service.state == "running" and list(home.glob("**/http/address"))
            if service.last_error or listens:
                return service
            await asyncio.sleep(0.05)


def _url(home: Path) -> str:
    (file,) = home.glob("**/http/address")
    return file.read_text().strip()


def _addresses(pid: int) -> set[str]:
    """Return the addresses of the process's TCP sockets that take connections, as in proc(5)."""
    sockets = {
        str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()
    }
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {
        row[1].partition(":")[0]
        for row in rows
        if row[3] == LISTENING and f"socket:[{row[9]}]" in sockets
    }


async def _is_closed(process: GatewayProcess, service: RunStatus) -> bool:
    """Whether only this machine is served, if any, and the owner reads why."""
    if service.state == "running":
        await process.hear("gateway.secret")
        return _addresses(process.pid) == {LOOPBACK}
    return "gateway.secret" in (service.last_error or "") and not _addresses(process.pid)


@pytest.mark.parametrize("host", dict.fromkeys(OPEN))
async def test_an_open_address_is_not_served_without_a_secret(tmp_path: Path, host: str) -> None:
    home = tmp_path / ".nanobot"
    async with _gateway(home, host=host) as (process, platform):
        service = await _http(home)

        assert await _is_closed(process, service)
        # The gateway itself goes on, and answers.
        await platform.say("say still here")
        await platform.shows("still here")


@pytest.mark.parametrize("secret", POOR)
async def test_an_open_address_is_not_served_with_a_poor_secret(
    tmp_path: Path, secret: str | None
) -> None:
    home = tmp_path / ".nanobot"
    async with _gateway(home, host="0.0.0.0", secret=secret) as (process, _):
        service = await _http(home)

        assert await _is_closed(process, service)
        assert service.state == "running" or "16 characters" in (service.last_error or "")


async def test_status_and_log_name_the_setting(tmp_path: Path) -> None:
    home = tmp_path / ".nanobot"
    async with _gateway(home, host="0.0.0.0") as (process, _):
        await _http(home)
        await process.hear("gateway.secret")

        status = from_json(GatewayStatus, await ControlClient(home / "gateway").call("status"))
        assert status.ready


@pytest.mark.parametrize("host", ["0.0.0.0", _own_address()])
async def test_a_good_secret_opens_the_address_and_is_demanded(tmp_path: Path, host: str) -> None:
    home = tmp_path / ".nanobot"
    async with _gateway(home, host=host, secret=GOOD) as (process, _):
        service = await _http(home)
        assert service.last_error is None
        assert _addresses(process.pid) - {LOOPBACK}
        url = _url(home).replace("0.0.0.0", "127.0.0.1")

        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=LIMIT_S) as client:

            async def asked(path: str, token: str = "") -> httpx.Response:
                headers = {"authorization": f"Bearer {token}"} if token else {}
                return await client.get(path, headers=headers)

            assert (await asked("/metrics")).status_code == 401
            assert (await asked("/metrics", "x" * len(GOOD))).status_code == 401
            assert (await asked("/metrics", GOOD[:-1])).status_code == 401
            assert (await asked("/metrics", GOOD)).status_code == 200
            assert (await asked("/health")).json() == {"status": "alive"}
            assert "running" not in (await asked("/health/ready")).json()
            assert "running" in (await asked("/health/ready", GOOD)).json()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_machine_alone_needs_no_secret(tmp_path: Path, host: str) -> None:
    """The control: what is refused above is the address, and not the service."""
    home = tmp_path / ".nanobot"
    async with _gateway(home, host=host) as (process, _):
        service = await _http(home)

        assert service.last_error is None
        assert _addresses(process.pid)
