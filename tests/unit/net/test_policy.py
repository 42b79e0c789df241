"""NetworkPolicy as a value, and what the package costs to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nanobot_core import ToolDenied
from nanobot_core.net import NetworkPolicy, TargetRefused, resolve_checked


def test_an_entry_that_is_no_network_is_named() -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.0/33' is not a network"):
        NetworkPolicy(("127.0.0.1", "10.0.0.0/33"))


def test_policies_are_equal_when_they_allow_the_same() -> None:
    assert NetworkPolicy(("10.0.0.0/8",)) == NetworkPolicy(("10.0.0.0/8",))
    assert NetworkPolicy(("10.0.0.0/8",)) != NetworkPolicy()


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "0x7f.1", "1.2.3.4/32", "8.8.8.8 "])
def test_text_that_is_no_address_is_not_allowed(text: str) -> None:
    assert not NetworkPolicy(("0.0.0.0/0", "::/0")).is_allowed(text)


def test_host_bits_in_a_network_are_forgiven() -> None:
    assert NetworkPolicy(("10.1.2.3/8",)).is_allowed("10.9.9.9")


def test_an_opened_ipv4_network_is_open_in_its_ipv6_forms() -> None:
    assert NetworkPolicy(("10.0.0.0/8",)).is_allowed("::ffff:10.0.0.1")


async def test_addresses_come_in_the_resolvers_order_and_once() -> None:
    found = await resolve_checked("127.0.0.1", 80, NetworkPolicy(("127.0.0.1/32",)))

    assert [str(address) for address in found] == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "\ud800"])
async def test_text_that_is_no_host_name_cannot_be_resolved(host: str) -> None:
    with pytest.raises(OSError, match="not a host name"):
        await resolve_checked(host, 80, NetworkPolicy())


async def test_an_empty_host_is_refused() -> None:
    with pytest.raises(TargetRefused) as caught:
        await resolve_checked("", 80, NetworkPolicy())

    assert isinstance(caught.value, ToolDenied)


def test_the_policy_needs_no_httpx() -> None:
    program = (
        "import sys; from nanobot_core.net import NetworkPolicy, resolve_checked; NetworkPolicy(); "
        "print([m for m in ('httpx', 'httpcore', 'anyio', 'pydantic') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=30
    ).stdout

    assert output.strip() == "[]"
