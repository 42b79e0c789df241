"""Creates the session store, bus, memory backend and transcriber that the settings name."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nanobot_core.contracts.bus import Bus
from nanobot_core.contracts.memory import MemoryBackend
from nanobot_core.contracts.store import SessionStore
from nanobot_core.contracts.transcription import TranscriptionProvider
from nanobot_core.errors import ConfigInvalid
from nanobot_core.folder import Folder
from nanobot_core.plugins.loader import make_object
from nanobot_core.sessions.jsonl import JsonlSessionStore

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.host import PluginHost

T = TypeVar("T")
BUILT_IN_STORE = "jsonl"
_WORKSPACE_ID = re.compile(r"[0-9a-f]{32}")
_MAX_ID_BYTES = 100
NO_MEMORY = "none"
"""Value of ``memory.backend`` for an agent without memory."""


async def create_session_store(
    host: PluginHost, loaded: LoadedConfig, clock: Clock
) -> SessionStore:
    """Return the session store that the configuration names.

    Raises:
        ConfigInvalid: no plugin provides a store with that name.
        PluginError: its plugin cannot run.
    """
    name = loaded.settings.agents.defaults.session_store
    if name == BUILT_IN_STORE:
        folder: Path = loaded.workspace / "sessions"
        return JsonlSessionStore(folder, legacy_folders=_original_folders(loaded), clock=clock)
    path = "agents.defaults.session_store"
    return await _create(host, loaded, ("stores", name, path), SessionStore, "sessions")  # type: ignore[type-abstract]  # used for isinstance only


def _original_folders(loaded: LoadedConfig) -> list[Path]:
    """Return where releases of nanobot-ai kept the sessions of the workspace.

    Since 0.3.5 each workspace has an id, and a folder of that name.
    """
    folders = [loaded.home / "sessions"]
    with suppress(OSError):
        found = Folder(loaded.workspace).read(".nanobot/workspace-id", _MAX_ID_BYTES)
        if _WORKSPACE_ID.fullmatch(workspace_id := found.decode(errors="replace").strip()):
            folders.append(folders[0] / workspace_id)
    return folders


async def create_memory(host: PluginHost, loaded: LoadedConfig) -> MemoryBackend | None:
    """Return the configured memory backend, or the only one that is installed.

    ``None`` if `NO_MEMORY` is configured, or none is and not exactly one is installed.

    Raises:
        ConfigInvalid: no plugin provides the configured one.
        PluginError: its plugin cannot run.
    """
    name = loaded.settings.memory.backend or _only(host, "memory")
    if name is None or name == NO_MEMORY:
        return None
    return await _create(host, loaded, ("memory", name, "memory.backend"), MemoryBackend)


async def create_bus(host: PluginHost, loaded: LoadedConfig, clock: Clock) -> Bus:
    """Return the message queue that the configuration names.

    Raises:
        ConfigInvalid: no plugin provides one with that name.
        PluginError: its plugin cannot run.
        BusError: its storage cannot be opened.
    """
    from loguru import logger

    settings = loaded.settings.gateway
    if settings.bus == "sqlite":
        from nanobot_core.bus.sqlite import SqliteBus

        path = loaded.home / "gateway" / "bus.sqlite"
        bus = await SqliteBus.open(path, clock=clock, max_waiting=settings.max_waiting)
        for finding in bus.repaired:
            logger.error("the message queue was damaged: {}", finding)
        return bus
    if settings.bus == "memory":
        from nanobot_core.bus.queues import MemoryBus

        return MemoryBus(clock=clock, max_waiting=settings.max_waiting)
    return await _create(host, loaded, ("stores", settings.bus, "gateway.bus"), Bus, "bus")  # type: ignore[type-abstract]  # used for isinstance only


async def create_transcriber(
    host: PluginHost, loaded: LoadedConfig
) -> TranscriptionProvider | None:
    """Return the transcriber; ``None`` if none is configured and not exactly one is installed.

    Raises:
        ConfigInvalid: no plugin provides the configured one.
        PluginError: its plugin cannot run.
        ConfigError: its settings are invalid.
    """
    name = loaded.settings.agents.defaults.transcriber or _only(host, "transcribers")
    if name is None:
        return None
    slot = ("transcribers", name, "agents.defaults.transcriber")
    return await _create(host, loaded, slot, TranscriptionProvider)


def _only(host: PluginHost, kind: str) -> str | None:
    """Return the name of the only contribution of that kind, ``None`` unless there is one."""
    names = [declaration.name for _, declaration in host.declared(kind)]
    return names[0] if len(names) == 1 else None


async def _create(
    host: PluginHost,
    loaded: LoadedConfig,
    slot: tuple[str, str, str],
    wanted: type[T],
    store_kind: str = "",
) -> T:
    kind, name, path = slot
    # A database can have both kinds of store under one name.
    offered = [each for each in host.declared(kind) if each[1].detail.get("kind", "") == store_kind]
    for plugin, declaration in offered:
        if declaration.name == name:
            context = await host.context_for(plugin)
            return await make_object(plugin, str(declaration.detail["factory"]), wanted, context)
    known = ", ".join(declaration.name for _, declaration in offered) or "none"
    raise ConfigInvalid(
        [loaded.problem(path, f"expected one of: {known}", found=name, remedy="install its plugin")]
    )
