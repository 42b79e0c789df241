"""The HTTP client of a plugin reaches the hosts that its manifest and its settings name."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel, SecretStr

from nanobot_core import JsonValue
from nanobot_core.net import HostNotDeclared, NetworkPolicy, TargetRefused, plugin_client
from nanobot_core.plugins.context import configured_hosts
from nanobot_core.testing import FakePluginContext
from tests.unit.net.conftest import Serve, answer


def context(
    tmp_path: Path,
    *declared: str,
    settings: dict[str, JsonValue] | None = None,
    network: NetworkPolicy | None = None,
) -> FakePluginContext:
    made = FakePluginContext(tmp_path, plugin_id="shop", settings=settings, network=network)
    made.declared_hosts = declared
    return made


@pytest.mark.promise(42)
async def test_a_host_that_is_not_declared_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with plugin_client(context(tmp_path, "api.example.org")) as client:
        with pytest.raises(HostNotDeclared) as caught:
            await client.get("https://evil.example.org/x")

    assert caught.value.host == "evil.example.org"
    assert "plugin 'shop'" in str(caught.value)
    assert "add 'evil.example.org' to PluginFacts.hosts" in str(caught.value)


async def test_a_host_on_this_machine_is_for_the_owner_to_name(tmp_path: Path) -> None:
    async with plugin_client(context(tmp_path)) as client:
        with pytest.raises(HostNotDeclared, match="set its address in the settings") as caught:
            await client.get("http://127.0.0.1:9/x")

    assert "PluginFacts" not in str(caught.value)


async def test_a_declared_host_is_reached(tmp_path: Path, serve: Serve) -> None:
    url = await serve([answer(b"here")])

    async with plugin_client(context(tmp_path, "127.0.0.1")) as client:
        response = await client.get(url)

    assert response.content == b"here"


async def test_a_declared_host_with_a_private_address_is_refused(tmp_path: Path) -> None:
    strict = context(tmp_path, "localhost", network=NetworkPolicy())

    async with plugin_client(strict) as client:
        with pytest.raises(TargetRefused):
            await client.get("http://localhost:9/")


async def test_a_host_of_the_settings_may_have_a_private_address(
    tmp_path: Path, serve: Serve
) -> None:
    url = await serve([answer(b"here")])
    own = context(tmp_path, settings={"servers": [{"url": url}]}, network=NetworkPolicy())

    async with plugin_client(own) as client:
        response = await client.get(url)

    assert response.content == b"here"


@pytest.mark.promise(42)
async def test_a_redirect_to_another_host_is_refused(tmp_path: Path, serve: Serve) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://localhost:1/\r\nContent-Length: 0\r\n\r\n"
    url = await serve([moved])

    async with plugin_client(context(tmp_path, "127.0.0.1"), follow_redirects=True) as client:
        with pytest.raises(HostNotDeclared, match="localhost"):
            await client.get(url)


@pytest.mark.parametrize(
    ("url", "is_reached"),
    [
        ("http://a.example.org/", True),
        ("http://A.EXAMPLE.ORG./", True),
        ("http://example.org/", False),
        ("http://a.example.org.evil.net/", False),
        ("http://a.example.org@evil.net/", False),
        ("http://evil.net/?a.example.org", False),
        ("http://[::1]/", False),
        ("http://aexample.org/", False),
    ],
)
async def test_spellings_of_hosts_are_compared_as_hosts(
    tmp_path: Path, url: str, is_reached: bool
) -> None:
    nothing_runs_there = "http://127.0.0.1:9"
    patterns = context(tmp_path, "*.example.org", "the servers of the owner")

    async with plugin_client(patterns, proxy=nothing_runs_there) as client:
        with pytest.raises(httpx.TransportError if is_reached else HostNotDeclared):
            await client.get(url)


class _Settings(BaseModel):
    base: str = "https://default.example.org"
    mirrors: tuple[str, ...] = ()
    key: SecretStr = SecretStr("")


def test_default_values_and_secrets_of_settings_name_no_host() -> None:
    assert configured_hosts([_Settings()]) == frozenset()
    assert configured_hosts(
        [
            _Settings(
                base="https://Own.example.org:8443/v1",
                mirrors=("http://[::1]:80", "://", "http://["),
                key=SecretStr("https://secret.example.org"),
            )
        ]
    ) == {"own.example.org", "::1"}
