"""Model servers that run on this machine, found at the addresses that providers expect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot_core.app.model_table import credible_models
from nanobot_core.errors import FOREIGN_ERRORS
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.providers.match import ProviderRow

_CONNECT_S = 0.1
_LIST_S = 0.4
"""Seconds to wait for all connections, and for all lists of models."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MAX_MODELS = 50
_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that has answered with its models.

    Attributes:
        provider: name of the provider that it answers to.
        base: its base URL.
        models: names of its models, at least one.
    """

    provider: str
    base: str
    models: tuple[str, ...]


async def find_local_servers(agent: Nanobot) -> Sequence[LocalServer]:
    """Return the model servers at the loopback addresses of local providers, in table order.

    It takes at most half a second, connects to this machine only, and ignores other servers.
    The plugins of `agent` are stopped afterwards.
    """
    rows = [row for row in agent.models.rows() if _is_on_loopback(agent, row)]
    try:
        is_open = await asyncio.gather(*(_accepts_connections(_base(row)) for row in rows))
        # A plugin is imported only if something answers at its address.
        reached = [row for row, found in zip(rows, is_open, strict=True) if found]
        lists = await asyncio.gather(*(_models(agent, row) for row in reached))
    finally:
        await agent.plugins.stop()
    return [
        LocalServer(row.spec.name, _base(row), models)
        for row, models in zip(reached, lists, strict=True)
        if models
    ]


def _base(row: ProviderRow) -> str:
    return row.base or row.spec.default_base or ""


def _is_on_loopback(agent: Nanobot, row: ProviderRow) -> bool:
    section = agent.loaded.settings.section(f"providers.{row.spec.name}") or {}
    try:
        host = urlsplit(_base(row)).hostname
    except ValueError:
        return False
    return row.spec.is_local and host in _LOOPBACK and not section.get("proxy")


async def _accepts_connections(base: str) -> bool:
    parts = urlsplit(base)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError):  # TimeoutError is an OSError
        return False
    writer.close()
    return True


async def _models(agent: Nanobot, row: ProviderRow) -> tuple[str, ...]:
    try:
        provider = await agent.models.provider(row)
        await provider.warm_up()
        async with asyncio.timeout(_LIST_S):
            found = await provider.list_models()
    # Isolation point: whatever listens there may send anything, and providers are plugins.
    except FOREIGN_ERRORS:
        return ()
    names = [model.name for model in credible_models(found)]
    return tuple(name for name in names if len(name) <= _NAME_CHARS)[:_MAX_MODELS]
