"""Homes whose tools are served, and clients of the SDK for both transports."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from nanobot_core.testing import GatewayProcess

SERVED = Path(__file__).with_name("served.py")
SECRET = "secret-of-the-gateway-in-these-tests"


def write_config(home: Path, *allow: str, **sections: Any) -> None:
    """Write a configuration that serves the tools `allow`."""
    home.mkdir(parents=True, exist_ok=True)
    more = sections.pop("plugins", [])
    tools = dict(sections.pop("tools", {}))
    serve = {"allow": list(allow), **tools.pop("serve_mcp", {})}
    content: dict[str, Any] = {
        "plugins": {
            "policy": "listed",
            "enabled": ["served", "mcp-server", *more],
            "local": [str(SERVED)],
        },
        "gateway": {"port": 0, "grace_s": 2, "secret": SECRET},
        "tools": {"serve_mcp": serve, **tools},
        **sections,
    }
    file = home / "config.yaml"
    file.write_text(json.dumps(content))
    file.chmod(0o600)


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "NANOBOT_HOME": str(home), "HOME": str(home.parent)}


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[ClientSession]:
    """Connect to ``nanobot serve-mcp``."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nanobot_core", "serve-mcp"],
        env=environment(home),
    )
    async with stdio_client(parameters) as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield session


async def served_address(home: Path) -> str:
    """Return the address of the gateway's HTTP server, once it knows the route ``/mcp``."""
    file = home / "plugins" / "http" / "address"
    async with asyncio.timeout(30), httpx2.AsyncClient(trust_env=False) as http:
        while not (file.exists() and file.read_text()):  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.02)
        address = file.read_text().strip()
        # A known route demands the secret.
        while (await http.get(f"{address}/mcp")).status_code != 401:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    return address


@asynccontextmanager
async def over_http(home: Path, secret: str = SECRET) -> AsyncIterator[ClientSession]:
    """Connect to ``/mcp`` of the running gateway."""
    address = await served_address(home)
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        streamable_http_client(f"{address}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session


Connect = Callable[[Path], AbstractAsyncContextManager[ClientSession]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def configure() -> Callable[..., None]:
    return write_config


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return environment(home)


@pytest.fixture
def address() -> Callable[[Path], Awaitable[str]]:
    pytest.importorskip("nanobot_http")
    return served_address


@pytest.fixture
def stdio() -> Connect:
    """Connects to ``nanobot serve-mcp``."""
    return opened


@pytest.fixture
def http() -> Callable[..., AbstractAsyncContextManager[ClientSession]]:
    """Connects to the running gateway."""
    pytest.importorskip("nanobot_http")
    return over_http


@pytest.fixture(params=["alone", pytest.param("gateway", marks=pytest.mark.long), "http"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Connects over standard input, without and with a gateway, or over HTTP."""
    if request.param == "alone":
        return opened
    if request.param == "http":
        pytest.importorskip("nanobot_http")

    @asynccontextmanager
    async def with_gateway(home: Path) -> AsyncIterator[ClientSession]:
        connected = over_http if request.param == "http" else opened
        async with GatewayProcess(home), connected(home) as session:
            yield session

    return with_gateway
