"""PluginContext: all that the host hands to a plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from loguru import Logger
    from pydantic import BaseModel

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.tool import LazyTool, Tool

    SettingsT = TypeVar("SettingsT", bound=BaseModel)

SharedT = TypeVar("SharedT")


class ToolSet(Protocol):
    """The tools that a plugin publishes besides those it contributes at start."""

    def replace(self, tools: Iterable[Tool | LazyTool]) -> None:
        """Publish `tools` instead of the former set, as one change of the registry.

        Raises:
            PluginRejected: a tool is malformed or its name does not match the declared pattern.
            NameConflict: another plugin has the name.
        """


class PluginContext(Protocol):
    """What a plugin may use of its host. It never hands over the application itself."""

    @property
    def id(self) -> str:
        """The plugin's id."""

    @property
    def version(self) -> str:
        """Version of the plugin's distribution."""

    @property
    def logger(self) -> Logger:
        """Logger whose records carry the plugin's id."""

    @property
    def clock(self) -> Clock:
        """Source of time."""

    @property
    def workspace(self) -> Path:
        """The agent's working folder, absolute."""

    @property
    def restrict_to_workspace(self) -> bool:
        """Whether the owner confines files and commands to the workspace."""

    @property
    def protected_paths(self) -> Sequence[Path]:
        """Files that no tool may read or write on the model's wish: they hold secrets."""

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own that outlives the process; created on first use."""

    @property
    def tools(self) -> ToolSet:
        """Tools that change while the host runs."""

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the plugin's validated section.

        Args:
            model: the model that the plugin named in ``contribute_settings``.

        Raises:
            PluginRejected: the plugin contributes no settings of that model.
        """

    def shared(self, make: Callable[[PluginContext], SharedT]) -> SharedT:
        """Return what ``make(ctx)`` gives, made once for this context.

        Tools and hooks are created apart; this is where those of one plugin in one application
        meet, without state in a module that two applications would share.
        """

    def environment(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return those of the named environment variables that are set."""

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` beside the host until it ends or the plugin stops; a failure is reported."""

    def on_dispose(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call `close` when the plugin goes, in reverse order of registration."""
