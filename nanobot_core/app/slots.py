"""Exclusive slots: the one session store and the one memory backend that the settings name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nanobot_core.contracts.memory import MemoryBackend
from nanobot_core.contracts.store import SessionStore
from nanobot_core.errors import ConfigInvalid, PluginRejected
from nanobot_core.plugins.loader import load_object
from nanobot_core.sessions.jsonl import JsonlSessionStore

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.host import PluginHost

T = TypeVar("T")
BUILT_IN_STORE = "jsonl"


async def create_session_store(
    host: PluginHost, loaded: LoadedConfig, clock: Clock
) -> SessionStore:
    """Return the session store that the configuration names.

    Raises:
        ConfigInvalid: no plugin brings a store of that name.
        PluginError: its plugin cannot run.
    """
    name = loaded.settings.agents.defaults.session_store
    if name == BUILT_IN_STORE:
        folder: Path = loaded.workspace / "sessions"
        return JsonlSessionStore(folder, legacy_folder=loaded.home / "sessions", clock=clock)
    path = "agents.defaults.session_store"
    return await _create(host, loaded, ("stores", name, path), SessionStore)  # type: ignore[type-abstract]  # only isinstance is asked of it


async def create_memory(host: PluginHost, loaded: LoadedConfig) -> MemoryBackend | None:
    """Return the memory backend that the configuration names, or ``None`` when it names none.

    Raises:
        ConfigInvalid: no plugin brings a backend of that name.
        PluginError: its plugin cannot run.
    """
    name = loaded.settings.memory.backend
    if name is None:
        return None
    return await _create(host, loaded, ("memory", name, "memory.backend"), MemoryBackend)


async def _create(
    host: PluginHost, loaded: LoadedConfig, slot: tuple[str, str, str], wanted: type[T]
) -> T:
    kind, name, path = slot
    for plugin, declaration in host.declared(kind):
        if declaration.name == name:
            context = await host.context_for(plugin)
            factory = await asyncio.to_thread(
                load_object, plugin, str(declaration.detail["factory"])
            )
            made = factory(context) if callable(factory) else factory
            if not isinstance(made, wanted):
                raise PluginRejected(plugin, f"its {kind} factory made no {wanted.__name__}")
            return made
    known = ", ".join(declaration.name for _, declaration in host.declared(kind)) or "none"
    raise ConfigInvalid(
        [loaded.problem(path, f"expected one of: {known}", found=name, remedy="install its plugin")]
    )
