"""PluginContext as the host implements it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nanobot_core.clock import Clock
from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import PluginRejected
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.plugins.lent import Lent

if TYPE_CHECKING:
    from loguru import Logger
    from pydantic import BaseModel

    from nanobot_core.contracts.context import PluginContext

SettingsT = TypeVar("SettingsT", bound="BaseModel")
SharedT = TypeVar("SharedT")


class PublishedTools:
    """The tools that a plugin publishes besides those it contributes."""

    def __init__(self, publish: Callable[[tuple[Tool | LazyTool, ...]], None]) -> None:
        self._publish = publish

    def replace(self, tools: Iterable[Tool | LazyTool]) -> None:
        """Publish `tools` instead of the former set."""
        self._publish(tuple(tools))


class HostContext:
    """What one plugin may use.

    Attributes:
        id: the plugin's id.
        version: version of the plugin's distribution.
        clock: source of time.
        workspace: the agent's working folder, absolute.
        restrict_to_workspace: whether the owner confines files and commands to the workspace.
        protected_paths: files that no tool may read or write on the model's wish.
        tools: tools that change while the host runs.
        lent: what must be taken back when the plugin goes.
    """

    def __init__(
        self,
        plugin_id: str,
        version: str,
        host: HostFacts,
        settings: Mapping[str, BaseModel],
        tools: PublishedTools,
    ) -> None:
        self.id = plugin_id
        self.version = version
        self.clock: Clock = host.runtime.clock
        self.workspace: Path = host.workspace
        self.restrict_to_workspace: bool = host.restrict_to_workspace
        self.protected_paths: Sequence[Path] = host.protected_paths
        self.tools = tools
        self._host = host
        self._settings = settings
        self._sharing = threading.RLock()
        self._shared: dict[Callable[[PluginContext], Any], Any] = {}
        self.lent: Lent = Lent(plugin_id, host.runtime)

    @property
    def logger(self) -> Logger:
        """Logger whose records carry the plugin's id."""
        from loguru import logger

        return logger.bind(plugin=self.id)

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own, created on first use."""
        folder = self._host.home / "plugins" / self.id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the plugin's validated section of that model."""
        for found in self._settings.values():
            if isinstance(found, model):
                return found
        raise PluginRejected(
            self.id,
            f"it asks for settings of type {model.__name__}, which it does not contribute",
            "name the model in contribute_settings",
        )

    def shared(self, make: Callable[[PluginContext], SharedT]) -> SharedT:
        """Return what ``make(ctx)`` gives, made once for this context."""
        # Factories of lazy tools run in threads, and one may ask for what another is making.
        with self._sharing:
            if make not in self._shared:
                self._shared[make] = make(self)
            found: SharedT = self._shared[make]
            return found

    def environment(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return those of the named environment variables that are set."""
        return self._host.environment(names)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` until it ends or the plugin stops; a failure is reported."""
        self.lent.spawn(work, name=name)

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the plugin goes, in reverse order of registration."""
        self.lent.on_dispose(close)


class HostFacts:
    """What all contexts of one host share."""

    def __init__(
        self,
        *,
        runtime: HookRuntime,
        home: Path,
        workspace: Path,
        restrict_to_workspace: bool,
        protected_paths: Sequence[Path],
        environment: Callable[[Iterable[str]], Mapping[str, str]],
    ) -> None:
        self.runtime = runtime
        self.home = home
        self.workspace = workspace
        self.restrict_to_workspace = restrict_to_workspace
        self.protected_paths = protected_paths
        self.environment = environment
